"""Rows of what computes each row by itself, or moves rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from eqsat.frontend.tile_windows import ROW_BY_ROW, Misaligned, Need, Wanted, Window, rows_of_part, rule

# Equations for which rows are one as the other.


@rule(*ROW_BY_ROW)
def _elementwise(wanted: Wanted) -> Need | None:
    # Operands are of one shape, or scalars.
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
    """Rows stay a dimension, or entries of each become rows, as where an image is enlarged, or back."""
    if wanted.params.get("dimensions") is not None and wanted.equation.name == "reshape":
        return None
    (old,) = wanted.shapes
    window, row, rows = wanted.window, wanted.row, wanted.shape[wanted.row]
    before, behind = math.prod(wanted.shape[:row]), math.prod(wanted.shape[row + 1 :])
    places = [d for d, size in enumerate(old) if size > 1 and math.prod(old[:d]) == before]
    if not places or 0 in old:
        return None
    (dimension,) = places
    size, rest = old[dimension], math.prod(old[dimension + 1 :])
    if size % rows == 0 and behind == rest * (each := size // rows):  # `each` rows become one
        start, length, period = (each * one for one in (window.start, window.length, window.period))
        more = Window(dimension, window.stride * each, start, length, window.end, period)
        shape = wanted.resized(wanted.shape)
        return Need((more,), lambda operands, _: jnp.reshape(operands[0], shape))
    if rows % size or rest != behind * (each := rows // size):
        return None
    if window.stride % each:
        raise Misaligned
    start, last = window.start // each, (window.start + window.length - 1) // each
    length, first = last - start + 1, window.start - start * each
    shape = (*wanted.shape[:row], length * each, *wanted.shape[row + 1 :])

    def compute(operands: Sequence[Any], _: Any) -> Any:
        return lax.slice_in_dim(jnp.reshape(operands[0], shape), first, first + window.length, axis=row)

    return Need((Window(dimension, window.stride // each, start, length, window.end),), compute)


@rule("concatenate")
def _concatenate(wanted: Wanted) -> Need | None:
    """Of an operand with few rows, each tile needs all: they may be of the other end of an array.

    jnp.roll(x, 1)  =  concatenate(x[n - 1 :], x[: n - 1])

    If these are computed from rows near to their place, as at the edges of `jnp.gradient`, only tiles that
    have them need them, and others have other rows in their place.
    """
    row, window = wanted.row, wanted.window
    if (dimension := wanted.params["dimension"]) != row:
        # Pads by edges join arrays without entries: those need no rows.
        some = [number for number, shape in enumerate(wanted.shapes) if shape[dimension]]
        if not some:
            return None
        return Need(
            tuple(window if number in some else None for number in range(len(wanted.shapes))),
            lambda operands, _: lax.concatenate([operands[number] for number in some], dimension),
        )
    if window.period:
        return None
    ends = list(itertools.accumulate(shape[row] for shape in wanted.shapes))
    begins = [0, *ends[:-1]]
    full = [number for number, shape in enumerate(wanted.shapes) if shape[row]]
    long = [number for number in full if wanted.shapes[number][row] > window.length]
    near: dict[int, Window] = {}
    for number in wanted.near:
        part = rows_of_part(wanted, begins[number], wanted.shapes[number][row])
        if part is not None:
            near[number] = part

    def rows(operands: Sequence[Any], number: int, places: Any, tile: Any) -> Any:
        if number in long:
            return operands[number]
        first, length = begins[number], wanted.shapes[number][row]
        if number in near:
            first, length = first + near[number].first(tile), near[number].length
        inside = jnp.clip(places - first, 0, length - 1)
        return jnp.take(operands[number], inside, axis=row, mode="clip")

    def compute(operands: Sequence[Any], tile: Any) -> Any:
        places = window.places(tile)
        along = places.reshape([-1 if d == row else 1 for d in range(len(wanted.shape))])
        *others, last = full
        joined = rows(operands, last, places, tile)
        for number in reversed(others):
            joined = jnp.where(along < ends[number], rows(operands, number, places, tile), joined)
        return joined

    # Rows of an operand where there are none are not read.
    windows = tuple(
        replace(window, start=window.start - begin) if number in long else near.get(number)
        for number, begin in enumerate(begins)
    )
    return Need(windows, compute)


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
    first = Window(row, window.stride * step, window.start * step + starts[row], length, window.end)
    if step == 1:
        first = replace(first, period=window.period)
    starts[row], limits[row] = 0, length

    def compute(operands: Sequence[Any], _: Any) -> Any:
        return lax.slice(operands[0], starts, limits, strides)

    return Need((first,), compute)


@rule("pad")
def _pad(wanted: Wanted) -> Need | None:
    low, _, interior = wanted.params["padding_config"][wanted.row]
    window, apart = wanted.window, interior + 1
    if window.stride % apart:
        raise Misaligned
    first, last = window.start - low, window.start + window.length - 1 - low
    start, end = -(-first // apart), last // apart
    if end < start:
        return None
    rows = Window(wanted.row, window.stride // apart, start, end - start + 1, window.end)
    around = (start * apart - first, last - end * apart, interior)
    config = tuple(
        around if d == wanted.row else one for d, one in enumerate(wanted.params["padding_config"])
    )
    return Need(
        (rows, None),
        lambda operands, _: lax.pad(operands[0], operands[1], config),
        {0: lambda operands: operands[1]},
    )
