"""Sequences as expressions of the position: equal everywhere, and by arithmetic where that is possible."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.frontend.runs import Differences
from eqsat.frontend.sequences import (
    Affine,
    Blocks,
    Described,
    Even,
    Growing,
    Piecewise,
    described,
    function_of,
    tables_of,
)

RNG = np.random.default_rng(1)


def describe(values: Any) -> Described | None:
    differences = Differences()
    differences.add(np.asarray(values, np.int64))
    return described(differences)


def rebuilt(sequence: Described, shape: tuple[int, ...], dtype: Any = np.int32) -> Any:
    return jax.jit(function_of(sequence, shape, dtype))(*tables_of(sequence))


BAND = np.nonzero(np.abs(np.arange(99)[:, None] - np.arange(99)) < 20)

SEARCHED: dict[str, tuple[Any, type, bool]] = {
    "above": (np.triu_indices(90, 1)[0], Growing, False),
    "above, columns": (np.triu_indices(90, 1)[1], Growing, False),
    "with the diagonal": (np.triu_indices(90, 0)[1], Growing, False),
    "below": (np.tril_indices(90, -1)[0], Growing, False),
    "below, columns": (np.tril_indices(90, 0)[1], Growing, False),
    "longer by three each": (np.repeat(np.arange(40), 2 + 3 * np.arange(40)), Growing, False),
    "cut off": (np.triu_indices(90, 1)[0][:-700], Growing, False),
    "repeated": (np.repeat(np.arange(50), 21), Even, False),
    "cut off, repeated": (np.repeat(np.arange(50), 21)[:-5], Even, False),
    "tiled": (np.tile(np.arange(50), 21), Even, False),
    "tiled repetitions": (np.tile(np.repeat(np.arange(30), 11), 9), Even, False),
    "repetitions of any order": (np.repeat(RNG.permutation(60), 20), Even, True),
    "of any lengths": (np.repeat(np.arange(60), RNG.integers(10, 40, 60)), Blocks, True),
    "a band": (BAND[1], Blocks, True),
    "below a diagonal": (np.triu_indices(90, -9)[1], Blocks, True),
    "negative": (-np.repeat(np.arange(60), RNG.integers(10, 40, 60)), Blocks, True),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_equal_and_found_by(name: str) -> None:
    values, search, has_tables = SEARCHED[name]
    found = describe(values)
    assert isinstance(found, Piecewise)
    assert isinstance(found.search, search)
    assert any(True for _ in tables_of(found)) == has_tables
    np.testing.assert_array_equal(rebuilt(found, values.shape), values)


def test_affine() -> None:
    for values in (np.arange(9), np.arange(40, -40, -8), np.full(5, 3), [7]):
        found = describe(values)
        assert isinstance(found, Affine)
        np.testing.assert_array_equal(rebuilt(found, np.shape(values)), values)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint32", "bool"])
def test_dtypes_and_dimensions(dtype: str) -> None:
    values = np.tile(np.repeat(np.arange(2), 48), 10).astype(dtype).reshape(32, 30)
    found = describe(values.reshape(-1))
    assert found is not None
    result = rebuilt(found, values.shape, np.dtype(dtype))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, values)


@pytest.mark.parametrize("growth", [1, -1])
def test_long_runs_at_their_ends(growth: int) -> None:
    """Where single precision has no more digits than it takes: at both ends of each of 46,000 runs."""
    count = 46_000
    search = Growing(1 if growth > 0 else count, growth, count)
    assert search.is_exact()
    runs = np.arange(count)
    starts = np.array([search.start(run) for run in range(count + 1)])
    for positions in (starts[:-1], starts[1:] - 1):
        found, begins = jax.jit(lambda at: search.place(at, {}))(jnp.asarray(positions, jnp.int32))
        np.testing.assert_array_equal(found, runs)
        np.testing.assert_array_equal(begins, starts[:-1])


def test_what_32_bits_do_not_hold() -> None:
    """Too many runs for arithmetic; numbers that are too large for anything."""
    assert not Growing(1, 1, 47_000).is_exact()
    assert not Growing(1 << 18, 1, 3).is_exact()
    assert describe(np.repeat([0, 2**31], 50)) is None
    assert describe(np.repeat([0, -(2**31) - 1], 50)) is None
    ends = np.repeat([2**31 - 1, -(2**31), 5], 50)
    found = describe(ends)
    assert found is not None
    np.testing.assert_array_equal(rebuilt(found, ends.shape), ends)
    assert describe(RNG.integers(0, 9, 4096)) is None
