"""Extraction: one node per class, so that the program is the cheapest that stores no value over a cap.

Nodes that would store more than the cap are struck out first. A bottom-up pass then finds the cheapest tree
of every class. Greedy DAG extraction and local search then count shared parts once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from eqsat.engine.cost import CostModel
from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.families import NO_FAMILIES, Families, agreed
from eqsat.engine.greedy_dag import greedy_choices, seconds_of
from eqsat.engine.local_search import Switcher
from eqsat.engine.node_choices import Inside, NodeChoice, Selection
from eqsat.engine.snapshot import ENode, Snapshot
from eqsat.engine.storage_model import Value, is_expensive
from eqsat.ir.axis import Axis
from eqsat.ir.memory_order import Order, is_same_array, passed_on
from eqsat.ir.ops import Call, Chunk, Concat, Const, Fold, Iota, Leaf, Map, Op, Opaque, Operation

MOST_MASKED_CLASSES = 40_000
"""Above this many classes the improvement rounds, which take a bit for each pair of them, are left out."""

NEARLY = 1.1
"""Local search starts from each choice that takes at most this many times as long as the best one."""

SAME = 1e-9
"""Two rounds whose times differ by less than this share found the same program."""

KNOWN, MADE = 1.0005, 1.001
"""Where two ways cost the same, the one that was written is taken: what it is known to be otherwise counts a
little more, and more again what a rule made."""

SATURATED = 1e290


class Extractor:
    """Extraction from one snapshot under one cost model.

    **Attributes:**

    - `inside`: by a call's number, what the programs inside of it need.
    - `families`: of each of these, one member is computed.
    - `given`: which classes hold an input, a slice of one, or an index; `orders`: the orders of their axes in
      memory, by class.
    - `outside`: whether results over the cap are kept outside the device's memory, chunk by chunk, and so can
      be read by chunks only.
    """

    def __init__(
        self,
        graph: Snapshot,
        model: CostModel,
        roots: Iterable[int],
        inside: Mapping[int, Inside] | None = None,
        families: Families = NO_FAMILIES,
        outside: bool = False,
    ) -> None:
        self.graph = graph
        self.families = families
        self.outside = outside
        self.inside = inside or {}
        self.model = model
        self.roots = tuple(dict.fromkeys(roots))
        self.values = [Value(c.axes, c.open, c.dtype) for c in graph.classes]
        self.bytes = [model.bytes(value) for value in self.values]
        self.orders: dict[int, Order] = {}
        self.given = self._given()
        self.expensive = self._expensive() if model.machine.stores_broadcasts else []
        self.one_pass = False
        self.switches = True
        self._weighed: dict[int, list[NodeChoice]] = {}
        self._bits: dict[Axis, int] = {}
        self._trips: dict[int, float] = {}
        self._open = [sum(map(self._bit, eclass.open)) for eclass in graph.classes]
        # That a call runs, as a class of its own; and by the identity of a node that needs it, the graph's.
        self._runs: dict[tuple[int, tuple[int, ...], int, float], int] = {}
        self._written: dict[int, ENode] = {}

    def _bit(self, axis: Axis) -> int:
        """The bit that stands for a loop over that axis."""
        if axis not in self._bits:
            self._bits[axis] = 1 << len(self._bits)
            self._trips[self._bits[axis]] = self.model.trips(frozenset({axis}))
        return self._bits[axis]

    def _given(self) -> list[bool]:
        """Which classes hold an input, a slice of one, or an index: they need no buffer of their own."""
        given = [False] * len(self.graph.classes)
        named: dict[int, list[tuple[int, Op]]] = {}
        reached: list[tuple[int, Order | None]] = []
        for number, eclass in enumerate(self.graph.classes):
            for node in eclass.nodes:
                if isinstance(node.op, (Leaf, Const, Iota)):
                    reached.append((number, passed_on(node.op, None)))
                elif isinstance(node.op, Chunk) or is_same_array(node.op):
                    named.setdefault(node.children[0], []).append((number, node.op))
        while reached:
            number, order = reached.pop()
            if not given[number]:
                given[number] = True
                if order is not None:
                    self.orders[number] = order
                reached.extend((user, passed_on(op, order)) for user, op in named.get(number, ()))
        return given

    def _expensive(self) -> list[bool]:
        """Which classes are expensive to compute again, whichever of their nodes is chosen."""
        cheap = list(self.given)
        changed = True
        while changed:
            changed = False
            for number, eclass in enumerate(self.graph.classes):
                if not cheap[number] and any(
                    not is_expensive(node.op, self.model.machine)
                    and all(cheap[child] for child in node.children)
                    for node in eclass.nodes
                ):
                    cheap[number] = changed = True
        return [not each for each in cheap]

    def _stored(self, number: int, node: ENode, operands: list[Value]) -> tuple[int, ...]:
        """The classes that get a buffer when this node is chosen, but for results of the program."""
        stored = [number] if self.model.stores_result(node.op) and number not in self.roots else []
        read = self.model.read_operands(node.op, operands)
        if read:
            stored += [child for child in node.children[: len(read)] if not self.given[child]]
        elif self.model.is_view(node.op):
            # What a loop reads entries of, but does not change, is computed before it.
            opened = self.values[number].open
            stored += [c for c in node.children if self.values[c].open < opened and not self.given[c]]
        elif self.expensive and isinstance(node.op, Map):
            axes = self.values[number].axes
            stored += [c for c in node.children if self.expensive[c] and self.values[c].axes < axes]
        return tuple(stored)

    def _largest_stored(self, number: int, node: ENode, stored: tuple[int, ...]) -> int:
        """Bytes of the largest buffer, or workspace, that choosing this node brings about."""
        operands = [self.values[child] for child in node.children]
        orders = [self.orders.get(child) for child in node.children]
        packed = self.model.workspace(node.op, operands, orders)
        if isinstance(node.op, Opaque):
            packed += self.model.unread(node.op, operands, {node.op.result})
        if node.children and self.given[node.children[0]]:
            packed += self.model.copied(node.op, operands)
        if isinstance(node.op, (Opaque, Operation)) and any(operand.open for operand in operands):
            packed = 0  # It shrinks with the chunks, which are not chosen yet.
        largest = max([packed, *(self.bytes[kept] for kept in stored)])
        if isinstance(node.op, Opaque) and node.op.call.id in self.inside:
            opened = self.graph.classes[number].open & node.op.call.cut
            part = math.prod(self.model.length(axis, opened) / axis.size for axis in opened)
            largest = max(largest, int(part * self.inside[node.op.call.id].largest))
        return largest

    def extract(
        self,
        cap: float,
        split: frozenset[Axis] | None = None,
        one_pass: bool = False,
        without: frozenset[int] = frozenset(),
        unmade: frozenset[int] = frozenset(),
        switches: bool = True,
    ) -> Selection | None:
        """The cheapest program that stores nothing over `cap` bytes, the roots excepted.

        Time counts each value once, and what nested loops repeat as often as they do. Only a schedule shows
        that two loops over one axis, of which one waits for the other, both compute what they share.

        **Arguments:**

        - `split`: the axes that may be looped over; None for all.
        - `one_pass`: whether to exclude programs in which a loop needs the result of another one over the
          same axis.
        - `without`: classes that must not be stored, however small they are.
        - `unmade`: classes that must not be computed at all, since they would be stored: the schedule shows
          how many read a value.
        - `switches`: whether local search improves it.

        **Returns:** None if every program stores a larger value, or one of those classes.
        """
        self.one_pass = one_pass
        self.switches = switches
        choices = self.choices(cap, split, without, unmade)
        return agreed(self.families, choices, self._cheapest, self._tree_seconds)

    def _cheapest(self, choices: list[NodeChoice]) -> Selection | None:
        """The cheapest program that is found of some nodes."""
        chosen = self.cheapest_trees(choices)
        if any(root not in chosen for root in self.roots):
            return None
        options: dict[int, list[NodeChoice]] = {number: [] for number in chosen}
        for choice in choices:
            if choice.number in options and all(child in chosen for child in choice.node.children):
                options[choice.number].append(choice)
        tree = self._reach(chosen)
        starts = [(self._total(tree), tree)]
        if len(chosen) <= MOST_MASKED_CLASSES:
            starts += self._rounds(options, chosen)
        most = NEARLY * min(total for total, _ in starts)
        near = [(total, one) for total, one in starts if total <= most]
        # Local search does not see what nests repeat, so its starts are in the running as well.
        better = [self._switched(options, chosen, one) for _, one in near] if self.switches else []
        timed = [*((self._total(one), one) for one in better), *near]
        seconds, selected = min(timed, key=lambda pair: pair[0])
        return Selection(self._chosen_nodes(selected), seconds, self._is_one_pass(selected))

    def _tree_seconds(self, choices: list[NodeChoice]) -> float:
        """The time of the cheapest trees of some nodes, with what they share counted once."""
        chosen = self.cheapest_trees(choices)
        return math.inf if any(root not in chosen for root in self.roots) else self.seconds(chosen)

    def seconds(self, chosen: Mapping[int, NodeChoice]) -> float:
        """The time of what the roots need of a choice, what nested loops repeat included."""
        return self._total(self._reach(chosen))

    def _weigh(self, number: int) -> list[NodeChoice]:
        """The nodes of a class, each with its time and its largest buffer."""
        found = self._weighed.get(number)
        if found is None:
            found = []
            for node in self.graph.classes[number].nodes:
                operands = [self.values[child] for child in node.children]
                cost = self.model.seconds(node.op, self.values[number], operands)
                if isinstance(node.op, Chunk) and not self.given[node.children[0]]:
                    # What is sliced was stored first; computing the slice alone needs no such pass.
                    cost += 2 * self.model.traffic(operands[0])
                scale = KNOWN if node.maker == EQUATED else 1 if node.maker == LOADED else MADE
                loop = self._bit(node.op.axis) if isinstance(node.op, (Fold, Concat)) else 0
                stored = self._stored(number, node, operands)
                largest = self._largest_stored(number, node, stored)
                if isinstance(node.op, Opaque) and node.op.call.id in self.inside:
                    running = (*node.children, self._run(number, node, node.op.call, scale))
                    written, node = node, replace(node, children=running)
                    self._written[id(node)] = written
                found.append(NodeChoice(number, node, cost * scale, largest, stored, loop))
            self._weighed[number] = found
        return found

    def _run(self, number: int, node: ENode, call: Call, scale: float) -> int:
        """The number of a class beyond those of the graph: that a call runs, once for all of its results."""
        key = call.id, node.children, self._open[number], scale
        if key not in self._runs:
            run = self._runs[key] = len(self._open)
            seconds = self.inside[call.id].seconds * scale
            results = len(call.out_dtypes)
            self._weighed[run] = [NodeChoice(run, ENode(node.op, (), LOADED), seconds, 0, (), 0, results)]
            self._open.append(self._open[number])
        return self._runs[key]

    def _chosen_nodes(self, selected: Mapping[int, NodeChoice]) -> dict[int, ENode]:
        """The nodes of a choice as they are in the graph."""
        chosen = {number: choice.node for number, choice in selected.items() if number < len(self.bytes)}
        return {number: self._written.get(id(node), node) for number, node in chosen.items()}

    def largest_stored(self, cap: float) -> float:
        """Bytes of the largest buffer that any program within the cap may have."""
        return max((choice.largest for choice in self.choices(cap, None)), default=0.0)

    def choices(
        self,
        cap: float,
        split: frozenset[Axis] | None = None,
        without: frozenset[int] = frozenset(),
        unmade: frozenset[int] = frozenset(),
    ) -> list[NodeChoice]:
        """The nodes that are allowed, of the classes that the roots may need."""
        loops = ~0 if split is None else sum(map(self._bit, split))
        choices: list[NodeChoice] = []
        seen = set(self.roots)
        stack = list(self.roots)
        while stack:
            for choice in self._weigh(stack.pop()):
                if choice.largest > cap or (choice.loop and not choice.loop & loops):
                    continue
                if choice.number in unmade or not without.isdisjoint(choice.stored):
                    continue
                if self.outside and self._needs_whole_result(choice, cap):
                    continue
                choices.append(choice)
                for child in choice.node.children:
                    if child not in seen:
                        seen.add(child)
                        stack.append(child)
        return choices

    def _needs_whole_result(self, choice: NodeChoice, cap: float) -> bool:
        """Whether a node holds a whole result that is over the cap, or reads one."""
        large = [number for number in self.roots if self.bytes[number] > cap]
        op = choice.node.op
        if choice.number in large and not isinstance(op, Concat):
            return True
        return not isinstance(op, Chunk) and any(child in large for child in choice.node.children)

    def cheapest_trees(self, choices: list[NodeChoice]) -> dict[int, NodeChoice]:
        """Knuth's generalisation of Dijkstra: by class, the node of its cheapest tree, operands first."""
        users: dict[int, list[int]] = {}
        waiting = [0] * len(choices)
        totals = [0.0] * len(choices)
        heap: list[tuple[float, int]] = []
        for index, choice in enumerate(choices):
            # Trees share nothing: each result of a call counts its part of the run.
            totals[index] = choice.cost / choice.shared
            waiting[index] = len(choice.node.children)
            for child in choice.node.children:
                users.setdefault(child, []).append(index)
            if not choice.node.children:
                heapq.heappush(heap, (totals[index], index))
        closed: dict[int, int] = {}
        chosen: dict[int, NodeChoice] = {}
        while heap:
            total, index = heapq.heappop(heap)
            choice = choices[index]
            number = choice.number
            if number in chosen:
                continue
            if self.one_pass:
                loops = self._loops_within(choice, closed)
                if loops is None:
                    continue
                closed[number] = loops
            chosen[number] = choice
            for user in users.get(number, ()):
                waiting[user] -= 1
                totals[user] = min(totals[user] + total, SATURATED)
                if waiting[user] == 0 and choices[user].number not in chosen:
                    heapq.heappush(heap, (totals[user], user))
        return chosen

    def _rounds(
        self, options: dict[int, list[NodeChoice]], trees: dict[int, NodeChoice]
    ) -> Iterator[tuple[float, dict[int, NodeChoice]]]:
        """What the roots need, and its time, by each round of greedy DAG extraction while that changes."""
        last = math.inf
        for better in greedy_choices(options, trees, self._open, self._trips, self.one_pass):
            if any(root not in better for root in self.roots):
                return
            reached = self._reach(better)
            total = self._total(reached)
            if abs(total - last) < SAME * total:
                return
            yield total, reached
            last = total

    def _switched(
        self,
        options: dict[int, list[NodeChoice]],
        trees: dict[int, NodeChoice],
        selected: dict[int, NodeChoice],
    ) -> dict[int, NodeChoice]:
        """A choice improved by switching."""
        switcher = Switcher(options, trees, selected, self.roots, self.cheapest_trees)
        switched = self._reach(switcher.improved())
        return selected if self.one_pass and not self._is_one_pass(switched) else switched

    def _loops_within(self, choice: NodeChoice, closed: Mapping[int, int]) -> int | None:
        """The loops in the tree of a node, as bits; None if one is over an axis open in it as well."""
        loops = 0
        for child in choice.node.children:
            loops |= closed[child]
        return None if loops & self._open[choice.number] else loops | choice.loop

    def _is_one_pass(self, selected: Mapping[int, NodeChoice]) -> bool:
        """Whether no loop needs the result of another one over the same axis."""
        closed: dict[int, int] = {}
        for number, choice in selected.items():
            loops = self._loops_within(choice, closed)
            if loops is None:
                return False
            closed[number] = loops
        return True

    def _reach(self, chosen: Mapping[int, NodeChoice]) -> dict[int, NodeChoice]:
        """The part of a choice that the roots need, operands first."""
        state: dict[int, int] = {}
        reached: dict[int, NodeChoice] = {}
        stack = [(root, False) for root in reversed(self.roots)]
        while stack:
            number, leaving = stack.pop()
            if leaving:
                state[number] = 2
                reached[number] = chosen[number]
                continue
            if state.get(number) == 2:
                continue
            state[number] = 1
            stack.append((number, True))
            for child in reversed(chosen[number].node.children):
                assert state.get(child) != 1, "a choice has no cycles"
                if child not in state:
                    stack.append((child, False))
        return reached

    def _total(self, selected: Mapping[int, NodeChoice]) -> float:
        return seconds_of(selected, self.roots, self._open, self._trips)
