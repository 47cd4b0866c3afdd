"""Contractions as source: an einsum whose letters are the axes' names.

For a vector times a matrix, XLA on CPU adds the matrix's rows to the result one after the other. In single
precision the error grows with their number: 4e-6 of the largest entry for 9,000 rows, 2e-4 for a million,
where a sum of the same products has 3e-7, as XLA adds it up in blocks (jaxlib 0.10). So a long one is made
of blocks, too, or of two rows instead of the vector: products of matrices are added up in blocks anyway.

Rows that lie in memory one after the other are added up in lanes: 100,000 terms with an error of 1e-6.

XLA copies a matrix whose contracted axes are no neighbours in memory, and adds up the rows of the copy. So
such axes are contracted one after the other: the last first, and the results are summed over the others. Of
ten sizes, each took 0.1 to 0.8 of the time.

A contraction over several axes that are neighbours is emitted over one: XLA moves the operands to where they
are such products, even if they are that as they lie (6 times as slow, and a copy of the matrix).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType

from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted, Lengths, dimension_text, length_text, transposed, tuple_text
from eqsat.backend.pieces import Pieces
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator
from eqsat.ir.ops import Dot

LONG = 1_024
"""The number of terms that are added one after the other without much loss: 1e-6 in single precision."""

VERY_LONG = 4_096
"""Where no blocks divide an axis: from here on rounding, 3e-6, counts more than that two rows are larger."""

LONG_ROW = 131_072
"""The number of terms that are added up in lanes without much loss: 1e-6 in single precision."""

BLOCK = 512
"""The length of the longest blocks of longer ones."""

SHORT = 64
"""Blocks of fewer terms would be slow."""

BLOCKS = Axis(-1, 2)
"""The dimension that an emitted contraction has besides axes: its blocks, or the two rows."""

COLUMNS = Axis(-2, 2)
"""That of an operand in which the columns of several are side by side."""


def contraction_text(
    op: Dot,
    left: Emitted,
    right: Emitted,
    dtypes: Sequence[str],
    chunked: Mapping[Axis, Pieces] | None = None,
    lengths: Lengths = MappingProxyType({}),
    *,
    part: int | None = None,
) -> Emitted:
    """The contraction of two values of those dtypes: axes of both, then the left's, then the right's.

    **Arguments:**

    - `chunked`: the pieces of the axes that there are loops over, where the rows of a matrix are added up one
      after the other; None where they are not.
    - `lengths`: as text, those that axes have here.
    - `part`: how many terms of the sum are added up at a time; None: all of them.
    """
    extra = _precision(op)
    if any(dtype != op.dtype for dtype in dtypes):
        extra += f", preferred_element_type={dtype_text(op.dtype)}"
    if chunked is not None and {op.dtype, *dtypes} == {"float32"}:
        for vector, matrix in ((left, right), (right, left)):
            if _multiplies(op, vector, matrix):
                found = _rounded_well(op, transposed(vector, matrix.order), matrix, chunked, lengths, extra)
                if found is not None:
                    return found
    if part is not None:
        left, right = (in_blocks(value, op.axes, part, lengths) for value in (left, right))
        wide = accumulator(op.dtype)
        if wide == op.dtype:
            return sum_of_blocks(_einsum(left, right, op.axes, extra))
        # The library rounds a sum once, so the parts are not rounded.
        extra = f"{_precision(op)}, preferred_element_type={dtype_text(wide)}"
        total = sum_of_blocks(_einsum(left, right, op.axes, extra))
        return Emitted(f"lax.convert_element_type({total.text}, {dtype_text(op.dtype)})", total.order)
    if chunked is not None:
        left, right = _over_one_axis(op, left, right, lengths)
    return _einsum(left, right, op.axes, extra)


def product_text(op: Dot, left: Emitted, right: Emitted) -> Emitted:
    """The product of two matrices of the op's dtype."""
    return _einsum(left, right, op.axes, _precision(op))


def _precision(op: Dot) -> str:
    return f', precision="{op.precision.lower()}"' if op.precision else ""


def block_length(pieces: Pieces) -> int | None:
    """How long blocks of an axis are: as long as rounding allows, a power of two if one divides it."""
    fitting = [length for length in range(SHORT, BLOCK + 1) if pieces.divisor % length == 0]
    return max(fitting, key=lambda length: (length & -length, length), default=None)


