"""Rows of an array of which one part is set, or changed, as the walls of a simulation are.

    u.at[0].set(w)[r]  =  w  if r = 0  else  u[r]
    u.at[1:-1].add(v)[r]  =  u[r] + v[r - 1]  if 0 < r < n - 1  else  u[r]

So a tile needs its rows of the array, and those of the update that are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.scatter_updates import COMBINED, combination
from eqsat.frontend.tile_windows import Need, Wanted, Window, rows_of_part, rule


@rule(*(COMBINED.keys() - {"scatter-add"}))
def changed_part(wanted: Wanted) -> Need | None:
    """A part whose place is known: the rows of the array, and those of the update that are among them."""
    change, place = combination(wanted.equation.name, wanted.params), part_of(wanted)
    if change is None or place is None:
        return None
    starts, sizes, kept = place
    row, window = wanted.row, wanted.window
    rows, first, count = wanted.shape[row], starts[row], sizes[row]
    if window.period not in (0, rows):
        return None
    inserted = [d for d in range(len(starts)) if d not in kept]
    # Entries around the part in the other dimensions, in which a tile has all of the array.
    edges = [
        (start, wanted.shape[d] - start - size, 0) if d != row else (0, 0, 0)
        for d, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    # Of a short part, only the tiles that have it need rows.
    short = rows_of_part(wanted, first, count) if row in kept and count <= window.length else None
    update: Window | None = None
    if row in kept:
        update = replace(short or replace(window, start=window.start - first), dimension=kept.index(row))

    def compute(operands: Sequence[Any], tile: Any) -> Any:
        array, new = operands[0], lax.expand_dims(operands[2], inserted)
        places = window.places(tile)
        if window.period:
            places = lax.rem(lax.rem(places, np.int32(rows)) + np.int32(rows), np.int32(rows))
        there = _along((places >= first) & (places < first + count), row, array.ndim)
        if short is not None:
            new = jnp.take(new, _within(places - first - short.first(tile), short), axis=row, mode="clip")
        for d, (low, high, _) in enumerate(edges):
            if low or high:
                place = np.arange(array.shape[d])
                there &= _along((place >= low) & (place < array.shape[d] - high), d, array.ndim)
        spread = jnp.broadcast_to(lax.pad(new, np.zeros((), new.dtype), edges), array.shape)
        return jnp.where(there, change(array, spread), array)

    return Need((window, None, update), compute)


def _within(places: Any, window: Window) -> Any:
    """Places among the rows of a window; those of others are anywhere."""
    if window.period:
        places = lax.rem(lax.rem(places, np.int32(window.period)) + window.period, np.int32(window.period))
    return jnp.clip(places, 0, window.length - 1)


def _along(mask: Any, dimension: int, rank: int) -> Any:
    """A mask of the entries along one dimension, for arrays of some rank."""
    return mask.reshape([-1 if d == dimension else 1 for d in range(rank)])


def part_of(wanted: Wanted) -> tuple[list[int], list[int], list[int]] | None:
    """Where the part begins in each dimension, how long it is, and which dimensions the update has.

    None if it is not one part, inside of the array, whose place is known.
    """
    numbers = wanted.params["dimension_numbers"]
    if 1 not in wanted.constants or len(wanted.shapes[1]) != 1 or numbers.operand_batching_dims:
        return None
    rank = len(wanted.shape)
    kept = [d for d in range(rank) if d not in numbers.inserted_window_dims]
    if tuple(numbers.update_window_dims) != tuple(range(len(kept))):
        return None
    starts, sizes = [0] * rank, [1] * rank
    for dimension, start in zip(numbers.scatter_dims_to_operand_dims, wanted.constants[1], strict=True):
        starts[dimension] = int(start)
    for dimension, size in zip(kept, wanted.shapes[2], strict=True):
        sizes[dimension] = size
    ends = zip(starts, sizes, wanted.shape, strict=True)
    return (starts, sizes, kept) if all(0 <= a <= a + n <= size for a, n, size in ends) else None
