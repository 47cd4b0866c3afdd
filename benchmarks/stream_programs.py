"""Functions of the rows of a large array, as anyone would write them in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

COLUMNS = 8

random = np.random.default_rng(0)
CENTRES = random.standard_normal((64, COLUMNS)).astype(np.float32)
QUERIES = random.standard_normal((200, COLUMNS)).astype(np.float32)
WEIGHTS = random.standard_normal(64).astype(np.float32)
TAPS = random.standard_normal(16).astype(np.float32)
WINDOW = 32
INDUCING = random.standard_normal((100, COLUMNS)).astype(np.float32)


def squared(x: Any, y: Any) -> Any:
    return jnp.sum((x[:, None] - y[None]) ** 2, axis=-1)


def moments(x: Any) -> Any:
    return jnp.mean(x, 0), jnp.var(x, 0)


def principal(x: Any) -> Any:
    centred = x - jnp.mean(x, 0)
    return jnp.linalg.eigh(centred.T @ centred / x.shape[0])


def kernel(x: Any) -> Any:
    return jnp.exp(-0.5 * squared(x, CENTRES)) @ WEIGHTS


def nearest(x: Any) -> Any:
    return jax.lax.top_k(-squared(QUERIES, x), 5)


def lloyd(x: Any) -> Any:
    labels = jnp.argmin(squared(x, CENTRES), axis=1)
    count = len(CENTRES)
    totals = jax.ops.segment_sum(x, labels, count)
    return totals / jnp.maximum(jax.ops.segment_sum(jnp.ones(x.shape[0]), labels, count), 1.0)[:, None]


def bound(parameters: Any, x: Any) -> Any:
    """The collapsed bound of a sparse Gaussian process, of targets that are a sum of the columns."""
    scale, noise = jnp.exp(parameters["scale"]), jnp.exp(parameters["noise"])
    y = jnp.sum(jnp.sin(x), axis=1)
    inducing = parameters["inducing"] / scale
    inner = jnp.exp(-0.5 * squared(inducing, inducing)) + 1e-4 * jnp.eye(len(inducing))
    cross = jnp.exp(-0.5 * squared(inducing, x / scale))
    n = x.shape[0]
    factor = jnp.linalg.cholesky(inner)
    second = jax.scipy.linalg.solve_triangular(factor, cross @ cross.T / n, lower=True)
    second = jax.scipy.linalg.solve_triangular(factor, second.T, lower=True) + noise / n * jnp.eye(len(inner))
    outer = jnp.linalg.cholesky(second)
    target = jax.scipy.linalg.solve_triangular(factor, cross @ y / n, lower=True)
    target = jax.scipy.linalg.solve_triangular(outer, target, lower=True)
    fit = jnp.sum(y * y) / n - jnp.sum(target**2)
    return fit / noise + 2 * jnp.sum(jnp.log(jnp.diagonal(outer))) / n + jnp.log(noise)


def gradient(x: Any) -> Any:
    parameters = {"scale": jnp.zeros(COLUMNS), "noise": jnp.float32(0.0), "inducing": INDUCING}
    return jax.value_and_grad(bound)(parameters, x)


def filtered(x: Any) -> Any:
    """The power of each column behind a filter along the rows."""
    y = jax.vmap(lambda column: jnp.convolve(column, TAPS, mode="valid"), in_axes=1, out_axes=1)(x)
    return jnp.mean(y**2, 0)


def highest(x: Any) -> Any:
    """The mean of the highest of so many rows in a row."""
    return jnp.mean(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (WINDOW, 1), (1, 1), "VALID"), 0)


def histogram(x: Any) -> Any:
    return jnp.histogram(x[:, 0], bins=50, range=(-5.0, 5.0))[0]


def median(x: Any) -> Any:
    return jnp.median(x[:, 0])


def largest(x: Any) -> Any:
    return jax.lax.top_k(x @ CENTRES[0], 100)
