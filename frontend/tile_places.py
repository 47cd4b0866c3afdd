"""Rows that are taken from known places, as in an enlarged image, or added to them, as in its derivative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.placed_rows import is_cyclic
from eqsat.frontend.row_primitives import NOWHERE, PLACED_ROWS, SUMMED_ROWS, with_zeros_added
from eqsat.frontend.scatter_updates import COMBINED
from eqsat.frontend.tile_updates import changed_part
from eqsat.frontend.tile_windows import Misaligned, Need, Wanted, Window, rule

PLACED = frozenset({"gather", *COMBINED})
"""Primitives whose second operand says where."""

MANY = np.iinfo(np.int64).max
"""More than any row."""

NEARLY_WHOLE = 0.2
"""By how much tiles of rows at known places may begin off a whole number of rows apart."""


@rule("gather")
def _gather(wanted: Wanted) -> Need | None:
    """Rows at places that are known, as those of a resized image; or rows of what is taken elsewhere."""
    numbers, sizes = wanted.params["dimension_numbers"], wanted.params["slice_sizes"]
    rank = len(wanted.shapes[0])
    if numbers.operand_batching_dims:
        return _gather_in_rows(wanted)
    part = _gathered_part(wanted)
    if part is not None:
        return part
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


def _gathered_part(wanted: Wanted) -> Need | None:
    """One part, at a known place, as the derivative of what sets it has; None for others."""
    numbers, sizes, array = wanted.params["dimension_numbers"], wanted.params["slice_sizes"], wanted.shapes[0]
    if 1 not in wanted.constants or len(wanted.shapes[1]) != 1:
        return None
    starts = [0] * len(array)
    for dimension, start in zip(numbers.start_index_map, wanted.constants[1], strict=True):
        starts[dimension] = int(start)
    if not all(0 <= a <= a + n <= size for a, n, size in zip(starts, sizes, array, strict=True)):
        return None
    kept = [d for d in range(len(array)) if d not in numbers.collapsed_slice_dims]
    row, window = kept[wanted.row], wanted.window
    others = tuple(
        slice(None) if d == row else slice(start, start + size)
        for d, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )
    rows = replace(window, dimension=row, start=window.start + starts[row])
    return Need(
        (rows, None), lambda operands, _: lax.squeeze(operands[0][others], numbers.collapsed_slice_dims)
    )


def _gather_in_rows(wanted: Wanted) -> Need | None:
    """Entries of each row that indices of the same row name."""
    numbers = wanted.params["dimension_numbers"]
    batches = [d for d in range(len(wanted.shape)) if d not in numbers.offset_dims]
    if wanted.row not in batches:
        return None
    batch = batches.index(wanted.row)
    if batch not in numbers.start_indices_batching_dims:
        return None
    own = numbers.operand_batching_dims[numbers.start_indices_batching_dims.index(batch)]
    return wanted.along({0: own, 1: batch})


@rule(PLACED_ROWS)
def _placed(wanted: Wanted) -> Need | None:
    dimension, places, added = (wanted.params[name] for name in ("dimension", "places", "added"))
    window, size = wanted.window, wanted.shapes[0][dimension]
    if dimension != wanted.row:
        return wanted.same()
    if not is_cyclic(places, size):
        # Between its ends, an array has its rows one after another, so tiles of it are as far apart.
        near = None if window.period else _rows_at(wanted, places, window.stride, added)
        return near or (_rows_around(wanted, places, added) if len(places) == size else None)
    if window.period not in (0, size):
        return None
    first = int(places[0])
    shift = first if 2 * first <= size else first - size
    around = replace(window, start=window.start + shift, period=size)
    return Need((around,), lambda operands, _: with_zeros_added(operands[0], added))


@rule(SUMMED_ROWS)
def _summed(wanted: Wanted) -> Need | None:
    """A sum of rows near to the one where it is: only tiles that have this one need them."""
    dimension, first, limit, place = (
        wanted.params[name] for name in ("dimension", "first", "limit", "place")
    )
    if dimension != wanted.row:
        return wanted.same()
    window = wanted.window
    rows = _rows(window, wanted.tiles)
    used = (rows == place).any(1)
    ends = np.full(len(rows), first), np.full(len(rows), limit - 1)
    found = _spanned(dimension, *ends, used, window.end, window.stride)
    if window.period or found is None or found.length > 2 * window.length + 2:
        return None
    among = np.clip(np.arange(first, limit) - _rows(found, wanted.tiles)[:, :1], 0, found.length - 1)
    pattern = _pattern(among, np.repeat(used[:, None], limit - first, axis=1))

    def compute(operands: Sequence[Any], tile: Any) -> Any:
        taken = jnp.take(operands[0], pattern(tile), axis=dimension, mode="clip")
        total = jnp.sum(taken, axis=dimension, keepdims=True, dtype=taken.dtype)
        along = [-1 if d == dimension else 1 for d in range(taken.ndim)]
        there = (window.places(tile) == place).reshape(along)
        return jnp.where(there, total, jnp.zeros((), taken.dtype))

    return Need((found,), compute)


def _rows_at(wanted: Wanted, places: Any, stride: int = 0, added: bool = False) -> Need | None:
    """Rows at known places: the fewest that hold those of any tile, and among them those of each.

    **Arguments:**

    - `stride`: how far those of a tile are from those of the next, if that is known.
    - `added`: whether zeros are added.
    """
    somewhere = places[places != NOWHERE]
    if not len(somewhere) or somewhere.min() < 0 or somewhere.max() >= wanted.shapes[0][wanted.row]:
        return None  # What is there depends on the gather's mode.
    window = wanted.window
    rows = _rows(window, wanted.tiles)
    inside = (rows >= 0) & (rows < len(places))
    return _rows_of_tiles(wanted, places[np.clip(rows, 0, len(places) - 1)], inside, stride, added)


def _rows_around(wanted: Wanted, places: Any, added: bool) -> Need | None:
    """The same of an array that goes around, as one that is turned: each row is from the nearest such place.

    jnp.roll(u.at[0].set(u[1]), 1)[0]  =  u[n - 1]  =  u[-1]
    """
    window, size = wanted.window, len(places)
    if window.period not in (0, size):
        return None
    rows = _rows(window, wanted.tiles)
    inside = np.full(rows.shape, True) if window.period else (rows >= 0) & (rows < size)
    at = places[rows % size]
    near = np.where(at == NOWHERE, at, at - size * np.rint((at - rows) / size).astype(np.int64))
    return _rows_of_tiles(wanted, near, inside, window.stride, added, size)


def _rows_of_tiles(
    wanted: Wanted, at: Any, inside: Any, stride: int, added: bool, period: int = 0
) -> Need | None:
    """The rows `at` of each tile, where its own are `inside` of the array."""
    window = wanted.window
    empty, inside = inside & (at == NOWHERE), inside & (at != NOWHERE)
    first, last = at.min(1, where=inside, initial=MANY), at.max(1, where=inside, initial=-MANY)
    found = _spanned(wanted.row, first, last, inside.any(1), window.end, stride)
    if found is None or found.length > 2 * window.length + 2:
        return None
    among = np.clip(at - _rows(found, wanted.tiles)[:, :1], 0, found.length - 1)
    pattern = _pattern(among, inside)

    def compute(operands: Sequence[Any], tile: Any) -> Any:
        taken = jnp.take(operands[0], pattern(tile), axis=wanted.row, mode="clip")
        if empty.any():
            along = [-1 if d == wanted.row else 1 for d in range(len(wanted.shape))]
            taken = jnp.where(jnp.asarray(empty)[tile].reshape(along), jnp.zeros((), taken.dtype), taken)
        return with_zeros_added(taken, added)

    others = [None] * (len(wanted.shapes) - 1)
    return Need((replace(found, period=period), *others), compute)


@rule("scatter-add")
def _scatter(wanted: Wanted) -> Need | None:
    """Rows added at places that are known and in order; or entries of a row added to others of that row."""
    part = changed_part(wanted)
    if part is not None:
        return part
    numbers, rank = wanted.params["dimension_numbers"], len(wanted.shape)
    if wanted.row in numbers.operand_batching_dims:
        batch = numbers.scatter_indices_batching_dims[numbers.operand_batching_dims.index(wanted.row)]
        added = [d for d in range(len(wanted.shapes[2])) if d not in numbers.update_window_dims]
        return wanted.along({0: wanted.row, 1: batch, 2: added[batch]})
    if wanted.row not in (*numbers.inserted_window_dims, *numbers.scatter_dims_to_operand_dims):
        kept = [
            d for d in range(rank) if d not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        ]
        need = wanted.along({0: wanted.row, 2: numbers.update_window_dims[kept.index(wanted.row)]})
        return need if need.windows[2] is not None else None
    one = numbers.inserted_window_dims == numbers.scatter_dims_to_operand_dims == (wanted.row,)
    others = tuple(d for d in range(rank) if d != wanted.row)
    if not one or numbers.operand_batching_dims or numbers.update_window_dims != others:
        return None
    if 1 not in wanted.constants or len(wanted.shapes[1]) != 2:
        return None
    if any(wanted.shapes[2][d] != wanted.shape[d] for d in others):
        return None
    places = np.asarray(wanted.constants[1])[:, 0].astype(np.int64)
    window = wanted.window
    if window.end is not None:
        raise Misaligned
    starts = _rows(window, wanted.tiles)[:, 0]
    if np.any(np.diff(places) < 0) or places.min() < 0 or places.max() >= wanted.shape[wanted.row]:
        return None
    first = np.searchsorted(places, starts)
    last = np.searchsorted(places, starts + window.length) - 1
    found = _spanned(wanted.row, first, last, last >= first)
    if found is None or found.length > len(places):
        return None
    rows = _rows(found, wanted.tiles)
    inside = (rows >= 0) & (rows < len(places))
    at = places[np.clip(rows, 0, len(places) - 1)] - starts[:, None]
    pattern = _pattern(np.where((at >= 0) & (at < window.length), at, window.length), inside)
    same = Window(wanted.row, window.stride, window.start, window.length)

    def compute(operands: Sequence[Any], tile: Any) -> Any:
        where = (*[slice(None)] * wanted.row, pattern(tile))
        return operands[0].at[where].add(operands[2], mode="drop")

    return Need((same, None, found), compute, {2: lambda _: 0})


def _rows(window: Window, tiles: int) -> Any:
    """The rows of each tile."""
    return window.offsets(tiles)[:, None] + window.start + np.arange(window.length)


def _spanned(
    dimension: int, first: Any, last: Any, used: Any, end: Fraction | None = None, stride: int = 0
) -> Window | None:
    """The window that holds the rows from the first to the last of each tile that uses any.

    **Arguments:**

    - `end`: the number of the last tile, if that begins earlier.
    - `stride`: how far the rows of tiles are apart, if that is known.

    **Raises:** `Misaligned`.
    """
    tiles = np.flatnonzero(used)
    if len(used) == 1 and len(tiles):
        return Window(dimension, 0, int(first[0]), int(last[0] - first[0]) + 1)
    if len(tiles) < (1 if stride else 2):
        return None
    if not stride:
        whole = tiles[:-1] if end is not None and len(tiles) > 2 else tiles
        slope = float(first[whole[-1]] - first[whole[0]]) / float(whole[-1] - whole[0])
        stride = round(slope)
        if abs(slope - stride) > NEARLY_WHOLE or stride < 1:
            raise Misaligned
    offsets = Window(dimension, stride, 0, 1, end).offsets(len(used))[tiles]
    start = int((first[tiles] - offsets).min())
    return Window(dimension, stride, start, int((last[tiles] - offsets).max()) - start + 1, end)


def _pattern(among: Any, inside: Any) -> Any:
    """The places among the rows of a tile, by its number: those of all tiles alike where they are."""
    alike = among.max(0, where=inside, initial=0)
    if np.all((among == alike) | ~inside):
        return lambda _: alike.astype(np.int32)
    table = among.astype(np.int32)
    return lambda tile: jnp.asarray(table)[tile]
