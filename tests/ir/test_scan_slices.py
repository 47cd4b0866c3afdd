"""How scans take slices of arrays in which another axis comes first."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.axis import Axis
from eqsat.ir.scan_slices import is_indexed, lies_apart
from tests.stages import normal

SERIES, TIME, FEATURES = Axis(0, 4_000), Axis(1, 200), Axis(2, 16)


def test_an_array_lies_apart_if_the_scanned_axis_is_not_first() -> None:
    assert lies_apart((SERIES, TIME), TIME)
    assert not lies_apart((TIME, SERIES), TIME)
    assert not lies_apart(None, TIME)
    assert not lies_apart((SERIES, TIME), None)


def test_slices_are_taken_by_their_number_if_they_are_runs_or_in_the_cache() -> None:
    def indexed(order: tuple[Axis, ...], most: int, dtype: str = "float32") -> bool:
        return is_indexed(order, TIME, dtype, lambda axis: axis.size, most, 64)

    assert indexed((SERIES, TIME), 3_200_000)
    assert not indexed((SERIES, TIME), 3_199_999)
    assert indexed((SERIES, TIME), 3_199_999, "float16")
    assert indexed((SERIES, TIME, FEATURES), 1)
    assert not indexed((SERIES, TIME, FEATURES), 1, "int8")
    assert not indexed((SERIES, TIME, FEATURES), 0)


def smoothed(series: Any) -> Any:
    """A filter forwards in time, and a smoother backwards."""

    def forwards(state: Any, x: Any) -> Any:
        state = 0.9 * state + 0.1 * x
        return state, (state, jnp.log1p(state**2))

    last, (states, costs) = lax.scan(forwards, jnp.float32(0), series)
    _, found = lax.scan(lambda s, x: (0.5 * s + x,) * 2, last, states, reverse=True)
    return costs.sum(), found.mean()


@pytest.mark.parametrize("features", [1, 24])
def test_a_batch_of_scans_needs_no_copy_of_what_it_reads(features: int) -> None:
    """Scans of a batch read its columns: what is copied for that is as large as the batch."""
    x = normal(1_000, features * 60)
    fn = jax.vmap(lambda one: jax.vmap(smoothed, 1)(one.reshape(60, features)))
    plain = jax.jit(fn).lower(x).compile().memory_analysis()
    results = jax.jit(fn)(x)
    budget = x.nbytes + sum(one.nbytes for one in results) + plain.temp_size_in_bytes // 10
    assert plain.temp_size_in_bytes // 10 < x.nbytes
    optimized = eqsat.optimize(fn, budget=budget)
    assert optimized.plan(x).peak_bytes <= budget
    for found, wanted in zip(optimized(x), results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
