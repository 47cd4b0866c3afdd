"""The best entries by the maxima of blocks are those of `lax.top_k`, in its order, whatever the entries."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.backend.selection import FUNCTIONS
from eqsat.ir.selection import by_blocks, leaves_to_library

NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf]

Selects = Callable[[Any], tuple[Any, Any]]


def emitted() -> dict[str, Any]:
    """What the text of the emitted functions defines."""
    namespace: dict[str, Any] = {"jnp": jnp, "lax": lax}
    exec(FUNCTIONS, namespace)
    return namespace


@functools.cache
def selections(k: int) -> tuple[Selects, Selects]:
    """What is emitted, and JAX's own."""
    top_k = emitted()["top_k"]
    return jax.jit(lambda a: top_k(a, k)), jax.jit(lambda a: lax.top_k(a, k))


def check(a: np.ndarray[Any, Any], k: int) -> None:
    """The same entries, to the bit, from the same places."""
    ours, theirs = selections(k)
    (values, places), (wanted, where) = ours(a), theirs(a)
    assert (values.dtype, places.dtype) == (wanted.dtype, where.dtype)
    np.testing.assert_array_equal(places, where)
    assert np.asarray(values).tobytes() == np.asarray(wanted).tobytes()


def rows(seed: int, length: int, dtype: str, levels: int, specials: list[float]) -> np.ndarray[Any, Any]:
    """Rows of few different entries, in which some are special and one row is of one entry only."""
    rng = np.random.default_rng(seed)
    if jnp.issubdtype(jnp.dtype(dtype), jnp.integer):
        bounds = jnp.iinfo(jnp.dtype(dtype))
        low, high = max(bounds.min, -levels), min(bounds.max, levels)
        a = rng.integers(low, high, (3, length), endpoint=True)
        a[rng.random(a.shape) < 0.001] = bounds.max
        a[1] = bounds.min
        return a.astype(dtype)
    a = rng.integers(-levels, levels, (3, length), endpoint=True) / 4
    for special in specials:
        a[0, rng.random(length) < rng.choice([0.002, 0.3])] = special
    a[1] = specials[0] if specials else -math.inf
    return np.asarray(jnp.asarray(a).astype(dtype))


@pytest.mark.parametrize("length", [2048, 5003])
@given(
    seed=st.integers(0, 2**31),
    levels=st.sampled_from([0, 1, 30, 10_000]),
    specials=st.lists(st.sampled_from([*NUMBERS, math.nan, -math.nan]), max_size=3),
    k=st.sampled_from([1, 2, 10]),
)
@settings(max_examples=40)
def test_ties_zeros_infinities_and_nan_are_selected_as_by_jax(
    length: int, seed: int, levels: int, specials: list[float], k: int
) -> None:
    assert by_blocks(k, length, "float32")
    check(rows(seed, length, "float32", levels, specials), k)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int8", "uint32"])
@pytest.mark.parametrize("length", [70, 2003])
def test_what_xla_would_sort_is_selected_in_the_same_order(dtype: str, length: int) -> None:
    assert not leaves_to_library(7, length, dtype)
    with jax.enable_x64(True):
        for seed, levels in enumerate([0, 3, 10_000]):
            check(rows(seed, length, dtype, levels, [math.nan, -0.0, 0.0]), 7)


def test_more_entries_than_are_found_one_after_another() -> None:
    with jax.enable_x64(True):
        check(rows(0, 5000, "float64", 100, [math.nan, math.inf]), 80)


def test_all_entries_of_a_row_that_are_the_least() -> None:
    """What has been found is not found again, where nothing is greater."""
    with jax.enable_x64(True):
        check(np.full((2, 65), -(2**63), np.int64), 60)


@pytest.mark.parametrize("budget", ["2MB", "300kB"])
def test_selections_in_loops_over_either_axis(budget: str) -> None:
    """Over the rows of which entries are selected, and over the entries."""

    def nearest(q: jax.Array, x: jax.Array) -> list[jax.Array]:
        distances = jnp.round(4 * jnp.sum((q[:, None] - x) ** 2, -1))
        return lax.top_k(-distances, 5)

    rng = np.random.default_rng(0)
    q, x = rng.normal(size=(100, 3)).astype("f4"), rng.normal(size=(10_007, 3)).astype("f4")
    values, places = eqsat.optimize(nearest, budget=budget)(q, x)
    wanted, where = jax.jit(nearest)(q, x)
    np.testing.assert_array_equal(values, wanted)
    np.testing.assert_array_equal(places, where)


def test_a_selection_from_long_rows_is_rewritten_where_it_fits() -> None:
    """It is faster by blocks than by XLA's function for it, of which the function as it is makes use."""
    rows = jax.ShapeDtypeStruct((100, 100_000), jnp.float32)
    plan = eqsat.optimize(lambda a: lax.top_k(a, 10), budget="1GB").plan(rows)
    assert "top_k(a, 10)" in plan.source
    assert "lax.sort" not in plan.source
    short = jax.ShapeDtypeStruct((100_000, 100), jnp.float32)
    assert not eqsat.optimize(lambda a: lax.top_k(a, 10), budget="1GB").plan(short).changed
