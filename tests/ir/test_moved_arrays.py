"""Arrays whose entries are those of others: what is read of them is what NumPy makes, and no more is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eqsat.ir.moved_arrays import (
    Filled,
    Joined,
    Moved,
    Whole,
    repeated,
    reshaped,
    taken,
    transposed,
)

SHAPE = (6, 5, 4)
RANDOM = np.random.default_rng(0)


class Counted:
    """An array that counts the entries that are read of it."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.count = 0

    def read(self, slices: tuple[slice, ...], into: np.ndarray[Any, Any]) -> None:
        found = self.array[slices]
        assert found.shape == into.shape
        self.count += found.size
        np.copyto(into, found)


def picked(shape: tuple[int, ...]) -> tuple[range, ...]:
    """Some entries along each dimension, ascending or descending."""
    found = []
    for length in shape:
        start, stop = sorted(int(place) for place in RANDOM.integers(0, length, 2))
        one = range(start, stop + 1, int(RANDOM.integers(1, 4)))
        found.append(one[::-1] if RANDOM.random() < 0.4 else one)
    return tuple(found)


def indexed(array: np.ndarray[Any, Any], places: tuple[range, ...]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = array[np.ix_(*map(np.asarray, places))]
    return found


def some_slice(moved: Moved, array: np.ndarray[Any, Any]) -> tuple[Moved, np.ndarray[Any, Any]]:
    places = picked(array.shape)
    return taken(moved, places), indexed(array, places)


def some_join(moved: Moved, array: np.ndarray[Any, Any]) -> tuple[Moved, np.ndarray[Any, Any]]:
    at = int(RANDOM.integers(array.ndim))
    shape = tuple(3 if dimension == at else length for dimension, length in enumerate(array.shape))
    parts = [(moved, array), (Filled("7", "int32", shape), np.full(shape, 7)), (moved, array)]
    return Joined(tuple(one for one, _ in parts), at), np.concatenate([one for _, one in parts], at)


def some_order(moved: Moved, array: np.ndarray[Any, Any]) -> tuple[Moved, np.ndarray[Any, Any]]:
    order = RANDOM.permutation(array.ndim).tolist()
    return transposed(moved, order), array.transpose(order)


def some_shape(moved: Moved, array: np.ndarray[Any, Any]) -> tuple[Moved, np.ndarray[Any, Any]]:
    sizes = [int(length) for length in array.shape]
    factors = [f for size in sizes for f in ([2, size // 2] if size % 2 == 0 else [size])]
    while len(factors) > 1 and RANDOM.random() < 0.7:
        at = int(RANDOM.integers(len(factors) - 1))
        factors[at : at + 2] = [factors[at] * factors[at + 1]]
    if RANDOM.random() < 0.5:
        factors.insert(int(RANDOM.integers(len(factors) + 1)), 1)
    return reshaped(moved, tuple(factors)), array.reshape(factors)


def some_copies(moved: Moved, array: np.ndarray[Any, Any]) -> tuple[Moved, np.ndarray[Any, Any]]:
    shape = (1, *array.shape)
    return repeated(reshaped(moved, shape), (3, *array.shape)), np.broadcast_to(array, (3, *array.shape))


STEPS: list[Callable[..., Any]] = [some_slice, some_join, some_order, some_shape, some_copies]


@pytest.mark.parametrize("seed", range(200))
def test_entries_are_those_of_the_array(seed: int) -> None:
    global RANDOM
    RANDOM = np.random.default_rng(seed)
    source = Counted(np.arange(120).reshape(SHAPE))
    moved: Moved = Whole(0, SHAPE)
    array = source.array
    for _ in range(int(RANDOM.integers(1, 6))):
        step = STEPS[int(RANDOM.integers(len(STEPS)))]
        if array.size < 2_000:
            moved, array = step(moved, array)
    assert moved.shape == array.shape
    for _ in range(5):
        where = tuple(one[::-1] if one.step < 0 else one for one in picked(array.shape))
        into = np.full(tuple(map(len, where)), -1)
        moved.read(where, into, {0: source})
        np.testing.assert_array_equal(into, indexed(array, where))


@pytest.mark.parametrize(
    ("moved", "where"),
    [
        (taken(Whole(0, SHAPE), (range(5, -1, -1), range(5), range(4))), (range(1, 3), range(5), range(4))),
        (reshaped(Whole(0, SHAPE), (120,)), (range(7, 66),)),
        (reshaped(Whole(0, SHAPE), (30, 4)), (range(3, 17), range(1, 3))),
        (reshaped(Whole(0, SHAPE), (3, 40)), (range(1, 3), range(40))),
        (Joined((Whole(0, SHAPE), Whole(0, SHAPE)), 1), (range(6), range(3, 8), range(4))),
        (repeated(taken(Whole(0, SHAPE), (range(1), range(5), range(4))), (9, 5, 4)), (range(9),) * 0),
    ],
)
def test_no_more_is_read_than_is_needed(moved: Moved, where: tuple[range, ...]) -> None:
    source = Counted(np.arange(120).reshape(SHAPE))
    where = where or tuple(map(range, moved.shape))
    into = np.empty(tuple(map(len, where)), int)
    moved.read(where, into, {0: source})
    assert source.count == len(np.unique(into))
