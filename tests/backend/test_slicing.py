"""Chunks of values as source."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import eqsat
from tests.stages import normal

POINTS = normal(700, 3)


def regularised(x: Any, v: Any) -> Any:
    """(K + I) v."""
    kernel = jnp.exp(-jnp.sum((x[:, None] - x[None]) ** 2, -1))
    return (kernel + jnp.eye(len(x), dtype=x.dtype)) @ v


def causal(x: Any, v: Any) -> Any:
    scores = x @ x.T
    return jnp.where(jnp.arange(len(x)) <= jnp.arange(len(x))[:, None], scores, 0) @ v


def test_indices_that_a_loop_compares_with_those_of_a_chunk_are_stored() -> None:
    """In some loops, XLA takes longer for what it fuses with a comparison of two `iota`s."""
    v = normal(700)
    for fn in (regularised, causal):
        small = eqsat.optimize(fn, budget="300kB")
        plan = small.plan(POINTS, v)
        assert plan.loops
        assert "lax.optimization_barrier(lax.iota(jnp.int32, 700))" in plan.source
        np.testing.assert_allclose(small(POINTS, v), fn(POINTS, v), rtol=1e-4, atol=1e-4)


def test_indices_outside_of_loops_are_counted() -> None:
    plan = eqsat.optimize(regularised, budget="1GB").plan(POINTS, normal(700))
    assert not plan.loops
    assert "optimization_barrier(lax.iota" not in plan.source
