"""Where entries tie, each gets the share of the gradient that JAX gives it, within a small budget."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.certificate import certify

RNG = np.random.default_rng(0)
X, Y = (RNG.integers(-1, 2, length).astype(np.float32) for length in (120, 90))
"""Of their differences, many are equal, and many 0."""

PART = 0.3
"""The budget, of what plain JAX needs besides arguments and results."""

SEGMENTS = np.arange(120) % 5

FUNCTIONS = {
    "max": lambda v: jnp.max(v, 1),
    "min": lambda v: jnp.min(v, 0),
    "segment_max": lambda v: jax.ops.segment_max(v, SEGMENTS, 5),
    "sort": lambda v: jnp.sort(v, 1)[:, ::11],
    "top_k": lambda v: jax.lax.top_k(v, 4)[0],
    "maximum": lambda v: jnp.maximum(v, X[:, None]),
    "clip": lambda v: jnp.clip(v, -1, 1),
    "relu": jax.nn.relu,
    "abs": jnp.abs,
    "max of relu": lambda v: jnp.max(jax.nn.relu(v), 0),
}

TOGETHER = [
    ("max", "min", "abs"),
    ("segment_max", "clip"),
    ("sort", "top_k"),
    ("maximum", "relu", "max of relu"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("names", TOGETHER, ids=" ".join)
def test_each_tie_gets_its_share(names: tuple[str, ...]) -> None:
    def total(x: Any, y: Any) -> Any:
        values = [FUNCTIONS[name](x[:, None] - y) for name in names]
        # No two entries weigh the same.
        return sum(jnp.sum(v * jnp.sin(1.0 + jnp.arange(v.size)).reshape(v.shape)) for v in values)

    gradient = jax.grad(total, (0, 1))
    original = certify(gradient, (X, Y))
    budget = original.fixed + int(PART * (original.peak - original.fixed))
    optimized = eqsat.optimize(gradient, budget=budget, max_slowdown=None)
    assert optimized.plan(X, Y).changed
    for result, wanted in zip(optimized(X, Y), gradient(jnp.asarray(X), jnp.asarray(Y)), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
