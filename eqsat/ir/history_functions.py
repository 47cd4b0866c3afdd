"""Which functions of what a scan stacks every iteration can compute of its own entry, and which add up."""

from __future__ import annotations

import math
from collections.abc import Iterable

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator, is_inexact
from eqsat.ir.ops import Dot, Map, Opaque, Reduce, Rename
from eqsat.ir.reduction_monoids import MERGES
from eqsat.ir.term import Term

ROUNDED = frozenset({"sum", "prod"})
"""The kinds that round, in an order that nobody has promised."""

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
            fits = wide or _size(term.axes) <= _size(stack.axes - {axis})
            inside = fits and axes - {axis} <= _own_axes(stack)
            # Products of narrow floats would be rounded before they are added up.
            wide = accumulator(dtype) == dtype and all(arg.dtype == dtype for arg in term.args)
            return axis in axes and inside and wide and not exact
    return False


def goes_inside(term: Term, axis: Axis, stack: Term, exact: bool) -> bool:
    """Whether every iteration can compute its slice of a term by itself.

    A sum over an axis that passes through the scan would keep loops over its chunks from being outside.
    """
    match term.op:
        case Map():
            return True
        case Rename(old=old, new=new):
            return axis not in (old, new)
        case Dot(axes=axes):
            inside = axes <= _own_axes(stack) - {axis}
            return inside and _is_as_fast(term, axis, stack) and not exact
        case Reduce(kind=kind, axes=axes, dtype=dtype):
            rounds = kind in ROUNDED and is_inexact(dtype)
            return axes <= _own_axes(stack) - {axis} and not (rounds and exact)
    return False


def _is_as_fast(product: Term, axis: Axis, stack: Term) -> bool:
    """Whether a product takes about as long one iteration at a time.

    With few rows, it takes the time that it takes to read a matrix which all iterations share.
    """
    assert isinstance(product.op, Dot)
    entry = stack.axes - {axis}
    shared = [arg for arg in product.args if axis not in arg.axes]
    enough = _size(entry - product.op.axes) >= ROWS
    return enough or all(_size(arg.axes) <= _size(entry) for arg in shared)


def _size(axes: Iterable[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def _own_axes(stack: Term) -> frozenset[Axis]:
    """The axes of a stacked result that every iteration needs whole, or whose chunks are not worth a loop."""
    assert isinstance(stack.op, Opaque)
    passing = stack.op.call.passing
    return frozenset(axis for axis in stack.axes if axis not in passing or axis.size <= SHORT)
