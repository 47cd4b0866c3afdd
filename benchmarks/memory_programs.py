"""The programs whose memory is measured, one of each family, with their budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax


@dataclass(frozen=True)
class Program:
    """A function, the shapes of its arguments, and a budget in bytes."""

    function: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    budget: int

    def arguments(self) -> list[jax.Array]:
        """Draws normally distributed arguments."""
        keys = jax.random.split(jax.random.key(0), len(self.shapes))
        return [jax.random.normal(key, shape) for key, shape in zip(keys, self.shapes, strict=True)]


def squared_exponential(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.exp(-0.5 * jnp.sum((x[:, None] - y[None]) ** 2, -1))


def kernel_matvec(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    return squared_exponential(x, y) @ v


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hid,hjd->hij", q, k) / jnp.sqrt(q.shape[-1])
    return jnp.einsum("hij,hjd->hid", jax.nn.softmax(scores, -1), v)


def nearest(queries: jax.Array, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    distances = jnp.sum(queries**2, 1)[:, None] - 2 * queries @ points.T + jnp.sum(points**2, 1)
    least, indices = lax.top_k(-distances, 10)
    return -least, indices


def sparse_gp(z: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    kernel = squared_exponential(z, z) + 0.1 * jnp.eye(len(z))
    factor = jnp.linalg.cholesky(kernel)
    cross = jsp.linalg.solve_triangular(factor, squared_exponential(z, x), lower=True)
    inner = jnp.eye(len(z)) + cross @ cross.T
    lower = jnp.linalg.cholesky(inner)
    projected = jsp.linalg.solve_triangular(lower, cross @ y, lower=True)
    return jnp.sum(jnp.log(jnp.diag(lower))) - 0.5 * projected @ projected + 0.5 * y @ y


def chain(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    return (a @ b) @ c


def ranking(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.argsort(jnp.sin(x[:, None] * y), axis=1)[:, ::1000]


def whitened(z: jax.Array, x: jax.Array) -> jax.Array:
    factor = jnp.linalg.cholesky(squared_exponential(z, z) + 0.1 * jnp.eye(len(z)))
    return jnp.sum(jsp.linalg.cho_solve((factor, True), squared_exponential(z, x)) ** 2, 0)


def power_iteration(x: jax.Array, v: jax.Array) -> jax.Array:
    def step(v: jax.Array, _: None) -> tuple[jax.Array, None]:
        v = squared_exponential(x, x) @ v
        return v / jnp.linalg.norm(v), None

    return lax.scan(step, v, None, length=3)[0]


def gram(x: jax.Array, z: jax.Array) -> jax.Array:
    features = squared_exponential(x, z)
    return features.T @ features


MB = 10**6

PROGRAMS = {
    "kernel matvec": Program(kernel_matvec, [(10_000, 3), (10_000, 3), (10_000,)], 20 * MB),
    "attention": Program(attention, [(4, 4096, 32)] * 3, 30 * MB),
    "nearest neighbours": Program(nearest, [(2000, 8), (50_000, 8)], 25 * MB),
    "sparse GP": Program(sparse_gp, [(200, 3), (100_000, 3), (100_000,)], 40 * MB),
    "gradient of a sparse GP": Program(
        jax.grad(sparse_gp, (0,)), [(200, 3), (100_000, 3), (100_000,)], 50 * MB
    ),
    "matrix chain": Program(chain, [(10_000, 10), (10, 8000), (8000, 10)], 10 * MB),
    "ranking": Program(ranking, [(160,), (100_000,)], 20 * MB),
    "Cholesky solve": Program(whitened, [(300, 3), (200_000, 3)], 40 * MB),
    "power iteration": Program(power_iteration, [(9000, 3), (9000,)], 20 * MB),
    "Gram matrix": Program(gram, [(200_000, 3), (300, 3)], 30 * MB),
}
