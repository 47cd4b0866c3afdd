"""The inference of an op's result: its axes, dtype and open loops, from those of its operands."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)

Axes = frozenset[Axis]


def without(axes: Axes, axis: Axis, extra: Axis | None = None) -> Axes:
    """Returns `axes` without `axis`, and with `extra` unless that is None."""
    rest = axes - {axis}
    return rest if extra is None else rest | {extra}


def result_axes(op: Op, args: Sequence[Axes]) -> Axes:
    """Returns the axes of the op's result, given those of its operands."""
    match op:
        case Leaf(layout=layout):
            return frozenset(layout_axes(layout))
        case Const():
            return frozenset()
        case Iota(axis=axis):
            return frozenset({axis})
        case Delta(first=first, second=second):
            return frozenset({first, second})
        case Map():
            return frozenset().union(*args)
        case Reduce(axes=axes):
            return args[0] - axes
        case Dot(axes=axes):
            return (args[0] | args[1]) - axes
        case Select(axis=axis, out_axis=out_axis):
            return without(args[0], axis, out_axis)
        case Operation(spec=spec, axes=axes):
            rest = frozenset[Axis]().union(*args) - set(axes)
            return rest.union(op.core(spec.signature.result))
        case Rename(old=old, new=new):
            return without(args[0], old, new)
        case Opaque(call=call, result=result):
            return frozenset(layout_axes(call.out_layouts[result]))
        case Chunk() | Concat():
            return args[0]
        case Fold(axis=axis, monoid=Select(out_axis=out_axis)):
            return without(args[0], axis, out_axis)
        case Fold(monoid=Opaque() | Operation() as call):
            return result_axes(call, args)
        case Fold():
            return frozenset[Axis]().union(*args)


def result_dtype(op: Op, args: Sequence[str]) -> str:
    """Returns the dtype of the op's result, given those of its operands."""
    match op:
        case Leaf() | Const() | Iota() | Map() | Reduce() | Dot() | Select() | Operation():
            return op.dtype
        case Delta():
            return "bool"
        case Opaque(call=call, result=result):
            return call.out_dtypes[result]
        case Fold(monoid=Select(dtype=dtype)):
            return dtype
        case Fold(monoid=Opaque() | Operation() as call):
            return result_dtype(call, args)
        case Rename() | Chunk() | Concat():
            return args[0]
        case Fold():
            return args[-1]


def result_open(op: Op, args: Sequence[Axes]) -> Axes:
    """Returns the axes of the loops that the op's result varies with.

    A `Chunk` opens the loop over its axis, and a `Concat` or `Fold` closes it.

    **Arguments:**

    - `args`: the open loops of each operand.
    """
    opened: Axes = frozenset().union(*args)
    match op:
        case Chunk(axis=axis):
            return opened | {axis}
        case Concat(axis=axis) | Fold(axis=axis):
            return opened - {axis}
        case _:
            return opened
