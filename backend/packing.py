"""Matrix products for which the library packs little.

YNNPACK packs some columns of the right operand. It only takes left operands whose rows are summed over. Eigen
takes all other products and packs both operands whole. So an operand with summed rows comes first; if neither
is one, a transposed copy of the smaller operand does. If YNNPACK would still pack too much, a loop takes
fewer columns at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from eqsat.backend.layout import Emitted, Lengths, transposed
from eqsat.backend.layout_assignment import Length
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Dot
from eqsat.targets.cpu import CPU

WORK = 1 << 14
"""The number of multiplications and additions in the few microseconds that an iteration takes by itself."""

BY_COLUMNS = "by_columns"
"""The name of the function in the emitted program."""

FUNCTION = f"""def {BY_COLUMNS}(product, left, right, axis, place, width):
    # Some columns of the right operand at a time: those of the result along dimension `place`.
    width = min(width, right.shape[axis])

    def iteration(carry, _):
        start, result = carry
        columns = product(left, lax.dynamic_slice_in_dim(right, start, width, axis))
        return (start + width, lax.dynamic_update_slice_in_dim(result, columns, start, place)), None

    result = jax.eval_shape(product, left, right)
    iterations = -(-right.shape[axis] // width)
    (_, result), _ = lax.scan(iteration, (0, jnp.zeros(result.shape, result.dtype)), length=iterations)
    return result
"""


class Product(Protocol):
    """The text of a product of two operands whose axes have these lengths, as text."""

    def __call__(self, left: Emitted, right: Emitted, *, lengths: Lengths) -> Emitted: ...


def packing_little(
    op: Dot,
    left: Emitted,
    right: Emitted,
    product: Product,
    chunks: Mapping[Axis, int],
    panel: int,
    lengths: Lengths,
) -> Emitted:
    """The text of a product that packs at most `panel` bytes, if it is a product of two matrices.

    **Arguments:**

    - `chunks`: the chunk lengths of axes that are looped over; `lengths`: those that axes have here.
    """

    def length(axis: Axis) -> int:
        return chunks.get(axis, axis.size)

    rows, columns = (_columns(op, operand, length) for operand in (left, right))
    if set(left.order) & set(right.order) != op.axes or min(rows, columns) == 1:
        return product(left, right, lengths=lengths)
    small, large = (left, right) if rows <= columns else (right, left)
    if _sums_rows(op, large):
        left, right = large, small
    elif _sums_rows(op, small):
        left, right = small, large
    else:
        free = [axis for axis in small.order if axis not in op.axes]
        copied = transposed(small, (*free, *(axis for axis in large.order if axis in op.axes)))
        # Without a barrier, XLA makes the copy a part of the product again.
        left, right = Emitted(f"lax.optimization_barrier({copied.text})", copied.order), large
    depth = math.prod(map(length, op.axes))
    fitting = panel // (depth * itemsize(op.dtype)) // CPU.panel_tile * CPU.panel_tile
    fitting = max(fitting, CPU.panel_tile, WORK // (depth * _columns(op, left, length)))
    columns = _columns(op, right, length)
    if fitting >= min(columns, CPU.panel_columns):
        return product(left, right, lengths=lengths)
    axis = max((axis for axis in right.order if axis not in op.axes), key=length)
    width = max(fitting * length(axis) // columns, 1)
    return _by_columns(left, right, axis, width, product, lengths)


def _by_columns(
    left: Emitted, right: Emitted, axis: Axis, width: int, product: Product, lengths: Lengths
) -> Emitted:
    inside = {**lengths, axis: f"columns.shape[{right.order.index(axis)}]"}
    part = product(Emitted("rows", left.order), Emitted("columns", right.order), lengths=inside)
    dimensions = f"{right.order.index(axis)}, {part.order.index(axis)}, {width}"
    text = f"{BY_COLUMNS}(lambda rows, columns: {part.text}, {left.text}, {right.text}, {dimensions})"
    return Emitted(text, part.order)


def _sums_rows(op: Dot, operand: Emitted) -> bool:
    return set(operand.order[-len(op.axes) :]) == op.axes


def _columns(op: Dot, operand: Emitted, length: Length) -> int:
    return math.prod(length(axis) for axis in operand.order if axis not in op.axes)
