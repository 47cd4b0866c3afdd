"""Points far from the origin, near each other: what plain JAX keeps of their distances is kept."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.language.accuracies import Accuracy
from examples.comparison import in_double_precision
from examples.measure import difference, plain_peak

OFFSET = 1e4
"""Coordinates; distances are near 1. In single precision a square of such a coordinate is off by 8."""


def squared(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum((x[:, None] - y) ** 2, axis=-1)


PROGRAMS: dict[str, Callable[..., jax.Array]] = {
    "kernel times vector": lambda x, y, v: jnp.exp(-0.5 * squared(x, y)) @ v,
    "nearest": lambda x, y, v: jnp.sqrt(jnp.min(squared(x, y), axis=1)),
    "three nearest": lambda x, y, v: -jax.lax.top_k(-squared(x, y), 3)[0],
    "farthest in one coordinate": lambda x, y, v: jnp.max(jnp.abs(x[:, None] - y), axis=(1, 2)),
    "softmax of distances": lambda x, y, v: jax.nn.softmax(-squared(x, y), axis=1) @ v,
    "gradient": jax.grad(lambda x, y, v: jnp.sum(jnp.exp(-0.5 * squared(x, y)) @ v)),
}


# With "cancels", sums of differences become differences of sums, not centred: that does cost digits.
CASES = [(name, "reassociates") for name in PROGRAMS] + [
    (name, "cancels") for name in PROGRAMS if name != "gradient"
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "accuracy"), CASES)
def test_a_large_offset_costs_no_digits(name: str, accuracy: Accuracy) -> None:
    rng = np.random.default_rng(0)
    scale = 0.4  # of distances near 1
    x, y = ((OFFSET + scale * rng.normal(size=(n, 3))).astype(np.float32) for n in (501, 701))
    v = rng.normal(size=701).astype(np.float32)
    function = PROGRAMS[name]
    budget = plain_peak(function, (x, y, v)) // 5
    optimized = eqsat.optimize(function, budget=budget, accuracy=accuracy)
    assert optimized.plan(x, y, v).peak_bytes <= budget
    reference = in_double_precision(function)(x, y, v)
    plain = difference(jax.jit(function)(x, y, v), reference)
    # Centred first, what cancels does so among numbers of the size of the distances.
    assert difference(optimized(x, y, v), reference) <= max(
        2 * plain, 2e-6 if accuracy != "cancels" else 2e-5
    )
