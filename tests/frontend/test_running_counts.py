"""How often each number occurs in a sequence that never falls, read in pieces."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqsat.frontend.running_counts import Pieces, Remembered, RunningCounts
from eqsat.frontend.runs import Differences, Integers

SIZE = 12


def read(pieces: Pieces, stops: list[int], size: int) -> Integers:
    places = sorted({stop for stop in stops if stop < size} | {size})
    return np.concatenate([pieces.until(stop) for stop in places])


@given(
    st.lists(st.integers(0, SIZE - 1)),
    st.lists(st.integers(0, 40)),
    st.lists(st.integers(1, SIZE)),
    st.lists(st.integers(1, SIZE)),
)
def test_counts(numbers: list[int], cuts: list[int], stops: list[int], later: list[int]) -> None:
    ordered = np.asarray(sorted(numbers), np.int64)
    pieces = np.split(ordered, sorted(min(cut, len(ordered)) for cut in cuts))
    counts = RunningCounts(iter(pieces), SIZE)
    wanted = np.bincount(ordered, minlength=SIZE)
    np.testing.assert_array_equal(read(counts, stops, SIZE), wanted)
    if counts.found is not None:
        np.testing.assert_array_equal(read(Remembered(counts.found), later, SIZE), wanted)


@given(st.lists(st.integers(-3, 3), min_size=1), st.lists(st.integers(1, 40)))
def test_what_is_remembered(values: list[int], stops: list[int]) -> None:
    differences = Differences()
    differences.add(np.asarray(values, np.int64))
    np.testing.assert_array_equal(read(Remembered(differences), stops, len(values)), values)
