"""Makes the graph of the arrays that a schedule stores, with loops and control flow as boxes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from eqsat.engine.storage_model import StorageModel
from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan, Switch
from eqsat.ir.ops import Const, Iota, Leaf, Opaque
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, Schedule, bodies_of, work_of
from eqsat.planning.describing import Describer
from eqsat.planning.loops import is_free
from eqsat.planning.storage import stored_terms
from eqsat.reports.records import BoxRecord, GraphRecord, NodeRecord
from eqsat.targets.machine import Machine

MOST_NODES = 40
"""At most this many arrays are shown, results first, then the largest."""

MOST_FUSED = 4
"""At most this many of the ops that are fused into an array are named: the last ones."""


def graph_record(schedule: Schedule, words: Describer, machine: Machine) -> GraphRecord:
    """The graph of a schedule."""
    graph = _Graph(schedule, words, machine)
    graph.block(schedule.block, {}, -1)
    for output in schedule.program.outputs:
        graph.result(output.term)
    return graph.record()


class _Graph:
    """The graph in the making.

    **Attributes:**

    - `sources`: by number of a term visited, its node if it is stored, or else the nodes it is computed from.
    - `fused`: by number of a term visited, the ops between these nodes and the term.
    """

    def __init__(self, schedule: Schedule, words: Describer, machine: Machine) -> None:
        self.schedule = schedule
        self.words = words
        self.machine = machine
        self.nodes: list[NodeRecord] = []
        self.made_of: list[tuple[int, ...]] = []
        self.boxes: list[BoxRecord] = []
        self.sources: dict[int, tuple[int, ...]] = {}
        self.fused: dict[int, tuple[str, ...]] = {}

    def block(self, block: Block, lengths: Mapping[Axis, int], box: int) -> None:
        stored = set(stored_terms(block, StorageModel(self.machine, lengths)))
        stored.update(term.number for term in block.needs if not is_free(term))
        entered: set[Hashable] = set()
        for step in block.steps:
            if isinstance(step, Loop):
                self._loop(step, lengths, box)
                continue
            if step.bodies and work_of(step.term) not in entered:
                entered.add(work_of(step.term))
                self._bodies(step, lengths, box)
            self._term(step, step.term.number in stored, lengths, box)

    def _loop(self, loop: Loop, lengths: Mapping[Axis, int], box: int) -> None:
        chunk = self.schedule.chunks[loop.id]
        iterations = -(-loop.axis.size // chunk)
        inner = len(self.boxes)
        self.boxes.append(
            BoxRecord(f"loop over {self.words.label(loop.axis)}: {iterations} chunks of {chunk}", box)
        )
        self.block(loop.body, {**lengths, loop.axis: chunk}, inner)
        for result in loop.results:
            self._node(result, bodies_of(result), (), lengths, box)

    def _bodies(self, step: Compute, lengths: Mapping[Axis, int], box: int) -> None:
        op = step.term.op
        assert isinstance(op, Opaque)
        for number, (body, block) in enumerate(zip(op.call.bodies, step.bodies, strict=True)):
            match op.call.control:
                case Scan(length=length):
                    label = f"scan: {length} iterations"
                case Switch():
                    label = f"branch {number}"
                case _:
                    label = ("while: condition", "while: iteration")[number]
            inner = len(self.boxes)
            self.boxes.append(BoxRecord(label, box))
            for leaf, source in zip(body.program.inputs, body.sources, strict=True):
                self._pass_on(leaf, [step.term.args[source]], "")
            self.block(block, lengths, inner)

    def _term(self, step: Compute, stored: bool, lengths: Mapping[Axis, int], box: int) -> None:
        term = step.term
        if isinstance(term.op, Leaf):
            if term.number not in self.sources:
                self._node(term, (), (), {}, -1)
        elif isinstance(term.op, (Const, Iota)):
            self.sources[term.number] = ()
        elif stored:
            op = term.op
            inside = (
                [
                    body.program.outputs[op.result].term
                    for body in op.call.bodies
                    if op.result < len(body.program.outputs)
                ]
                if isinstance(op, Opaque)
                else []
            )
            self._node(term, [*term.args, *inside], [*term.args], lengths, box)
        else:
            self._pass_on(term, term.args, "" if is_free(term) else self.words.op(term))

    def _pass_on(self, term: Term, args: Iterable[Term], op: str) -> None:
        """Enter a term that is not stored: its consumers are made from its sources."""
        args = list(args)
        self.sources[term.number] = self._sources(args)
        names = [name for arg in args for name in self.fused.get(arg.number, ())]
        self.fused[term.number] = tuple(dict.fromkeys([*names, *([op] if op else [])]))

    def _node(
        self, term: Term, args: Iterable[Term], fused: Iterable[Term], lengths: Mapping[Axis, int], box: int
    ) -> None:
        args = list(args)
        names = dict.fromkeys(name for arg in fused for name in self.fused.get(arg.number, ()))
        kind = "argument" if isinstance(term.op, Leaf) else "value"
        tensor = self.words.tensor(term, self.machine, lengths)
        self.made_of.append(self._sources(args))
        self.nodes.append(NodeRecord(kind, tensor, tuple(names)[-MOST_FUSED:], box))
        self.sources[term.number] = (len(self.nodes) - 1,)
        self.fused[term.number] = ()

    def _sources(self, terms: Iterable[Term]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(node for term in terms for node in self.sources.get(term.number, ())))

    def result(self, term: Term) -> None:
        """Mark a result of the program."""
        for node in self.sources.get(term.number, ()):
            if self.nodes[node].kind == "value":
                self.nodes[node] = replace(self.nodes[node], kind="result")

    def record(self) -> GraphRecord:
        """The graph. Edges bridge the nodes that are left out."""
        count = len(self.nodes)
        ranked = sorted(
            range(count),
            key=lambda number: (self.nodes[number].kind != "result", -self.nodes[number].tensor.bytes),
        )
        kept = sorted(ranked[:MOST_NODES])
        place = {number: position for position, number in enumerate(kept)}
        roots: list[tuple[int, ...]] = []
        edges: list[tuple[int, int]] = []
        before: dict[int, set[int]] = {}  # for each node that is kept, all nodes it is made from
        for number in range(count):
            direct = [place[source] for source in self.made_of[number] if source in place]
            reached = dict.fromkeys(root for source in self.made_of[number] for root in roots[source])
            if number in place:
                # A bridge becomes an edge only if no other path connects the two nodes.
                known = set(direct).union(*(before[root] for root in reached))
                sources = [*direct, *(root for root in reached if root not in known)]
                edges += [(source, place[number]) for source in dict.fromkeys(sources)]
                before[place[number]] = known.union(reached)
                reached = {place[number]: None}
            roots.append(tuple(reached))
        used = self._used_boxes(kept)
        boxes = {number: position for position, number in enumerate(used)}
        return GraphRecord(
            tuple(replace(self.nodes[number], box=boxes.get(self.nodes[number].box, -1)) for number in kept),
            tuple(edges),
            tuple(replace(self.boxes[box], parent=boxes.get(self.boxes[box].parent, -1)) for box in used),
            count - len(kept),
        )

    def _used_boxes(self, kept: Iterable[int]) -> list[int]:
        used: set[int] = set()
        for number in kept:
            box = self.nodes[number].box
            while box >= 0:
                used.add(box)
                box = self.boxes[box].parent
        return sorted(used)
