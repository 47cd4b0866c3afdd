"""Which functions of what a scan stacks every iteration can compute of its own entry, and which add up."""

from __future__ import annotations

import math
from collections.abc import Iterable

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.comparing import INDICES, SELECTING_CALLS, SELECTING_OPERATIONS
from eqsat.ir.device_terms import COLLECTIVES
from eqsat.ir.dtypes import accumulator, is_inexact
from eqsat.ir.ops import Dot, Map, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.reduction_monoids import MERGES
from eqsat.ir.sliced_calls import partial_call, sliced_call
from eqsat.ir.term import Term

ROUNDED = frozenset({"sum", "prod"})
"""The kinds that round, in an order that nobody has promised."""

LOCATED = frozenset({"argmax", "argmin"})
"""The kinds of which an iteration carries the best entry so far, and where it is."""

ACCUMULATED = {"scatter-add": "sum", "scatter-mul": "prod", "scatter-max": "max", "scatter-min": "min"}
"""By primitive that accumulates in any order, the reduction that it does where its updates meet."""

SHORT = 16
"""So long an axis may be summed over inside, as that of coordinates: a choice, not measured."""

ROWS = 16
"""From so many rows on, a product takes longer than to read its matrix."""


def adds_up(term: Term, axis: Axis, stack: Term, exact: bool, wide: bool = False) -> bool:
    """Whether a term is a reduction over the iterations that can be done one by one.

    **Arguments:**

    - `wide`: whether a product may be larger than an entry: each iteration reads and writes all of it.
    """
    match term.op:
        case Reduce(kind=kind, axes=axes, dtype=dtype):
            rounds = kind in ROUNDED and is_inexact(dtype)
            return axis in axes and kind in MERGES and not (rounds and exact)
        case Dot(axes=axes, dtype=dtype):
            fits = wide or _size(term.axes) <= _size(_entry_axes(stack))
            inside = fits and axes - {axis} <= _own_axes(stack)
            # Products of narrow floats would be rounded before they are added up.
            wide = accumulator(dtype) == dtype and all(arg.dtype == dtype for arg in term.args)
            return axis in axes and inside and wide and not exact
        case Select(kind=kind, axis=along):
            return axis == along and kind in LOCATED
        case Opaque(call=call):
            merged = ACCUMULATED.get(call.primitive.name)
            if merged is None or (exact and merged in ROUNDED and is_inexact(term.dtype)):
                return False
            return partial_call(call, axis, [arg.dtype for arg in term.args]) is not None
    return False


def goes_inside(term: Term, axis: Axis, stack: Term, exact: bool, wide: bool = False) -> bool:
    """Whether every iteration can compute its slice of a term by itself.

    A sum over an axis that passes through the scan would keep loops over its chunks from being outside. A
    call that needs it whole leaves no such loops: outside, it would need all iterations.

    **Arguments:**

    - `wide`: whether products and calls may take longer than for all iterations at once.
    """
    op = term.op
    if isinstance(op, Map):
        return True
    if isinstance(op, Rename):
        return axis not in (op.old, op.new)
    reduced = _reduced(term)
    others = reduced - _own_axes(stack)
    if axis in reduced or (others and not others <= _made_axes(term, axis, stack)):
        return False
    match op:
        case Dot():
            return not exact and (wide or _is_as_fast(term, axis, stack))
        case Reduce(kind=kind, dtype=dtype):
            return not (exact and kind in ROUNDED and is_inexact(dtype))
        case Select():
            return True
        case Operation(spec=spec):
            return not exact or spec.name in SELECTING_OPERATIONS
        case Opaque(call=call):
            kept = not exact or call.primitive.name in SELECTING_CALLS
            sliced = sliced_call(call, axis, [arg.dtype for arg in term.args])
            fast = _is_as_fast(term, axis, stack) or (wide and call.primitive.name not in COLLECTIVES)
            return kept and sliced is not None and fast
    return False


def _reduced(term: Term) -> frozenset[Axis]:
    """The axes that an op reduces or works along, and may be given by chunks, one after another."""
    match term.op:
        case Reduce(axes=axes) | Dot(axes=axes):
            return axes
        case Select(axis=axis):
            return frozenset({axis})
        case Operation(axes=core):
            return frozenset(core)
        case Opaque(call=call):
            return call.sums | call.accumulates
    return frozenset()


def _made_axes(term: Term, axis: Axis, stack: Term) -> frozenset[Axis]:
    """The axes that operations on entries have made, such as that of a window of each, or another name."""
    found: set[Axis] = set()
    own = _own_axes(stack)
    waiting, seen = list(term.args), {term.number}
    while waiting:
        at = waiting.pop()
        if at.number in seen or axis not in at.axes:
            continue
        seen.add(at.number)
        if isinstance(at.op, Opaque) and at.op.call.bodies:
            continue
        if isinstance(at.op, Opaque | Select | Operation):
            found |= at.axes.difference(*(arg.axes for arg in at.args if axis in arg.axes))
        if isinstance(at.op, Rename) and at.op.old in own:
            found.add(at.op.new)
        waiting += at.args
    return frozenset(found) - stack.axes


def _is_as_fast(term: Term, axis: Axis, stack: Term) -> bool:
    """Whether a product or a call takes about as long one iteration at a time.

    With few rows, a product takes the time that it takes to read a matrix which all iterations share. Devices
    that talk in every iteration wait for each other.
    """
    entry = _entry_axes(stack)
    if isinstance(term.op, Dot) and _size(entry - term.op.axes) >= ROWS:
        return True
    name = term.op.call.primitive.name if isinstance(term.op, Opaque) else None
    if name in INDICES or name in COLLECTIVES:
        return name in INDICES
    shared = [arg for arg in term.args if axis not in arg.axes]
    return all(_size(arg.axes) <= _size(entry) for arg in shared)


def _size(axes: Iterable[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def _entry_axes(stack: Term) -> frozenset[Axis]:
    """The axes of what an iteration adds to a stacked result."""
    assert isinstance(stack.op, Opaque)
    return frozenset(layout_axes(stack.op.call.out_layouts[stack.op.result][1:]))


def _own_axes(stack: Term) -> frozenset[Axis]:
    """The axes of a stacked result that every iteration needs whole, or whose chunks are not worth a loop."""
    assert isinstance(stack.op, Opaque)
    passing = stack.op.call.passing
    return frozenset(axis for axis in stack.axes if axis not in passing or axis.size <= SHORT)