def in_blocks(value: Emitted, axes: Collection[Axis], block: int, lengths: Lengths) -> Emitted:
    """A value with neighbouring axes as two dimensions: the blocks, and the entries of a block.

    The second dimension bears the last of the axes.
    """
    place = min(map(value.order.index, axes))
    before, together, after = (
        value.order[:place],
        value.order[place : place + len(axes)],
        value.order[place + len(axes) :],
    )
    length = dimension_text(together, lengths)
    count = str(int(length) // block) if length.isdigit() else f"{length} // {block}"
    outside = [[length_text(axis, lengths) for axis in part] for part in (before, after)]
    shape = tuple_text([*outside[0], count, str(block), *outside[1]])
    return Emitted(f"jnp.reshape({value.text}, {shape})", (*before, BLOCKS, together[-1], *after))


def sum_of_blocks(value: Emitted) -> Emitted:
    text = f"lax.reduce_sum({value.text}, axes=({value.order.index(BLOCKS)},))"
    return Emitted(text, _without_blocks(value))


def _without_blocks(value: Emitted) -> tuple[Axis, ...]:
    return tuple(axis for axis in value.order if axis != BLOCKS)


def _multiplies(op: Dot, vector: Emitted, matrix: Emitted) -> bool:
    """Whether a matrix, or several, is multiplied by a vector, or by one each."""
    return bool(op.axes) and set(vector.order) < set(matrix.order)


def _adds_rows(op: Dot, vector: Emitted, matrix: Emitted) -> bool:
    """Whether each entry of a vector, or of several, is multiplied with a row of a matrix, or of its own.

    The rows may have several axes, neighbours in memory.
    """
    end = max(map(matrix.order.index, op.axes)) + 1
    rows = matrix.order[end - len(op.axes) : end]
    return set(rows) == op.axes and set(vector.order) == set(matrix.order[:end]) and end < len(matrix.order)


def _rounded_well(
    op: Dot,
    vector: Emitted,
    matrix: Emitted,
    chunked: Mapping[Axis, Pieces],
    lengths: Lengths,
    extra: str,
) -> Emitted | None:
    """The same as `_einsum`, its terms not added up one after the other; None if these are few enough."""

    def pieces_of(axes: Iterable[Axis]) -> Pieces:
        return Pieces.together(chunked[axis] if axis in lengths else Pieces.of(axis) for axis in axes)

    pieces = pieces_of(op.axes)
    adds_rows = _adds_rows(op, vector, matrix)
    if adds_rows and pieces.shortest > LONG and (block := block_length(pieces)):
        left, right = (in_blocks(value, op.axes, block, lengths) for value in (matrix, vector))
        return sum_of_blocks(_einsum(left, right, op.axes, extra))
    runs = [frozenset(run) for inside, run in groupby(matrix.order, op.axes.__contains__) if inside]
    inner = next((run for run in reversed(runs) if pieces_of(run).shortest >= SHORT), op.axes)
    if inner != op.axes:  # Each entry of the other axes is a block.
        product = contraction_text(replace(op, axes=inner), vector, matrix, [op.dtype] * 2, chunked, lengths)
        order = tuple(axis for axis in product.order if axis not in op.axes)
        places = tuple(place for place, axis in enumerate(product.order) if axis in op.axes)
        return Emitted(f"lax.reduce_sum({product.text}, axes={places})", order)
    # Of several axes that are no neighbours, XLA makes rows that it adds up.
    rows_are_added = adds_rows or len(runs) > 1
    if pieces.shortest <= (VERY_LONG if rows_are_added else LONG_ROW):
        return None
    rows = Emitted(f"jnp.stack([{vector.text}, jnp.zeros_like({vector.text})])", (BLOCKS, *vector.order))
    both = _einsum(*_over_one_axis(op, rows, matrix, lengths), op.axes, extra)
    return Emitted(f"{both.text}[{':, ' * both.order.index(BLOCKS)}0]", _without_blocks(both))


def _over_one_axis(op: Dot, left: Emitted, right: Emitted, lengths: Lengths) -> tuple[Emitted, Emitted]:
    """Two operands with all axes that they are multiplied over as one, if these are that as they lie."""
    if len(op.axes) < 2:
        return left, right
    if _multiplies(op, left, right):
        flat = _over_one_axis(op, right, transposed(left, right.order), lengths)
        return flat[1], flat[0]
    if _multiplies(op, right, left):
        right = transposed(right, left.order)
    together = tuple(axis for axis in left.order if axis in op.axes)
    if not all(_has_run(value, together) for value in (left, right)):
        return left, right
    return _flat(left, together, lengths), _flat(right, together, lengths)


def _has_run(value: Emitted, axes: Sequence[Axis]) -> bool:
    """Whether these axes are neighbours in memory, in this order."""
    place = value.order.index(axes[0])
    return value.order[place : place + len(axes)] == tuple(axes)


def _flat(value: Emitted, axes: tuple[Axis, ...], lengths: Lengths) -> Emitted:
    """A value with neighbouring axes as one dimension, which bears the last of them."""
    place = value.order.index(axes[0])
    before, after = value.order[:place], value.order[place + len(axes) :]
    outside = [[length_text(axis, lengths) for axis in part] for part in (before, after)]
    shape = tuple_text([*outside[0], dimension_text(axes, lengths), *outside[1]])
    return Emitted(f"jnp.reshape({value.text}, {shape})", (*before, axes[-1], *after))


def _einsum(left: Emitted, right: Emitted, contracted: Collection[Axis], extra: str) -> Emitted:
    letters: dict[Axis, str] = {}
    for axis in (*left.order, *right.order):
        if axis not in letters:
            spare = (chr(c) for c in (*range(97, 123), *range(65, 91)))
            wanted = axis.name if len(axis.name) == 1 and axis.name not in letters.values() else None
            letters[axis] = wanted or next(c for c in spare if c not in letters.values())
    batch = [axis for axis in left.order if axis in right.order and axis not in contracted]
    order = tuple(batch)
    order += tuple(axis for axis in left.order if axis not in contracted and axis not in batch)
    order += tuple(axis for axis in right.order if axis not in contracted and axis not in batch)
    spelled = ["".join(letters[axis] for axis in axes) for axes in (left.order, right.order, order)]
    equation = f"{spelled[0]},{spelled[1]}->{spelled[2]}"
    return Emitted(f'jnp.einsum("{equation}", {left.text}, {right.text}{extra})', order)
