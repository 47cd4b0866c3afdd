"""The best entries of several axes at once: those of all entries in their order, whatever these are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.frontend.merged_selections import place_over_axes, top_over_axes
from eqsat.ir.ops import Opaque
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

VALUES: dict[str, list[Any]] = {
    "float32": [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, 2.0, 1e-40],
    "float16": [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0],
    "int8": [-128, 127, 0, 1, 1],
    "uint32": [0, 1, 2**32 - 1],
}
SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=4)
SETTINGS = settings(max_examples=200 if THOROUGH else 12)


def drawn(data: st.DataObject, shape: list[int], dtypes: list[str]) -> Any:
    dtype = data.draw(st.sampled_from(dtypes))
    size = int(np.prod(shape))
    entries = data.draw(st.lists(st.sampled_from(VALUES[dtype]), min_size=size, max_size=size))
    return jnp.asarray(np.array(entries, dtype).reshape(shape))


@SETTINGS
@given(SHAPES, st.sampled_from(["argmax", "argmin"]), st.data())
def test_places_of_hostile_entries(shape: list[int], kind: str, data: st.DataObject) -> None:
    array = drawn(data, shape, sorted(VALUES))
    count = data.draw(st.integers(2, len(shape)))
    first = data.draw(st.integers(0, len(shape) - count))
    merged = array.reshape(*shape[:first], -1, *shape[first + count :])
    wanted = (lax.argmax if kind == "argmax" else lax.argmin)(merged, first, jnp.int32)
    found = place_over_axes(kind, array, first, count, "int32")
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)


@SETTINGS
@given(SHAPES, st.integers(1, 6), st.data())
def test_the_best_of_hostile_entries(shape: list[int], k: int, data: st.DataObject) -> None:
    array = drawn(data, shape, sorted(VALUES))
    first = data.draw(st.integers(0, len(shape) - 2))
    k = min(k, int(np.prod(shape[first:])))
    wanted = lax.top_k(array.reshape(*shape[:first], -1), k)
    for found, other in zip(top_over_axes(array, k, first, "int32"), wanted, strict=True):
        assert (found.shape, found.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(found, other)


def closest(x: Any) -> Any:
    """The closest pairs of different points, and how far they are apart."""
    distances = jnp.sum((x[:, None] - x[None]) ** 2, -1)
    values, places = lax.top_k(-(distances + jnp.where(jnp.eye(len(x)) > 0, jnp.inf, 0)).ravel(), 10)
    return -values, places // len(x), places % len(x)


CASES = {
    "best pair": lambda x: jnp.unravel_index(jnp.argmax(x @ x.T), (len(x), len(x))),
    "worst pair": lambda x: jnp.argmin((jnp.abs(x @ x.T) + 1).reshape(-1)),
    "closest pairs": closest,
    "best of each": lambda x: jnp.argmax((x[:, None, None] * x[None, :, :7, None]).reshape(len(x), -1), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_matrix_is_never_whole(name: str) -> None:
    fn, x = CASES[name], normal(601, 8)
    program, _ = lowered(fn, x)
    calls = {term.op.call.primitive.name for term in program.reachable() if isinstance(term.op, Opaque)}
    assert "reshape" not in calls or name == "closest pairs"
    optimized = eqsat.optimize(fn, budget="300kB")
    assert optimized.plan(x).peak_bytes < 601 * 601
    for found, wanted in zip(jax.tree.leaves(optimized(x)), jax.tree.leaves(jax.jit(fn)(x)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
