"""Budgets that no program of a search space keeps to, by bounds that hold for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.engine.node_choices import NodeChoice
from eqsat.engine.snapshot import Snapshot
from eqsat.engine.storage_model import JOINS
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import carried
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Call, Map, Opaque, Rename
from eqsat.ir.program import Program
from eqsat.ir.unused_results import needed_results
from eqsat.targets.machine import Machine

MOST_CLASSES = 20_000
"""Above this many e-classes nothing is said of loops: what each class needs takes a bit for each pair."""

MOST_PASSES = 16
"""How many times the e-classes are gone through for what each of them needs."""


def fits_nowhere(
    program: Program, graph: Snapshot, large: Sequence[Axis], machine: Machine, budget: int
) -> bool:
    """Whether all programs of an e-graph need more than a budget in bytes.

    Each stores a value that is larger than the memory beside the arguments, or calls a function whose
    operands are, taken together, or runs a loop whose carries are. Values in loops over chunks are taken to
    be as small as they can be. A value may lie where a result comes later, and a function's result where an
    operand was.

    **Arguments:**

    - `large`: the axes that may be looped over.
    """
    free = budget - program.fixed_bytes + sum(output.bytes for output in program.outputs)
    roots = [graph.class_of[output.term.number] for output in program.outputs]
    extractor = Extractor(graph, CostModel(machine, dict.fromkeys(large, 1)), roots)
    buffers = _Buffers(extractor)
    choices = [choice for choice in extractor.choices(free) if buffers.read_by(choice) <= free]
    trees = extractor.cheapest_trees(choices)
    if any(root not in trees for root in roots):
        return True
    calls = [call for call in _loops(program) if _carried_bytes(call, set(_carried_results(call))) > free]
    if not calls or len(trees) > MOST_CLASSES:
        return False
    options: dict[int, list[NodeChoice]] = {number: [] for number in trees}
    for choice in choices:
        if choice.number in options and all(child in trees for child in choice.node.children):
            options[choice.number].append(choice)
    needs = _needs(options, trees)
    if needs is None:
        return False
    everywhere = 0
    for root in roots:
        everywhere |= needs[root]
    return any(
        _carried_bytes(call, results) > free for call, results in _run(options, needs, everywhere, calls)
    )


def _carried_results(call: Call) -> range:
    """The results of a loop that are final carries, by number."""
    assert call.control is not None
    return range(len(carried(call.control)))


def _carried_bytes(call: Call, results: set[int]) -> int:
    """Bytes of the carries that a loop has in memory at once, if these of its results are computed.

    Along axes of which the call may be given chunks, nothing is counted but one entry.
    """
    total = 0
    for result in needed_results(call, results) & set(_carried_results(call)):
        axes = layout_axes(call.out_layouts[result])
        elements = math.prod(axis.size for axis in axes if axis not in call.cut)
        total += elements * itemsize(call.out_dtypes[result])
    return total


class _Buffers:
    """The buffers that the classes of an e-graph would have."""

    def __init__(self, extractor: Extractor) -> None:
        self.bytes = extractor.bytes
        self.same = list(range(len(extractor.graph.classes)))
        for number, eclass in enumerate(extractor.graph.classes):
            for node in eclass.nodes:
                if isinstance(node.op, Rename):
                    self.same[self._buffer(number)] = self._buffer(node.children[0])

    def read_by(self, choice: NodeChoice) -> int:
        """Bytes of the operands that a node reads from memory, all of which are there when it is computed."""
        op = choice.node.op
        if isinstance(op, Map) or (isinstance(op, Opaque) and op.call.primitive.name in JOINS):
            return 0  # Its operands may be computed one after another, with it.
        operands = {self._buffer(number): number for number in choice.stored if number != choice.number}
        return sum(self.bytes[number] for number in operands.values())

    def _buffer(self, number: int) -> int:
        """The class whose buffer it is: under other names, the axes of an array are the same."""
        while self.same[number] != number:
            self.same[number] = number = self.same[self.same[number]]
        return number


def _loops(program: Program) -> Iterator[Call]:
    """The loops outside of others that carry anything."""
    calls = {term.op.call for term in program.known() if isinstance(term.op, Opaque)}
    return (call for call in calls if call.control is not None and carried(call.control))


def _needs(
    options: Mapping[int, Sequence[NodeChoice]], trees: Mapping[int, NodeChoice]
) -> dict[int, int] | None:
    """By class, those without which it can't be computed, as bits; None if that takes too long.

        needs(c)  =  {c}  and what all nodes of c need,      a node needing what its operands need

    The largest sets for which this holds are found, from all classes downwards.

    **Arguments:**

    - `trees`: for each class a node, operands first.
    """
    everything = (1 << (max(options, default=0) + 1)) - 1
    needs = dict.fromkeys(trees, everything)
    for _ in range(MOST_PASSES):
        changed = False
        for number in trees:
            common = everything
            for choice in options[number]:
                common &= _together(needs, choice)
            common |= 1 << number
            if common != needs[number]:
                needs[number] = common
                changed = True
        if not changed:
            return needs
    return None


def _together(needs: Mapping[int, int], choice: NodeChoice) -> int:
    """What the operands of a node need."""
    found = 0
    for child in choice.node.children:
        found |= needs[child]
    return found


def _run(
    options: Mapping[int, Sequence[NodeChoice]],
    needs: Mapping[int, int],
    everywhere: int,
    calls: Sequence[Call],
) -> Iterator[tuple[Call, set[int]]]:
    """The loops that every program runs, each with the results that every program takes from it.

    **Arguments:**

    - `everywhere`: the classes that every program computes, as bits.
    """
    found: dict[int, set[int]] = {}
    for number, choices in options.items():
        if not everywhere >> number & 1:
            continue
        # What needs the class itself is no way to compute it.
        ways = [choice.node.op for choice in choices if not _together(needs, choice) >> number & 1]
        if not all(isinstance(op, Opaque) for op in ways):
            continue
        taken = {(op.call.id, op.result) for op in ways if isinstance(op, Opaque)}
        if len(taken) == 1:
            ((call, result),) = taken
            found.setdefault(call, set()).add(result)
    return ((call, found[call.id]) for call in calls if call.id in found)
