"""Reductions of stored values as source, in the forms that are fastest with XLA on CPU.

A reduction takes 0.3 to 0.9 ns for each number, one after the other. A product with a vector of ones takes
0.1 ns. Maxima along the columns of a block take 0.2 ns, since XLA handles many columns at once, so the
maximum of a long row is computed as that of a block (jaxlib 0.10, two cores).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.contractions import block_length, contraction_text, in_blocks, sum_of_blocks
from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted, Lengths, length_text, tuple_text
from eqsat.backend.pieces import Pieces
from eqsat.backend.reduction_steps import parts, reduced, reduced_in_steps
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Dot, Reduce
from eqsat.ir.term import Term

FLOATS = frozenset({"float32", "float64"})

LEAST_ROWS = 8
"""The factor by which the operand must exceed the stored vector of ones, or the maxima of columns."""

LONG_ROW = 8_192
"""Longer rows are summed in blocks. Summed one after the other, they would be off by 1e-6."""

WIDTHS = range(128, 15, -1)
"""The numbers of columns that a block may have."""


def reduction_text(
    op: Reduce,
    operand: Term,
    value: Emitted,
    codegen: CodegenOptions,
    chunked: Mapping[Axis, Pieces],
    lengths: Lengths,
) -> Emitted:
    """The reduction of an operand, emitted as `value`.

    **Arguments:**

    - `codegen`: the forms that are fast and round well where it runs.
    - `chunked`: the pieces of the axes that there are loops over.
    - `lengths`: as text, those that axes have here.
    """
    pieces = {axis: chunked[axis] if axis in operand.open else Pieces.of(axis) for axis in operand.axes}
    divided = parts(value, op.axes, itemsize(op.dtype), codegen, pieces, lengths)
    if divided is not None:
        return reduced_in_steps(op.kind, op.axes, divided)
    axis = None if codegen.fused_reduction is None else _longest(op, operand, codegen.fused_reduction, pieces)
    if axis is None:
        return reduced(op.kind, op.axes, value)
    rows = math.prod(pieces[other].shortest for other in operand.axes - {axis})
    at_an_end = axis in (value.order[0], value.order[-1])  # or the product would copy the operand
    if op.kind in ("sum", "mean") and rows >= LEAST_ROWS and at_an_end:
        return _multiplied(op, operand, value, axis, chunked, lengths)
    width = _width(pieces[axis])
    if op.kind in ("max", "min") and width and value.order[-1] == axis:
        rest = [length_text(other, lengths) for other in value.order[:-1]]
        shape = tuple_text([*rest, f"{length_text(axis, lengths)} // {width}", str(width)])
        block = f"jnp.reshape({value.text}, {shape})"
        last = len(value.order) - 1
        # XLA would make one reduction of both.
        columns = f"lax.optimization_barrier(lax.reduce_{op.kind}({block}, axes=({last},)))"
        return reduced(op.kind, op.axes, Emitted(columns, value.order))
    return reduced(op.kind, op.axes, value)


def _longest(op: Reduce, operand: Term, fused: int, pieces: Mapping[Axis, Pieces]) -> Axis | None:
    """The longest axis of a reduction that stores its operand."""
    if op.dtype not in FLOATS or operand.dtype != op.dtype:
        return None
    axis = max(op.axes, key=lambda axis: (pieces[axis].shortest, axis.id))
    return axis if pieces[axis].shortest > fused else None


def _multiplied(
    op: Reduce, operand: Term, value: Emitted, axis: Axis, chunked: Mapping[Axis, Pieces], lengths: Lengths
) -> Emitted:
    """A sum or a mean, by a product with ones along an axis."""
    length = length_text(axis, lengths)
    pieces = chunked[axis] if axis in lengths else Pieces.of(axis)
    dot = Dot(frozenset({axis}), op.dtype, "HIGHEST")
    block = block_length(pieces) if op.dtype == "float32" and pieces.shortest >= LONG_ROW else None
    if block and value.order[-1] == axis:
        ones = Emitted(f"jnp.ones({block}, {dtype_text(op.dtype)})", (axis,))
        blocks = in_blocks(value, {axis}, block, lengths)
        total = sum_of_blocks(contraction_text(dot, blocks, ones, [operand.dtype, op.dtype]))
    else:
        ones = Emitted(f"jnp.ones({length}, {dtype_text(op.dtype)})", (axis,))
        total = contraction_text(dot, value, ones, [operand.dtype, op.dtype], chunked, lengths)
    if op.axes != dot.axes:
        total = reduced(op.kind, op.axes - dot.axes, total)
    if op.kind == "mean":
        total = Emitted(f"{total.text} / {length}", total.order)
    return total


def _width(pieces: Pieces) -> int | None:
    """The number of columns of a row's block: enough to fill registers, if there are enough rows."""
    fitting = (width for width in WIDTHS if pieces.divisor % width == 0)
    widths = [width for width in fitting if pieces.shortest >= LEAST_ROWS * width]
    return max(widths, key=lambda width: (width & -width, width), default=None)
