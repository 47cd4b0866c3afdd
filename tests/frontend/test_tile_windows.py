"""Windows of rows, and which rows convolutions reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.frontend.tile_halos import Reach
from eqsat.frontend.tile_windows import Misaligned, Window


def test_windows_hold_the_rows_of_both() -> None:
    one, other = Window(1, 8, -1, 10), Window(1, 8, 3, 8)
    assert one.merged(other) == Window(1, 8, -1, 12) == other.merged(one)
    assert one.merged(Window(1, 4, 3, 8)) is None
    assert one.merged(Window(2, 8, 3, 8)) is None


def test_rows_beyond_the_edges() -> None:
    assert Window(0, 8, 0, 8).inside(4, 32)
    assert not Window(0, 8, -1, 9).inside(4, 32)
    assert not Window(0, 8, 0, 9).inside(4, 32)
    assert Window(0, 8, 0, 9).inside(4, 33)


@given(
    st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(-3, 6), st.integers(1, 3), st.data()
)
def test_a_convolution_reaches_all_rows_that_it_reads_and_no_more(
    size: int, step: int, dilation: int, low: int, apart: int, data: Any
) -> None:
    window = Window(0, 6 * data.draw(st.integers(1, 2)), data.draw(st.integers(-4, 4)), 5)
    reach = Reach(size, step, dilation, low, apart)
    found = reach.of(window, 0)
    for tile in (0, 3):
        rows = window.stride * tile + window.start + np.arange(window.length)
        read = (rows[:, None] * step + np.arange(size) * dilation - low).ravel()
        used = read[read % apart == 0] // apart
        if found is None:
            assert not used.size
            continue
        operand, (above, below) = found
        first = operand.stride * tile + operand.start
        last = first + operand.length - 1
        assert not used.size or (first <= used.min() and used.max() <= last)
        assert (first * apart - above, last * apart + below) == (read.min(), read.max())
        assert 0 <= above < apart
        assert 0 <= below < apart


def test_tiles_that_are_not_whole_steps() -> None:
    with pytest.raises(Misaligned):
        Reach(3, 1, 1, 1, 2).of(Window(0, 5, 0, 5), 0)
