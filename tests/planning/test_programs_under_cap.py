"""Programs under a cap: bodies of control flow are planned whole, and for chunks of loops around them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import eqsat
from tests.stages import normal


def test_bodies_have_no_loops_where_a_loop_around_them_does() -> None:
    """Under a cap, a body for all rows would need loops of its own; one for a chunk of rows does not."""
    x, w = normal(4096, 12), normal(4, 12, 12)

    def loss(w: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            wide = jnp.tanh((h @ w)[:, :, None] / jnp.arange(8.0, 24.0))
            wide = jnp.cumsum(wide, 2) * wide[:, ::-1]
            return jnp.sin(wide).mean(2), None

        return (lax.scan(layer, x, w)[0] ** 2).mean()

    step = jax.value_and_grad(loss)
    plain = eqsat.optimize(step, budget="1GB").plan(w, x)
    fixed = x.nbytes + 2 * w.nbytes
    optimized = eqsat.optimize(step, budget=fixed + (plain.peak_bytes - fixed) // 40)
    plan = optimized.plan(w, x)
    assert [loop.size for loop in plan.loops] == [4096]
    for found, other in zip(
        jax.tree.leaves(optimized(w, x)), jax.tree.leaves(jax.jit(step)(w, x)), strict=True
    ):
        np.testing.assert_allclose(found, other, rtol=1e-3, atol=1e-4)
