"""Choosing one node per class: the cheapest program in which nothing stored exceeds a cap.

Nodes that would store more than the cap are struck out first. Among what is left, a bottom-up pass
finds for every class the cheapest tree; then rounds of improvement count shared parts once, by
carrying for each class the set of classes that its best program is made of (greedy DAG extraction).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqsat.engine.cost import CostModel, Value
from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.snapshot import ENode, Snapshot
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Concat, Const, Fold, Iota, Leaf, Rename

MOST_MASKED_CLASSES = 12_000
"""Above this many classes the improvement rounds would take too much memory and are left out."""

ROUNDS = 3

KNOWN, MADE = 1.0005, 1.001
"""Where two ways cost the same, the one that was written is taken. What it is known to be otherwise counts a
little more, and more again what a rule made: another name for a factorisation, not a second one."""

SATURATED = 1e290


@dataclass(frozen=True, slots=True)
class Selection:
    """One node for each class that the roots need, and the predicted time of all of them."""

    nodes: dict[int, ENode]
    seconds: float


class Extractor:
    """Extraction from one snapshot under one cost model."""

    def __init__(self, graph: Snapshot, model: CostModel, roots: Iterable[int]) -> None:
        self.graph = graph
        self.model = model
        self.roots = tuple(dict.fromkeys(roots))
        self.values = [Value(c.axes, c.open, c.dtype) for c in graph.classes]
        self.bytes = [model.bytes(value) for value in self.values]
        self.given = self._given()
        self.one_pass = False
        self._weighed: dict[int, list[tuple[ENode, float, int]]] = {}

    def _given(self) -> list[bool]:
        """Which classes hold an input, a slice of one, or an index: they need no buffer of their own."""
        given = [any(isinstance(n.op, (Leaf, Const, Iota)) for n in c.nodes) for c in self.graph.classes]
        renames = [
            (number, node.children[0])
            for number, eclass in enumerate(self.graph.classes)
            for node in eclass.nodes
            if isinstance(node.op, (Rename, Chunk))
        ]
        changed = True
        while changed:
            changed = False
            for number, child in renames:
                if given[child] and not given[number]:
                    given[number] = changed = True
        return given

    def _largest_stored(self, number: int, node: ENode, operands: list[Value]) -> int:
        """Bytes of the largest buffer that choosing this node brings about."""
        largest = 0
        if self.model.stores_result(node.op) and number not in self.roots:
            largest = self.bytes[number]
        if self.model.stores_operands(node.op, operands):
            largest = max([largest, *(self.bytes[c] for c in node.children if not self.given[c])])
        return largest

    def extract(
        self, cap: float, split: frozenset[Axis] | None = None, one_pass: bool = False
    ) -> Selection | None:
        """The cheapest program that stores nothing over `cap` bytes, the roots excepted.

        Time is that of each value computed once. But what two loops over one axis need, of which one
        waits for the other, is computed in both, which only a schedule can tell.

        **Arguments:**

        - `split`: the axes that may be looped over; all if None.
        - `one_pass`: whether to leave out programs in which a loop needs the result of another one over
          the same axis.

        **Returns:** None if every program stores something larger.
        """
        nodes = self._reachable(cap, split)
        self.one_pass = one_pass
        order, chosen = self._cheapest_trees(nodes)
        if any(root not in chosen for root in self.roots):
            return None
        selected = self._reach(chosen)
        if len(self.graph.classes) <= MOST_MASKED_CLASSES:
            improved = self._reach(self._improve(nodes, order, chosen))
            if improved is not None and self._total(improved) <= self._total(selected or improved):
                selected = improved
        assert selected is not None, "the cheapest trees have no cycles"
        return Selection({n: node for n, (node, _) in selected.items()}, self._total(selected))

    def _weigh(self, number: int) -> list[tuple[ENode, float, int]]:
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
                cost *= KNOWN if node.maker == EQUATED else 1 if node.maker == LOADED else MADE
                found.append((node, cost, self._largest_stored(number, node, operands)))
            self._weighed[number] = found
        return found

    def _reachable(self, cap: float, split: frozenset[Axis] | None) -> list[tuple[int, ENode, float]]:
        """The nodes that are allowed, of the classes that the roots may need."""
        nodes: list[tuple[int, ENode, float]] = []
        seen = set(self.roots)
        stack = list(self.roots)
        while stack:
            number = stack.pop()
            for node, cost, largest in self._weigh(number):
                if largest > cap:
                    continue
                if split is not None and isinstance(node.op, (Fold, Concat)) and node.op.axis not in split:
                    continue
                nodes.append((number, node, cost))
                for child in node.children:
                    if child not in seen:
                        seen.add(child)
                        stack.append(child)
        return nodes

    def _cheapest_trees(
        self, nodes: list[tuple[int, ENode, float]]
    ) -> tuple[list[int], dict[int, tuple[ENode, float]]]:
        """Knuth's generalisation of Dijkstra: classes in the order in which their best tree is known."""
        users: dict[int, list[int]] = {}
        waiting = [0] * len(nodes)
        totals = [0.0] * len(nodes)
        heap: list[tuple[float, int]] = []
        for index, (_, node, cost) in enumerate(nodes):
            totals[index] = cost
            waiting[index] = len(node.children)
            for child in node.children:
                users.setdefault(child, []).append(index)
            if not node.children:
                heapq.heappush(heap, (cost, index))
        order: list[int] = []
        closed: dict[int, frozenset[Axis]] = {}
        chosen: dict[int, tuple[ENode, float]] = {}
        while heap:
            total, index = heapq.heappop(heap)
            number, node, cost = nodes[index]
            if number in chosen:
                continue
            if self.one_pass:
                loops = self._loops_within(number, node, closed)
                if loops is None:
                    continue
                closed[number] = loops
            chosen[number] = (node, cost)
            order.append(number)
            for user in users.get(number, ()):
                waiting[user] -= 1
                totals[user] = min(totals[user] + total, SATURATED)
                if waiting[user] == 0 and nodes[user][0] not in chosen:
                    heapq.heappush(heap, (totals[user], user))
        return order, chosen

    def _improve(
        self,
        nodes: list[tuple[int, ENode, float]],
        order: list[int],
        chosen: dict[int, tuple[ENode, float]],
    ) -> dict[int, tuple[ENode, float]]:
        """Rounds of choosing, class by class, the node whose whole DAG is cheapest."""
        position = {number: index for index, number in enumerate(order)}
        by_class: dict[int, list[tuple[ENode, float, list[int]]]] = {}
        for number, node, cost in nodes:
            if number in position and all(child in position for child in node.children):
                children = [position[child] for child in node.children]
                by_class.setdefault(number, []).append((node, cost, children))
        masks: npt.NDArray[np.bool_] = np.zeros((len(order), len(order)), dtype=bool)
        known = np.zeros(len(order), dtype=bool)
        weights = np.zeros(len(order))
        best = dict(chosen)
        closed: dict[int, frozenset[Axis]] = {}
        for _ in range(ROUNDS):
            changed = False
            for index, number in enumerate(order):
                options = by_class[number]
                if len(options) == 1 and known[index] and not changed:
                    continue
                found: tuple[float, ENode, float, npt.NDArray[np.bool_]] | None = None
                for node, cost, children in options:
                    if not all(known[child] for child in children):
                        continue
                    if len(children) == 1:
                        mask = masks[children[0]]
                    elif children:
                        mask = np.logical_or.reduce(masks[children])
                    else:
                        mask = np.zeros(len(order), dtype=bool)
                    if mask[index]:
                        continue
                    if self.one_pass and self._loops_within(number, node, closed) is None:
                        continue
                    total = float(weights @ mask) + cost
                    if found is None or total < found[0]:
                        found = (total, node, cost, mask)
                if found is None:
                    continue
                _, node, cost, mask = found
                if best[number][0] is not node or not known[index]:
                    changed = True
                best[number] = (node, cost)
                if self.one_pass:
                    closed[number] = self._loops_within(number, node, closed) or frozenset()
                masks[index] = mask
                masks[index, index] = True
                weights[index] = cost
                known[index] = True
            if not changed:
                break
        return best

    def _loops_within(
        self, number: int, node: ENode, closed: dict[int, frozenset[Axis]]
    ) -> frozenset[Axis] | None:
        """The axes of the loops in the tree of a node; None if one of them is open in it as well."""
        loops = frozenset[Axis]().union(*(closed[child] for child in node.children))
        if loops & self.graph.classes[number].open:
            return None
        return loops | {node.op.axis} if isinstance(node.op, (Fold, Concat)) else loops

    def _reach(self, chosen: dict[int, tuple[ENode, float]]) -> dict[int, tuple[ENode, float]] | None:
        """The part of a choice that the roots need, operands first; None if it has a cycle."""
        state: dict[int, int] = {}
        reached: dict[int, tuple[ENode, float]] = {}
        stack = [(root, False) for root in reversed(self.roots)]
        while stack:
            number, leaving = stack.pop()
            if leaving:
                state[number] = 2
                reached[number] = chosen[number]
                continue
            if state.get(number) == 2:
                continue
            if state.get(number) == 1:
                return None
            state[number] = 1
            stack.append((number, True))
            for child in reversed(chosen[number][0].children):
                if state.get(child) == 1:
                    return None
                if child not in state:
                    stack.append((child, False))
        return reached

    @staticmethod
    def _total(selected: dict[int, tuple[ENode, float]]) -> float:
        return sum(cost for _, cost in selected.values())
