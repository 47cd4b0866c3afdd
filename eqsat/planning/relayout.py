"""Relayout: which operands of a short reduction, or a product, are copied, with their axes in another order.

XLA computes what a short reduction reads as it goes, entry by entry of the result. It does so for several
entries in one instruction only if what neighbouring entries read are neighbours in memory, too. Points
[n, d] are not: for Σ_d |x_qd - y_nd|, the entries for n and n + 1 read what is d apart. A copy of y as [d, n]
takes a moment where each of its entries is read many times (docs/log/reductions.md). Where coordinates are
added up chunk by chunk, it is y that is copied, before that loop, and not each of its chunks.

Differences x_qd - y_nd that are stored for a product Σ_n w_qn (x_qd - y_nd) are multiplied ten times as fast
as [q, d, n] than as [q, n, d], and they come out as such if y is copied as [d, n].
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import NO_AXES, Axis, layout_axes
from eqsat.ir.ops import Chunk, Dot, Leaf, Map, Reduce
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, Relayout, Schedule
from eqsat.planning.memo import NO_CHUNKS, Remembered
from eqsat.planning.storage import stored_terms
from eqsat.targets.machine import Machine

OFTEN = 8
"""An operand is copied if the reduction reads each entry of the copy so often."""

APART = 0.75
"""What an entry that is apart from its neighbours costs a short reduction, in additions."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """A reduction, what of elementwise functions it computes as it goes, and what these read.

    Or elementwise functions that are computed to be stored for a product.

    **Attributes:**

    - `root`: the reduction, or the term that is stored.
    - `whole`: what is reduced, or stored.
    - `here`: the numbers of the terms that are computed in the same block.
    - `axes`: those that are reduced.
    - `last`: of what is stored, the axis that should come last.
    - `alike`: of what is read, all that may be worth a copy: what has the same axes together, as a long
      program reads many such.
    """

    root: Term
    whole: Term
    members: frozenset[int]
    here: frozenset[int]
    axes: frozenset[Axis]
    last: Axis | None
    alike: tuple[tuple[Term, ...], ...]

    @classmethod
    def of(
        cls,
        root: Term,
        whole: Term,
        stored: frozenset[int],
        here: frozenset[int],
        axes: frozenset[Axis] = NO_AXES,
        last: Axis | None = None,
    ) -> _Tree:
        members, sources = _fused(root.args, stored, here)
        alike: dict[Hashable, list[Term]] = {}
        for source in sources:
            if last is None:
                copied = bool(source.axes & axes)
            else:
                copied = {last} < source.axes < whole.axes and not _comes_last(last, source)
            if copied:
                chunk = isinstance(source.op, Chunk) and source.op.axis in axes
                of = source.args[0] if chunk else source
                alike.setdefault((source.axes, source.open, of.axes, of.open, of.dtype), []).append(source)
        return cls(root, whole, members, here, axes, last, tuple(map(tuple, alike.values())))


_RELAYOUTS: Remembered[dict[int, Relayout]] = Remembered()
_TREES: WeakKeyDictionary[Block, dict[frozenset[int], tuple[_Tree, ...]]] = WeakKeyDictionary()
"""By what of a block is stored: whatever the chunk lengths, that is all that they depend on."""


def relayouts(block: Block, model: CostModel) -> dict[int, Relayout]:
    """By the number of a block's reduction, the operands to copy for it."""
    if not (model.machine.lanes and model.machine.copies):
        return {}
    return _RELAYOUTS.recall(block, model, NO_CHUNKS, lambda: _relayouts(block, model))


def _relayouts(block: Block, model: CostModel) -> dict[int, Relayout]:
    found = {tree.root.number: _relayout(tree, model) for tree in _trees_in(block, model)}
    return {number: relayout for number, relayout in found.items() if relayout is not None}


def apart(block: Block, model: CostModel) -> dict[int, float]:
    """By the number of a block's reduction, seconds that it takes longer for reading entries that are apart.

    These are entries that it reads again and again; those that it reads once come from memory anyway.
    """
    if not model.machine.lanes:
        return {}
    copied = relayouts(block, model)
    found = {}
    for tree in _trees_in(block, model):
        entries = model.elements(tree.whole.axes, tree.whole.open)
        shared = any(
            source.axes & tree.axes and model.elements(source.axes, source.open) < entries
            for source, *_ in tree.alike
        )
        if shared and tree.root.number not in copied:
            found[tree.root.number] = APART * entries / model.machine.elements
    return found


def reads_again(reduction: Term) -> bool:
    """Whether a reduction of elementwise functions reads entries along its axes again and again."""
    assert isinstance(reduction.op, Reduce)
    whole = reduction.args[0]
    waiting, seen = [whole], {whole.number}
    while waiting:
        term = waiting.pop()
        if isinstance(term.op, Map):
            waiting += [arg for arg in term.args if arg.number not in seen]
            seen.update(arg.number for arg in term.args)
        elif term.axes & reduction.op.axes and term.axes != whole.axes:
            return True
    return False


