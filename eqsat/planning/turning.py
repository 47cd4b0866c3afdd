"""Turning: which operands of a short reduction are copied, with their axes in another order.

XLA computes what a short reduction reads as it goes, entry by entry of the result. It does so for several
entries in one instruction only if what neighbouring entries read are neighbours in memory, too. Points
[n, d] are not: for Σ_d |x_qd - y_nd|, the entries for n and n + 1 read what is d apart. A copy of y as [d, n]
takes a moment where each of its entries is read many times (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Map, Reduce
from eqsat.ir.term import Term
from eqsat.machine import Machine
from eqsat.planning.blocks import Block, Compute, Loop, Schedule, Turning
from eqsat.planning.storage import stored_terms, value_of

OFTEN = 8
"""An operand is copied if the reduction reads each of its entries so often."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """A reduction, what of elementwise functions it computes as it goes, and what these read."""

    reduction: Term
    members: frozenset[int]
    sources: tuple[Term, ...]


_TREES: WeakKeyDictionary[Block, dict[frozenset[int], tuple[_Tree, ...]]] = WeakKeyDictionary()
"""By what of a block is stored: whatever the chunk lengths, that is all that they depend on."""


def turnings(block: Block, model: CostModel) -> dict[int, Turning]:
    """By the number of a block's reduction, the operands to copy for it."""
    if not model.machine.lanes:
        return {}
    stored = stored_terms(block, model)
    known = _TREES.setdefault(block, {})
    if stored not in known:
        known[stored] = tuple(_trees(block, stored))
    found = {tree.reduction.number: _turning(tree, model) for tree in known[stored]}
    return {number: turning for number, turning in found.items() if turning is not None}


def _trees(block: Block, stored: frozenset[int]) -> Iterator[_Tree]:
    here = {step.term.number for step in block.steps if isinstance(step, Compute)}
    for step in block.steps:
        if not (isinstance(step, Compute) and isinstance(step.term.op, Reduce)):
            continue
        members: set[int] = set()
        sources: dict[int, Term] = {}
        waiting = [step.term.args[0]]
        while waiting:
            term = waiting.pop()
            if not isinstance(term.op, Map) or term.number in stored or term.number not in here:
                sources[term.number] = term
            elif term.number not in members:
                members.add(term.number)
                waiting += term.args
        if members:
            yield _Tree(step.term, frozenset(members), tuple(sources.values()))


def _turning(tree: _Tree, model: CostModel) -> Turning | None:
    op, whole = tree.reduction.op, tree.reduction.args[0]
    assert isinstance(op, Reduce)

    def elements(term: Term) -> int:
        return model.elements(term.axes, term.open)

    candidates = [
        source
        for source in tree.sources
        if source.axes & op.axes
        and source.axes - op.axes
        and OFTEN * elements(source) <= model.elements(whole.axes, whole.open)
    ]
    if not candidates:
        return None
    largest = max(candidates, key=lambda source: (elements(source), -source.number))
    last = max(largest.axes - op.axes, key=lambda axis: (model.length(axis, largest.open), -axis.id))
    if model.length(last, largest.open) < model.machine.lanes:
        return None
    turned = [source for source in candidates if last in source.axes]
    size = sum(model.bytes(value_of(source)) for source in turned)
    numbers = frozenset(source.number for source in turned)
    return Turning(numbers, tree.members, op.axes, last, size)


def turned(schedule: Schedule, machine: Machine) -> dict[int, Turning]:
    """By the number of a reduction, the operands to copy for it, all over a schedule."""
    found: dict[int, Turning] = {}

    def within(block: Block, lengths: Mapping[Axis, int]) -> None:
        found.update(turnings(block, CostModel(machine, lengths)))
        for body in block.bodies():
            within(body, lengths)
        for step in block.steps:
            if isinstance(step, Loop):
                within(step.body, {**lengths, step.axis: schedule.chunks[step.id]})

    within(schedule.block, {})
    return found
