"""Conjugate gradients with a dense kernel matrix that is never stored.

    python -m benchmarks.beyond.conjugate_gradients [--quick] [--runs N]

The program written by hand multiplies the matrix by a vector by `lax.map` over its rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.sparse.linalg import cg

from benchmarks.beyond.table import Case, main
from examples.programs import squared_distances

Array = Any
STEPS = 5
"""The number of steps. With each step, rounding errors grow tenfold, however products are computed."""

NOISE = 10.0


def ridge(x: Array, y: Array) -> Array:
    """Returns the weights of kernel ridge regression, by a few steps of conjugate gradients."""
    gram = jnp.exp(-0.5 * squared_distances(x, x))
    return cg(lambda v: gram @ v + NOISE * v, y, tol=0.0, maxiter=STEPS)[0]


def by_rows(x: Array, y: Array, length: int) -> Array:
    def product(v: Array) -> Array:
        rows = lax.map(
            lambda some: jnp.exp(-0.5 * squared_distances(some, x)) @ v, x.reshape(-1, length, x.shape[1])
        )
        return rows.reshape(-1) + NOISE * v

    return cg(product, y, tol=0.0, maxiter=STEPS)[0]


def data(points: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(points, 3)).astype(np.float32)
    return x, (np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=points)).astype(np.float32)


CASES = tuple(
    Case(
        f"{STEPS} steps, {points:,} points",
        ridge,
        partial(data, points),
        ("10MB",),
        {"lax.map over 100 rows": partial(by_rows, length=100)},
    )
    for points in (5_000, 10_000)
)
QUICK = (
    Case("1,000 points", ridge, partial(data, 1_000), ("500kB",), {"lax.map": partial(by_rows, length=50)}),
)

if __name__ == "__main__":
    main("conjugate_gradients", __doc__.splitlines()[0], CASES, QUICK)
