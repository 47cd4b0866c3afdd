"""Windows of an array that is read: what NumPy picks, and where they overlap, rows are read once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.ir import moved_windows
from eqsat.ir.moved_arrays import Whole, taken
from eqsat.ir.moved_windows import Windows
from tests.ir.test_moved_arrays import Counted
from tests.nightly import THOROUGH

ROWS, COLUMNS = 50, 3
ARRAY = np.arange(2 * ROWS * COLUMNS).reshape(2, ROWS, COLUMNS)


@settings(max_examples=1000 if THOROUGH else 80)
@given(
    st.integers(-20, 60),
    st.lists(st.tuples(st.integers(-7, 9), st.integers(1, 6)), min_size=1, max_size=3),
    st.sampled_from([64, 1 << 20]),
    st.data(),
)
def test_windows(start: int, dimensions: list[tuple[int, int]], block: int, data: st.DataObject) -> None:
    steps, sizes = (tuple(one) for one in zip(*dimensions, strict=True))
    grids = np.ix_(*(np.arange(size) * step for step, size in dimensions))
    places = np.clip(start + sum(grids), 0, ROWS - 1)
    windows = Windows(Whole(0, ARRAY.shape), 1, start, steps, sizes, 0, ROWS - 1)
    wanted = np.take(ARRAY, places, axis=1)
    assert windows.shape == wanted.shape
    where = []
    for size in windows.shape:
        begin = data.draw(st.integers(0, size - 1))
        where.append(range(begin, data.draw(st.integers(begin + 1, size)), data.draw(st.integers(1, 2))))
    into = np.full(tuple(map(len, where)), -1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moved_windows, "BLOCK", block)
        windows.read(tuple(where), into, {0: Counted(ARRAY)})
    np.testing.assert_array_equal(into, wanted[np.ix_(*map(np.asarray, where))])


def test_overlapping_windows_are_read_once() -> None:
    array = np.arange(10_000.0)
    windows = Windows(Whole(0, array.shape), 0, 0, (1, 1), (9_901, 100), 0, 9_999)
    counted, into = Counted(array), np.empty(windows.shape)
    windows.read(tuple(map(range, windows.shape)), into, {0: counted})
    np.testing.assert_array_equal(into, np.lib.stride_tricks.sliding_window_view(array, 100))
    assert counted.count == array.size
    assert windows.share == pytest.approx(0.0101, rel=0.01)


def test_windows_far_apart_are_read_one_by_one() -> None:
    array = np.arange(1_000_000.0)
    windows = Windows(Whole(0, array.shape), 0, 5, (1_000, 1), (900, 10), 0, 999_999)
    counted, into = Counted(array), np.empty(windows.shape)
    windows.read(tuple(map(range, windows.shape)), into, {0: counted})
    np.testing.assert_array_equal(into, array[5 + 1_000 * np.arange(900)[:, None] + np.arange(10)])
    assert counted.count <= 2 * into.size
    assert windows.share == 1


def test_little_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides where they go, windows take no more memory than a block."""
    largest = []

    class Seen(Counted):
        def read(
            self, slices: tuple[slice, ...], into: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
        ) -> None:
            largest.append(into.nbytes)
            super().read(slices, into)

    monkeypatch.setattr(moved_windows, "BLOCK", 4_000)
    array = np.arange(100_000.0)
    windows = Windows(Whole(0, array.shape), 0, 0, (500, 1), (199, 564), 0, 99_999)
    windows.read(tuple(map(range, windows.shape)), np.empty(windows.shape), {0: Seen(array)})
    assert max(largest) <= 4_000


def test_windows_of_what_is_moved() -> None:
    flipped = taken(Whole(0, (ROWS,)), (range(ROWS - 1, -1, -1),))
    windows = Windows(flipped, 0, 2, (4, 1), (10, 6), 0, ROWS - 1)
    into = np.empty((10, 6))
    windows.read((range(10), range(6)), into, {0: Counted(np.arange(float(ROWS)))})
    np.testing.assert_array_equal(into, 49 - (2 + 4 * np.arange(10)[:, None] + np.arange(6)))
