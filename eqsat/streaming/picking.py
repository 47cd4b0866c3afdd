"""Reads entries that indices pick, by batches: each once in a batch, in the order of the array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eqsat.ir.picked_entries import Pick
from eqsat.streaming.sources import MovedSource, Slices, Source

BATCH = 4 << 20
"""Bytes of a batch, at most, if a single entry takes no more."""

Array = np.ndarray[Any, Any]


def read_picked(
    source: Source | MovedSource, pick: Pick, indices: Array, around: Slices, into: Array
) -> None:
    """Read what indices pick.

    **Arguments:**

    - `indices`: with one column for each of `pick.columns`.
    - `around`: by dimension of the source, what is read of it, for those that are not picked along.
    - `into`: where to: the dimensions of the indices but for the columns, and then those of the source.

    **Raises:** `EqsatError` that names the array and the slice if something can't be read, or is not finite.
    """
    places, inside = _inside(pick, indices.reshape(-1, len(pick.columns)), source.shape)
    singles = [number for number, count in enumerate(pick.taken) if count == 1]
    rest = [number for number in range(len(pick.taken)) if number not in singles]
    shape = tuple(around[number].stop - around[number].start for number in rest)
    flat = into.reshape((len(places), *shape))
    if pick.fill:
        flat[~inside] = pick.outside
    wanted = np.flatnonzero(inside)
    # One entry of each single dimension; of those without a column there is only one.
    points = np.zeros((len(wanted), len(singles)), np.int64)
    for column, dimension in enumerate(pick.columns):
        if dimension in singles:
            points[:, singles.index(dimension)] = places[wanted, column]
    order = np.lexsort(points.T[::-1]) if singles else np.arange(len(wanted))
    bytes_each = math.prod(shape) * into.dtype.itemsize
    count = max(1, BATCH // max(bytes_each, 1))
    for begin in range(0, len(order), count):
        batch = order[begin : begin + count]
        unique, which = _distinct(points[batch])
        found = np.empty((len(unique), *shape), into.dtype)
        _read_points(source, singles, unique, around, found)
        flat[wanted[batch]] = found[which]


def _inside(pick: Pick, indices: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    """The places that rows of indices are, clipped, and whether they are inside."""
    if pick.fill:
        # As XLA has them, indices are of the dtype that the largest array of the shape needs.
        large = max(shape) > np.iinfo(np.int32).max
        indices = indices.astype(np.int64 if large else np.int32)
    places = np.empty(indices.shape, np.int64)
    inside = np.ones(len(indices), bool)
    for column, dimension in enumerate(pick.columns):
        most = shape[dimension] - pick.taken[dimension]
        own = indices[:, column]
        if pick.fill:
            inside &= (own >= 0) & (own <= most)
        places[:, column] = np.minimum(np.maximum(own, 0), min(most, np.iinfo(own.dtype).max))
    return places, inside


def _distinct(points: Array) -> tuple[Array, Array]:
    """The distinct points of some that are sorted, and which of these each one is."""
    new = np.ones(len(points), bool)
    new[1:] = (points[1:] != points[:-1]).any(axis=1)
    return points[new], np.cumsum(new) - 1


def _read_points(
    source: Source | MovedSource, dimensions: Sequence[int], points: Array, around: Slices, into: Array
) -> None:
    """Read distinct points, in order: single entries along `dimensions`, and what is `around` them."""
    if isinstance(source, Source) and source.read_points(dimensions, points, around, into):
        return
    for begin, end in _stretches(points):
        slices = list(around)
        for number, dimension in enumerate(dimensions):
            slices[dimension] = slice(int(points[begin, number]), int(points[end - 1, number]) + 1)
        # The single dimensions come first where it goes: of one of them, there are several entries.
        part = into[begin:end]
        shape = tuple(one.stop - one.start for one in slices)
        order = [*dimensions, *(number for number in range(len(shape)) if number not in dimensions)]
        part = part.reshape([shape[number] for number in order])
        source.read(tuple(slices), part.transpose(np.argsort(order)))


def _stretches(points: Array) -> Iterator[tuple[int, int]]:
    """Where stretches of points begin and end that are one after the other along the last dimension."""
    if not len(points):
        return
    steps = np.diff(points, axis=0)
    if points.shape[1]:
        breaks = (steps[:, :-1] != 0).any(axis=1) | (steps[:, -1] != 1)
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(points)]
    else:
        edges = [0, len(points)]
    yield from itertools.pairwise(edges)
