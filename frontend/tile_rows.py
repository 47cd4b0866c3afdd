"""Rows of what computes each row by itself, moves rows, or takes them from known places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.tile_windows import Misaligned, Need, Wanted, Window, rule
from eqsat.ir.elementwise import ELEMENTWISE

NEARLY_WHOLE = 0.2
"""By how much tiles of rows at known places may begin off a whole number of rows apart."""


# Equations for which rows are one as the other.


@rule(*(ELEMENTWISE.keys() - {"convert"}), "convert_element_type", "copy", "stop_gradient", "square")
def _elementwise(wanted: Wanted) -> Need | None:
    # Operands are of one shape, or scalars.
    return wanted.same()


@rule("reduce_precision", "integer_pow", "clamp", "select_n", "is_finite", "erf_inv", "copy_p")
def _like_elementwise(wanted: Wanted) -> Need | None:
    return wanted.same()


@rule("broadcast_in_dim")
def _broadcast(wanted: Wanted) -> Need | None:
    places = wanted.params["broadcast_dimensions"]
    dimensions = {0: places.index(wanted.row)} if wanted.row in places else {}
    return wanted.along(dimensions, shape=wanted.resized(wanted.params["shape"]))


@rule("transpose")
def _transpose(wanted: Wanted) -> Need | None:
    return wanted.along({0: wanted.params["permutation"][wanted.row]})


@rule("reshape", "squeeze", "expand_dims")
def _reshape(wanted: Wanted) -> Need | None:
    """Rows stay a dimension, or several entries of each become rows, as where an image is enlarged."""
    if wanted.params.get("dimensions") is not None and wanted.equation.name == "reshape":
        return None
    (old,) = wanted.shapes
    window, row, rows = wanted.window, wanted.row, wanted.shape[wanted.row]
    before = math.prod(wanted.shape[:row])
    for dimension, size in enumerate(old):
        if size > 1 and math.prod(old[:dimension]) == before and rows % size == 0:
            break
    else:
        return None
    each = rows // size  # rows of the result for one of the operand
    behind = math.prod(wanted.shape[row + 1 :])
    if math.prod(old[dimension + 1 :]) != each * behind:
        return None
    if window.stride % each:
        raise Misaligned
    start, last = window.start // each, (window.start + window.length - 1) // each
    length = last - start + 1
    shape = (*wanted.shape[:row], length * each, *wanted.shape[row + 1 :])
    first = window.start - start * each

    def compute(operands: Sequence[Any], _: Any) -> Any:
        return lax.slice_in_dim(jnp.reshape(operands[0], shape), first, first + window.length, axis=row)

    return Need((Window(dimension, window.stride // each, start, length),), compute)


@rule("concatenate")
def _concatenate(wanted: Wanted) -> Need | None:
    return None if wanted.params["dimension"] == wanted.row else wanted.same()


@rule("stack")
def _stack(wanted: Wanted) -> Need | None:
    axis = wanted.params["axis"]
    if axis == wanted.row:
        return None
    dimension = wanted.row - (wanted.row > axis)
    return wanted.along(dict.fromkeys(range(len(wanted.shapes)), dimension))


@rule("tile")
def _tile(wanted: Wanted) -> Need | None:
    return wanted.same() if wanted.params["reps"][wanted.row] == 1 else None


@rule("rev")
def _rev(wanted: Wanted) -> Need | None:
    return None if wanted.row in wanted.params["dimensions"] else wanted.same()


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(wanted: Wanted) -> Need | None:
    return None if wanted.params["axis"] == wanted.row else wanted.same()


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin")
def _reduction(wanted: Wanted) -> Need | None:
    kept = [d for d in range(len(wanted.shapes[0])) if d not in wanted.params["axes"]]
    return wanted.along({0: kept[wanted.row]})


@rule("dot_general")
def _product(wanted: Wanted) -> Need | None:
    (left_sums, right_sums), (left_batch, right_batch) = wanted.params["dimension_numbers"]
    ranks = [len(shape) for shape in wanted.shapes]
    left = [d for d in range(ranks[0]) if d not in (*left_sums, *left_batch)]
    right = [d for d in range(ranks[1]) if d not in (*right_sums, *right_batch)]
    row = wanted.row
    if row < len(left_batch):
        return wanted.along({0: left_batch[row], 1: right_batch[row]})
    row -= len(left_batch)
    return wanted.along({0: left[row]} if row < len(left) else {1: right[row - len(left)]})


# Equations that move rows.


@rule("slice")
def _slice(wanted: Wanted) -> Need | None:
    window, row = wanted.window, wanted.row
    starts, limits = list(wanted.params["start_indices"]), list(wanted.params["limit_indices"])
    strides = list(wanted.params["strides"] or [1] * len(starts))
    step, length = strides[row], (window.length - 1) * strides[row] + 1
    first = Window(row, window.stride * step, window.start * step + starts[row], length)
    starts[row], limits[row] = 0, length

    def compute(operands: Sequence[Any], _: Any) -> Any:
        return lax.slice(operands[0], starts, limits, strides)

    return Need((first,), compute)


@rule("pad")
def _pad(wanted: Wanted) -> Need | None:
    low, _, interior = wanted.params["padding_config"][wanted.row]
    if interior:
        return None
    config = tuple(
        (0, 0, 0) if d == wanted.row else one for d, one in enumerate(wanted.params["padding_config"])
    )
    window = replace(wanted.window, start=wanted.window.start - low)
    return Need(
        (window, None),
        lambda operands, _: lax.pad(operands[0], operands[1], config),
        lambda operands: operands[1],
    )


@rule("gather")
def _gather(wanted: Wanted) -> Need | None:
    """Rows at places that are known, as those of a resized image; or rows of what is taken elsewhere."""
    numbers, sizes = wanted.params["dimension_numbers"], wanted.params["slice_sizes"]
    rank = len(wanted.shapes[0])
    if numbers.operand_batching_dims:
        return None
    if wanted.row in numbers.offset_dims:
        kept = [d for d in range(rank) if d not in numbers.collapsed_slice_dims]
        dimension = kept[numbers.offset_dims.index(wanted.row)]
        if sizes[dimension] != wanted.shapes[0][dimension] or dimension in numbers.start_index_map:
            return None
        length = wanted.window.length
        changed = tuple(length if d == dimension else size for d, size in enumerate(sizes))
        need = wanted.along({0: dimension}, slice_sizes=changed)
        return replace(need, windows=(need.windows[0], None))
    one = len(numbers.start_index_map) == 1 and numbers.collapsed_slice_dims == numbers.start_index_map
    if not one or 1 not in wanted.constants or len(wanted.shapes[1]) != 2:
        return None
    (dimension,) = numbers.start_index_map
    full = all(sizes[d] == wanted.shapes[0][d] for d in range(rank) if d != dimension)
    if not full or wanted.row != dimension:
        return None
    return _rows_at(wanted, np.asarray(wanted.constants[1])[:, 0].astype(np.int64))


def _rows_at(wanted: Wanted, places: Any) -> Need | None:
    """Rows at known places: the fewest that hold those of any tile, and among them those of each."""
    window = wanted.window
    rows = np.arange(wanted.tiles)[:, None] * window.stride + window.start + np.arange(window.length)
    inside = (rows >= 0) & (rows < len(places))
    at = np.clip(places, 0, wanted.shapes[0][wanted.row] - 1)[np.clip(rows, 0, len(places) - 1)]
    least = np.where(inside, at, np.iinfo(np.int64).max).min(1)
    most = np.where(inside, at, -1).max(1)
    used = np.flatnonzero(inside.any(1))
    if len(used) < 2:
        return None
    slope = float(least[used[-1]] - least[used[0]]) / float(used[-1] - used[0])
    stride = round(slope)
    if abs(slope - stride) > NEARLY_WHOLE:
        raise Misaligned
    start = int((least[used] - stride * used).min())
    length = int((most[used] - stride * used).max()) - start + 1
    if stride < 1 or length > 2 * window.length + 2:
        return None
    among = np.clip(at - (stride * np.arange(wanted.tiles)[:, None] + start), 0, length - 1).astype(np.int32)
    known = np.where(inside, among, -1)
    pattern = known.max(0)
    constant = bool(np.all((known == pattern) | ~inside))

    def compute(operands: Sequence[Any], tile: Any) -> Any:
        here = jnp.maximum(pattern, 0) if constant else jnp.asarray(among)[tile]
        return jnp.take(operands[0], here, axis=wanted.row, mode="clip")

    return Need((Window(wanted.row, stride, start, length), None), compute)
