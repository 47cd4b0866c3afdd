"""Relayout: chooses the operands of short reductions and products to copy with their axes in another order.

XLA computes the operand of a short reduction on the fly, for each entry of the result. It vectorises over
entries of the result only if neighbouring entries read neighbouring memory. With points stored as [n, d],
they do not: for Σ_d |x_qd - y_nd|, the entries for n and n + 1 read memory that is d entries apart. A copy of
y as [d, n] costs little if each of its entries is read many times (docs/log/reductions.md). If coordinates
are summed chunk by chunk, y itself is copied before that loop, not each of its chunks.

Differences x_qd - y_nd that are stored for a product Σ_n w_qn (x_qd - y_nd) are multiplied ten times as fast
in the order [q, d, n] as in [q, n, d]. XLA stores them in that order if y is copied as [d, n].
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
"""An operand is copied if each entry of the copy is read at least this many times."""

APART = 0.75
"""The extra time of a short reduction for an entry that is not next to its neighbours, in additions."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """A reduction, or a stored elementwise operand of a product, with the elementwise terms fused into it.

    **Attributes:**

    - `root`: the reduction, or the stored term.
    - `whole`: the reduction's operand, or the stored term.
    - `members`: the numbers of the elementwise terms that are computed on the fly.
    - `here`: the numbers of the terms that are computed in the same block.
    - `axes`: the axes that are reduced.
    - `last`: the axis of the stored term that should come last; None for a reduction.
    - `alike`: the values read by the members that may be worth a copy, in groups with the same axes. Long
      programs read many values with the same axes.
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
"""The trees of blocks, by the terms that a block stores; chunk lengths matter only through these."""


def relayouts(block: Block, model: CostModel) -> dict[int, Relayout]:
    """By number of a block's reduction or stored term, the operands to copy for it."""
    if not (model.machine.lanes and model.machine.copies):
        return {}
    return _RELAYOUTS.recall(block, model, NO_CHUNKS, lambda: _relayouts(block, model))


def _relayouts(block: Block, model: CostModel) -> dict[int, Relayout]:
    found = {tree.root.number: _relayout(tree, model) for tree in _trees_in(block, model)}
    return {number: relayout for number, relayout in found.items() if relayout is not None}


def apart(block: Block, model: CostModel) -> dict[int, float]:
    """By number of a block's reduction or stored term, the extra seconds for reading entries that are apart.

    Only entries that are read repeatedly count; those read once come from memory anyway.
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
    """Whether a reduction of elementwise values reads entries along its axes more than once."""
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
    """The numbers of the elementwise terms that are fused into the roots, and the values that these read."""
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
    """By number of an elementwise term with three or more axes, the single axis that a product sums over."""
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
    """Whether a value is an input, or a chunk of one, that has the axis last already."""
    while isinstance(source.op, Chunk):
        (source,) = source.args
    return isinstance(source.op, Leaf) and layout_axes(source.op.layout)[-1] == axis


def _reads(copied: Term, tree: _Tree, model: CostModel) -> float:
    """The number of times that each entry of a copy is read, over all iterations that share the copy."""
    if copied.axes <= tree.axes:
        return 0
    iterations = model.trips(tree.whole.open - copied.open)
    entries = model.elements(tree.whole.axes, tree.whole.open)
    return iterations * entries / max(model.elements(copied.axes, copied.open), 1)


def _copied(source: Term, tree: _Tree, model: CostModel) -> Term:
    """The value to copy for an operand: the operand itself, or the value that it is a chunk of.

    A chunk along a reduced axis becomes a slice of a copy of the whole value, if the value fits the cache.
    """
    if isinstance(source.op, Chunk) and source.op.axis in tree.axes:
        (whole,) = source.args
        if model.bytes(whole) <= model.machine.cache:
            return whole
    return source


def relayouts_in(schedule: Schedule, machine: Machine) -> dict[int, Relayout]:
    """By number of a reduction or stored term, the operands to copy for it, for a whole schedule."""
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
