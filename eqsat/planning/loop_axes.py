"""The axes of a program that may be looped over: which of them, and in which order they are considered."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from eqsat.engine.storage_model import overwrites, solves_batch
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Call, Map, Opaque, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term
from eqsat.ir.tiled_values import tile_axes, tiled_values, with_tiles
from eqsat.planning.joined_arrays import joined_axes
from eqsat.targets.machine import Machine

SPLIT_AXES = (2, 4)
"""The number of axes that may be looped over, those of the largest terms first; the second if nothing fits.

With the larger number, chunks are also split along further axes.
"""

PARTS = frozenset({"slice", "pad"})
"""The primitives that take parts of arrays, or make arrays of parts."""

MANY = 64
"""An axis that is so long can be split finely enough for most budgets, and so can several axes together."""

LARGEST = 16
"""Terms of less than one such part of the largest one are not among the largest: a choice, not measured."""


def computed(program: Program, known: bool = False) -> Iterator[tuple[Term, frozenset[Axis]]]:
    """The terms that a program computes, each with the axes along which a loop around it makes it smaller.

    Inputs that a library's routine copies are included. So are terms inside control flow, with the axes that
    pass through the call.

    **Arguments:**

    - `known`: whether those in its equalities are, too, which it may compute in place of others.
    """
    seen: set[Call] = set()
    for term in program.known() if known else program.reachable():
        if term.args:
            yield term, term.axes
        copies = overwrites(term.op) or solves_batch(term.op, term.args)
        if copies and not term.args[0].args:
            yield term.args[0], term.args[0].axes  # The input is copied.
        if isinstance(term.op, Opaque) and term.op.call not in seen:
            seen.add(term.op.call)
            for body in term.op.call.bodies:
                for inside, axes in computed(body.program):
                    yield inside, axes & term.op.call.cut


def _takes_part(term: Term) -> bool:
    return isinstance(term.op, Opaque) and term.op.call.primitive.name in PARTS


def large_axes(program: Program, threshold: float) -> tuple[Axis, ...]:
    """The axes of terms over `threshold` bytes, those of the largest terms first.

    An axis is weighted by the sum of its terms' squared sizes, so that one large value outweighs many small
    ones. Values that only slices are taken of do not count if the slices are known to be computed otherwise.
    Axes of tiles come first: only they pass through window operations. Then come those that pass through the
    largest terms where others do not, and those that all of the terms have. From the third on, an axis of
    terms that have none of those before comes first.
    """
    sliced = {
        whole.number: other
        for whole, other in program.equalities
        if isinstance(other.op, Map) and _takes_part(whole)
    }
    if sliced:
        program = with_inputs(
            replace(program, equalities=tuple(tiled_values(program))), program.inputs, sliced
        )
    weight = _weights(program, threshold)
    for axis, other in _weights(with_tiles(program), threshold).items():
        weight[axis] = max(weight.get(axis, 0), other)
    first = tile_axes(program)
    everywhere = {axis for axis in _shared_axes(program, threshold) if axis.size >= MANY}
    passing = _enough(_passing_axes(program, threshold))

    def preference(axis: Axis) -> tuple[float, ...]:
        early = axis in first, axis in passing, axis in everywhere
        return (*(not each for each in early), -weight[axis] * math.log(axis.size + 1), axis.id)

    ranked = sorted(weight, key=preference)
    return tuple(_covering(program, threshold, ranked))


def _covering(program: Program, threshold: float, ranked: Sequence[Axis]) -> list[Axis]:
    """The axes, with those that cover further terms next to the first few.

    Parts of a program may have nothing in common, as the restarts of k-means with 4, 8 and 16 centres do.
    Each of them needs an axis of its own, however small it is beside the others. An axis that a call needs
    whole makes no chunks of its results. What has another name for an axis of a value is no part: a loop
    makes chunks of the value, whatever it is called.
    """
    chosen = list(ranked[: SPLIT_AXES[0]])
    left = [axis for axis in ranked if axis not in chosen]
    large = [
        (term.bytes, axes - term.op.call.whole if isinstance(term.op, Opaque) else axes)
        for term, axes in computed(program)
        if term.bytes > threshold and not isinstance(term.op, Rename)
    ]
    while uncovered := [(size, axes) for size, axes in large if axes and axes.isdisjoint(chosen)]:
        covered = {axis: sum(size**2 for size, axes in uncovered if axis in axes) for axis in left}
        best = max(left, key=lambda axis: covered[axis], default=None)
        if best is None or not covered[best]:
            break
        chosen.append(best)
        left.remove(best)
    return chosen + left


def _shared_axes(program: Program, threshold: float) -> frozenset[Axis]:
    """The axes that every term over so many bytes has: one loop makes all of them smaller."""
    found = [axes for term, axes in computed(program) if term.bytes > threshold]
    return frozenset[Axis].intersection(*found) if found else frozenset()


def _passing_axes(program: Program, threshold: float) -> frozenset[Axis]:
    """The axes that no call among the largest terms needs whole, and all have that need others so.

    A chunk along another axis would take all that such a call is given.
    """
    largest = max((term.bytes for term, axes in computed(program) if axes), default=0)
    threshold = max(threshold, largest / LARGEST)
    terms = [term for term, _ in computed(program) if term.bytes > threshold]
    calls = [(term.op.call.whole, term.axes) for term in terms if isinstance(term.op, Opaque)]
    whole = frozenset[Axis]().union(*(needed for needed, _ in calls))
    shared = [axes for needed, axes in calls if needed]
    return frozenset[Axis].intersection(*shared) - whole if shared else whole


def _enough(axes: Collection[Axis]) -> frozenset[Axis]:
    """Of some axes, those that can be split finely enough, or else as few as can be together."""
    if long := frozenset(axis for axis in axes if axis.size >= MANY):
        return long
    chosen: list[Axis] = []
    for axis in sorted(axes, key=lambda axis: (-axis.size, axis.id)):
        chosen.append(axis)
        if math.prod(one.size for one in chosen) >= MANY:
            return frozenset(chosen)
    return frozenset()


def _weights(program: Program, threshold: float) -> dict[Axis, int]:
    weight: dict[Axis, int] = {}
    for term, axes in computed(program):
        if term.bytes > threshold:
            for axis in axes:
                weight[axis] = weight.get(axis, 0) + term.bytes**2
    # A chunk of a concatenation is computed from chunks of its operands.
    for joined, axis in joined_axes(program):
        if joined in weight and axis in weight:
            weight[joined] = max(weight[joined], weight[axis])
    return weight


def long_sums(program: Program, machine: Machine) -> Iterator[Axis]:
    """The axes of reductions that are too long to compute the program's largest values on the fly.

    In chunks of these axes they can, whatever other axes are looped over.
    """
    terms = [term for term in program.reachable() if term.args]
    largest = max((term.bytes for term in terms), default=0)
    for term in terms:
        if isinstance(term.op, Reduce) and isinstance(term.args[0].op, Map) and term.args[0].bytes == largest:
            yield from sorted(axis for axis in term.op.axes if axis.size > machine.fused_reduction)
