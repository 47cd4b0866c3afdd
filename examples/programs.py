"""The programs of the demo and the benchmarks, in plain JAX, written as the mathematics reads.

In each, a large intermediate value takes the memory. Each comes with generated data and a reference in double
precision, which covers only a few rows if the whole result would take too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from examples.comparison import in_double_precision
from examples.data import images

Array = Any
NEIGHBOURS = 10
REFERENCE_ROWS = 100


# Programs.


def squared_distances(x: Array, y: Array) -> Array:
    """Returns |x_i - y_j|^2, by the formula as it stands."""
    return jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)


def kernel_matvec(x: Array, y: Array, v: Array) -> Array:
    """Returns a squared-exponential kernel matrix times a vector."""
    return jnp.exp(-0.5 * squared_distances(x, y)) @ v


def nearest_neighbours(database: Array, queries: Array) -> tuple[Array, Array]:
    """Returns the squared distances and the positions of every query's nearest neighbours."""
    products = database @ queries.T
    distances = jnp.sum(database**2, axis=1)[:, None] - 2 * products + jnp.sum(queries**2, axis=1)
    negated, positions = lax.top_k(-distances.T, NEIGHBOURS)
    return -negated, positions


def attention(q: Array, k: Array, v: Array) -> Array:
    """Returns one head of softmax attention."""
    return jax.nn.softmax(q @ k.T / math.sqrt(q.shape[-1]), axis=-1) @ v


def chain(a: Array, b: Array, v: Array) -> Array:
    """Returns the product of two matrices and a vector, from left to right."""
    return a @ b @ v


def sparse_gp_bound(params: dict[str, Array], x: Array, y: Array) -> Array:
    """Returns the collapsed lower bound of sparse Gaussian process regression (Titsias 2009)."""
    scale = jnp.exp(-params["log_lengthscales"])
    variance, noise = jnp.exp(params["log_variance"]), jnp.exp(params["log_noise"])
    z = params["inducing"]
    n, m = x.shape[0], z.shape[0]

    def kernel(left: Array, right: Array) -> Array:
        return variance * jnp.exp(-0.5 * squared_distances(left * scale, right * scale))

    identity = jnp.eye(m, dtype=x.dtype)
    chol_uu = jnp.linalg.cholesky(kernel(z, z) + 1e-4 * variance * identity)
    a = solve_triangular(chol_uu, kernel(z, x), lower=True) / jnp.sqrt(noise)
    aat = a @ a.T
    chol_b = jnp.linalg.cholesky(identity + aat)
    c = solve_triangular(chol_b, a @ y, lower=True) / jnp.sqrt(noise)
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diag(chol_b))) + n * jnp.log(noise)
    fit = jnp.sum(y**2) / noise - jnp.sum(c**2)
    slack = n * variance / noise - jnp.trace(aat)
    return -0.5 * (n * math.log(2 * math.pi) + log_determinant + fit + slack)


sparse_gp = jax.value_and_grad(sparse_gp_bound)
"""The bound and its gradient with respect to all parameters, inducing inputs included."""


# Data.


def kernel_data(n: int, dimensions: int = 3, seed: int = 0) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n, dimensions)).astype(np.float32)
    return x, y, rng.normal(size=n).astype(np.float32)


def attention_data(positions: int, width: int = 64, seed: int = 0) -> tuple[Array, ...]:
    return tuple(np.random.default_rng(seed).normal(size=(3, positions, width)).astype(np.float32))


def chain_data(n: int, inner: int, seed: int = 0) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, inner)), rng.normal(size=(inner, n))
    return a.astype(np.float32), b.astype(np.float32), rng.normal(size=n).astype(np.float32)


def sparse_gp_data(n: int, inducing: int, dimensions: int = 8, seed: int = 0) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dimensions)).astype(np.float32)
    y = np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.5 * np.tanh(x[:, 2]) + 0.1 * rng.normal(size=n)
    params = {
        "log_lengthscales": np.full(dimensions, math.log(2), np.float32),
        "log_variance": np.float32(0),
        "log_noise": np.float32(math.log(0.05)),
        "inducing": x[rng.choice(n, inducing, replace=False)],
    }
    return params, x, y.astype(np.float32)


# What the demo and the benchmarks run.


@dataclass(frozen=True)
class Example:
    """A program with its data and a budget.

    **Attributes:**

    - `budget`: the budget in bytes, or a float: a fraction of what plain JAX needs.
    - `reference`: computes from the arguments, in float64, what `part` of the result should be.
    """

    title: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    budget: int | float
    reference: Callable[..., Any]
    part: Callable[[Any], Any] = lambda result: result
    reference_note: str = "float64, all of it"


def first_rows(result: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[:REFERENCE_ROWS], result)


def demo_examples(data: Path | None = None) -> list[Example]:
    """Returns the demo's programs at the demo's sizes; `data` is a folder with MNIST, or None."""
    some_rows = f"float64, {REFERENCE_ROWS} rows"
    points = "MNIST" if data else "generated"
    return [
        Example(
            "Kernel matrix times vector: exp(-|x-y|²/2) @ v, 100,000 × 100,000 points, d = 3",
            kernel_matvec,
            lambda: kernel_data(100_000),
            500_000_000,
            lambda x, y, v: in_double_precision(kernel_matvec)(x[:REFERENCE_ROWS], y, v),
            first_rows,
            some_rows,
        ),
        Example(
            f"Nearest neighbours: 10 of 60,000 × 784 for 10,000 queries, {points} data",
            nearest_neighbours,
            lambda: images(data, 60_000, 10_000),
            300_000_000,
            lambda x, q: in_double_precision(nearest_neighbours)(x, q[:REFERENCE_ROWS])[0],
            lambda result: first_rows(result[0]),
            f"float64 distances, {REFERENCE_ROWS} rows",
        ),
        Example(
            "Softmax attention: softmax(q kᵀ / √64) @ v over 8,192 positions",
            attention,
            lambda: attention_data(8_192),
            50_000_000,
            lambda q, k, v: in_double_precision(attention)(q[:REFERENCE_ROWS], k, v),
            first_rows,
            some_rows,
        ),
        Example(
            "Matrix chain: A @ B @ v with A 20,000 × 500, B 500 × 20,000",
            chain,
            lambda: chain_data(20_000, 500),
            100_000_000,
            lambda a, b, v: a.astype(np.float64) @ (b.astype(np.float64) @ v.astype(np.float64)),
        ),
        Example(
            "Sparse GP bound (Titsias 2009) and its gradient, n = 40,000, m = 500, d = 8",
            sparse_gp,
            lambda: sparse_gp_data(40_000, 500),
            0.1,
            in_double_precision(sparse_gp),
        ),
    ]
