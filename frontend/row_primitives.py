"""Equations that take rows of an array from known places, and those that add some of its rows at one place.

No primitive of JAX says so: these are in place of several that do it together (`placed_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

PLACED_ROWS = "placed_rows"
"""The name of equations that take rows of an array, at `places` along a `dimension`."""

NOWHERE = np.iinfo(np.int64).min
"""The place of a row of zeros."""

SUMMED_ROWS = "summed_rows"
"""The name of equations that have zeros but for a sum of rows of an array, those from `first` to `limit`."""


class _NoPrimitive:
    """What is in place of a primitive in an equation."""

    multiple_results = False

    @staticmethod
    def get_bind_params(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return params


class PlacedRows(_NoPrimitive):
    """Rows of an array.

    Its parameters are the `dimension`, the `places`, and whether zeros are `added` to the rows: of a sum with
    zeros, -0 is 0.
    """

    name = PLACED_ROWS

    @staticmethod
    def bind(operand: Any, dimension: int, places: Any, added: bool) -> Any:
        parts = []
        for first, step, length in runs(places):
            if first == NOWHERE:
                shape = (*operand.shape[:dimension], length, *operand.shape[dimension + 1 :])
                parts.append(jnp.zeros(shape, operand.dtype))
                continue
            start, limit = sorted((first, first + step * (length - 1)))
            part = lax.slice_in_dim(operand, start, limit + 1, axis=dimension)
            if step < 0:
                part = lax.rev(part, (dimension,))
            if step == 0:
                shape = (*part.shape[:dimension], length, *part.shape[dimension + 1 :])
                part = lax.broadcast_in_dim(part, shape, range(part.ndim))
            parts.append(part)
        return with_zeros_added(lax.concatenate(parts, dimension), added)


class SummedRows(_NoPrimitive):
    """Along a `dimension` of some `size`, the row at `place` is a sum of rows, and all others are zero."""

    name = SUMMED_ROWS

    @staticmethod
    def bind(operand: Any, dimension: int, first: int, limit: int, place: int, size: int) -> Any:
        rows = lax.slice_in_dim(operand, first, limit, axis=dimension)
        total = jnp.sum(rows, axis=dimension, keepdims=True, dtype=rows.dtype)
        config = [(place, size - place - 1, 0) if d == dimension else (0, 0, 0) for d in range(total.ndim)]
        return lax.pad(total, jnp.zeros((), total.dtype), config)


def with_zeros_added(rows: Any, added: bool) -> Any:
    return rows + jnp.zeros((), rows.dtype) if added else rows


def runs(places: Any) -> Iterator[tuple[int, int, int]]:
    """Places as runs: the first of each, the step to the next (1, 0 or -1), and how many there are."""
    steps, start = np.diff(places), 0
    while start < len(places):
        step = int(steps[start]) if start < len(steps) else 1
        if step not in (1, 0, -1):
            step = 1
        ends = np.flatnonzero(steps[start:] != step)
        length = int(ends[0]) + 1 if len(ends) else len(places) - start
        yield int(places[start]), step, length
        start += length