def _trees_in(block: Block, model: CostModel) -> tuple[_Tree, ...]:
    stored = stored_terms(block, model)
    known = _TREES.setdefault(block, {})
    if stored not in known:
        known[stored] = tuple(_trees(block, stored))
    return known[stored]


def _trees(block: Block, stored: frozenset[int]) -> Iterator[_Tree]:
    here = frozenset(result.number for step in block.steps for result in step.results)
    multiplied = _multiplied(block)
    for step in block.steps:
        if not isinstance(step, Compute):
            continue
        root, last = step.term, multiplied.get(step.term.number)
        if isinstance(root.op, Reduce):
            tree = _Tree.of(root, root.args[0], stored, here, root.op.axes)
            if tree.members:
                yield tree
        elif isinstance(root.op, Map) and root.number in stored and last is not None:
            tree = _Tree.of(root, root, stored, here, last=last)
            yield replace(tree, members=tree.members | {root.number})


def _fused(
    roots: Iterable[Term], stored: frozenset[int], here: frozenset[int]
) -> tuple[frozenset[int], tuple[Term, ...]]:
    """The elementwise terms that are computed as one goes, by number, and what they read."""
    members: set[int] = set()
    sources: dict[int, Term] = {}
    waiting = list(roots)
    while waiting:
        term = waiting.pop()
        if not isinstance(term.op, Map) or term.number in stored or term.number not in here:
            sources[term.number] = term
        elif term.number not in members:
            members.add(term.number)
            waiting += term.args
    return frozenset(members), tuple(sources.values())


def _multiplied(block: Block) -> dict[int, Axis]:
    """By the number of an elementwise term with three axes or more, the one that a product sums over."""
    found: dict[int, Axis] = {}
    for step in block.steps:
        if isinstance(step, Compute) and isinstance(step.term.op, Dot) and len(step.term.op.axes) == 1:
            for arg in step.term.args:
                if isinstance(arg.op, Map) and len(arg.axes) > 2:
                    found.setdefault(arg.number, *step.term.op.axes)
    return found


def _relayout(tree: _Tree, model: CostModel) -> Relayout | None:
    candidates = [
        source
        for alike in tree.alike
        if _reads(_copied(alike[0], tree, model), tree, model) >= OFTEN
        for source in alike
    ]
    if not candidates:
        return None
    largest = max(candidates, key=lambda source: (model.elements(source.axes, source.open), -source.number))
    last = tree.last or max(
        largest.axes - tree.axes, key=lambda axis: (model.length(axis, largest.open), -axis.id)
    )
    if model.length(last, largest.open) < model.machine.lanes:
        return None
    copies = {s.number: _copied(s, tree, model) for s in candidates if last in s.axes}
    sizes = {copied.number: model.bytes(copied) for copied in copies.values()}
    held = sum(size for number, size in sizes.items() if number not in tree.here)
    return Relayout(copies, tree.members, tree.axes, last, sum(sizes.values()) - held, held)


def _comes_last(axis: Axis, source: Term) -> bool:
    """Whether an input, or a chunk of one, has the axis last already."""
    while isinstance(source.op, Chunk):
        (source,) = source.args
    return isinstance(source.op, Leaf) and layout_axes(source.op.layout)[-1] == axis


def _reads(copied: Term, tree: _Tree, model: CostModel) -> float:
    """How often each entry of a copy is read, in all iterations that it is the same in."""
    if copied.axes <= tree.axes:
        return 0
    iterations = model.trips(tree.whole.open - copied.open)
    entries = model.elements(tree.whole.axes, tree.whole.open)
    return iterations * entries / max(model.elements(copied.axes, copied.open), 1)


def _copied(source: Term, tree: _Tree, model: CostModel) -> Term:
    """What is copied for an operand: of a chunk along a reduced axis, all that it is a chunk of, if small.

    Its chunks are then slices of the copy, one after the other.
    """
    if isinstance(source.op, Chunk) and source.op.axis in tree.axes:
        (whole,) = source.args
        if model.bytes(whole) <= model.machine.cache:
            return whole
    return source


def relayouts_in(schedule: Schedule, machine: Machine) -> dict[int, Relayout]:
    """By the number of a reduction, the operands to copy for it, all over a schedule."""
    found: dict[int, Relayout] = {}

    def within(block: Block, lengths: Mapping[Axis, int]) -> None:
        found.update(relayouts(block, CostModel(machine, lengths)))
        for body in block.bodies:
            within(body, lengths)
        for step in block.steps:
            if isinstance(step, Loop):
                within(step.body, {**lengths, step.axis: schedule.chunks[step.id]})

    within(schedule.block, {})
    return found
