"""Sequences as runs: few where there are few, and the sequence again."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.frontend.runs import Differences, Integers, runs_of

FIRST, SECOND = (side.astype(np.int64) for side in np.triu_indices(60, 1))
LOWER = [side.astype(np.int64) for side in np.tril_indices(60, -1)]

FEW = {
    "rows of pairs": (FIRST, 59),
    "columns of pairs": (SECOND, 59),
    "rows below the diagonal": (LOWER[0], 59),
    "columns below the diagonal": (LOWER[1], 59),
    "a stride for each run": (np.concatenate([FIRST, SECOND]), 125),
    "repeated": (np.repeat(np.arange(9), 40), 9),
    "tiled": (np.tile(np.arange(40), 9), 9),
    "falling": (np.arange(90, 0, -3), 1),
    "constant": (np.full(50, 7), 1),
    "with an odd one": (np.r_[0:100, 500, 100:200], 3),
}


def differences(values: Integers, piece: int) -> tuple[Differences, bool]:
    found = Differences()
    worth = [found.add(values[start : start + piece]) for start in range(0, len(values), piece)]
    return found, all(worth)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_few_runs(name: str, piece: int) -> None:
    values, most = FEW[name]
    found, _ = differences(values, piece)
    runs = runs_of(found)
    assert runs is not None
    assert len(runs.starts) <= most
    positions = np.arange(len(values))
    run = np.searchsorted(runs.starts, positions, side="right") - 1
    rebuilt = runs.bases[run] + runs.strides[run] * (positions - runs.starts[run])
    np.testing.assert_array_equal(rebuilt, values)
    assert (found.count, found.low, found.high) == (len(values), values.min(), values.max())


def test_no_runs() -> None:
    """Of random numbers there are too many runs, which shows before the end."""
    values = np.random.default_rng(0).integers(0, 1000, 4096)
    found, worth = differences(values, 512)
    assert not worth
    assert runs_of(found) is None
