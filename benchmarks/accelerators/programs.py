"""The programs, with the loops that a person would write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp

Array = Any
Sides = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Program:
    """A function of arrays.

    **Attributes:**

    - `sides`: the shapes of its arguments; `small`: smaller ones, to try it out.
    - `by_hand`: given the length of a chunk, the same function with a loop over chunks.
    - `long`: the length of the axis that this loop is over; `short`: that for `small`.
    - `limits`: for arguments that are integers, the number of their values, by position.
    """

    name: str
    function: Callable[..., Any]
    sides: Sides
    small: Sides
    by_hand: Callable[[int], Callable[..., Any]] | None = None
    axis: tuple[int, int] = (0, 0)
    limits: tuple[int, ...] = ()
    dtype: Any = jnp.float32

    def shapes(self, small: bool = False) -> list[jax.ShapeDtypeStruct]:
        sides = self.small if small else self.sides
        dtypes = [jnp.int32 if number < len(self.limits) and self.limits[number] else self.dtype
                  for number in range(len(sides))]  # fmt: skip
        return [jax.ShapeDtypeStruct(side, dtype) for side, dtype in zip(sides, dtypes, strict=True)]

    def arguments(self, small: bool = False) -> list[Array]:
        """Normal numbers, or uniform integers."""
        generator = np.random.default_rng(0)
        found = []
        for number, shape in enumerate(self.shapes(small)):
            if shape.dtype == jnp.int32:
                limit = min(self.limits[number], max(self.small[0][0], 1)) if small else self.limits[number]
                found.append(jnp.asarray(generator.integers(0, limit, shape.shape), jnp.int32))
            else:
                values = generator.standard_normal(shape.shape, np.float32)
                found.append(jnp.asarray(values.astype(shape.dtype)))
        return found

    def length(self, small: bool = False) -> int:
        """The length of the axis of the loop by hand."""
        argument, dimension = self.axis
        return (self.small if small else self.sides)[argument][dimension]


def squared_distances(x: Array, y: Array) -> Array:
    return jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)


def rows(function: Callable[..., Any], chunk: int, *arrays: Array) -> Any:
    """A function of rows in chunks; none of its values is kept for the gradient."""
    return lax.map(lambda row: jax.checkpoint(function)(*row), arrays, batch_size=chunk)


def kernel_matvec(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-0.5 * squared_distances(x, y)) @ v


def kernel_matvec_by_hand(chunk: int) -> Callable[..., Any]:
    def function(x: Array, y: Array, v: Array) -> Array:
        return rows(lambda row: jnp.exp(-0.5 * jnp.sum((row - y) ** 2, -1)) @ v, chunk, x)

    return function


def kernel_loss(x: Array, y: Array, v: Array) -> Array:
    return jnp.sum(kernel_matvec(x, y, v) ** 2)


def kernel_gradient_by_hand(chunk: int) -> Callable[..., Any]:
    return jax.grad(lambda x, y, v: jnp.sum(kernel_matvec_by_hand(chunk)(x, y, v) ** 2))


def laplace(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-jnp.sum(jnp.abs(x[:, None, :] - y[None, :, :]), axis=-1)) @ v


def laplace_by_hand(chunk: int) -> Callable[..., Any]:
    def function(x: Array, y: Array, v: Array) -> Array:
        return rows(lambda row: jnp.exp(-jnp.sum(jnp.abs(row - y), -1)) @ v, chunk, x)

    return function


def density(x: Array, y: Array) -> Array:
    return logsumexp(-0.5 * squared_distances(x, y), axis=1)


def density_by_hand(chunk: int) -> Callable[..., Any]:
    return lambda x, y: rows(lambda row: logsumexp(-0.5 * jnp.sum((row - y) ** 2, -1)), chunk, x)


def nearest(x: Array, y: Array) -> Array:
    return jnp.argmin(squared_distances(x, y), axis=1)


def nearest_by_hand(chunk: int) -> Callable[..., Any]:
    return lambda x, y: rows(lambda row: jnp.argmin(jnp.sum((row - y) ** 2, -1)), chunk, x)


def neighbours(x: Array, y: Array) -> Array:
    distances = jnp.sum(x**2, 1)[:, None] + jnp.sum(y**2, 1)[None, :] - 2 * x @ y.T
    return lax.top_k(-distances, 10)[1]


def neighbours_by_hand(chunk: int) -> Callable[..., Any]:
    def function(x: Array, y: Array) -> Array:
        squares = jnp.sum(y**2, 1)
        return rows(lambda row: lax.top_k(2 * y @ row - squares, 10)[1], chunk, x)

    return function


def attention(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def attention_by_hand(chunk: int) -> Callable[..., Any]:
    def function(q: Array, k: Array, v: Array) -> Array:
        def row(one: Array) -> Array:
            scores = jnp.einsum("hd,hkd->hk", one, k) / np.sqrt(one.shape[-1])
            return jnp.einsum("hk,hkd->hd", jax.nn.softmax(scores, axis=-1), v)

        return rows(row, chunk, q.transpose(1, 0, 2)).transpose(1, 0, 2)

    return function


def attention_loss(q: Array, k: Array, v: Array) -> Array:
    return jnp.sum(attention(q, k, v) ** 2)


def attention_gradient_by_hand(chunk: int) -> Callable[..., Any]:
    return jax.grad(lambda q, k, v: jnp.sum(attention_by_hand(chunk)(q, k, v) ** 2), (0, 1, 2))


def cross_entropy(labels: Array, hidden: Array, head: Array) -> Array:
    logits = hidden @ head
    picked = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return jnp.mean(logsumexp(logits, axis=1) - picked)


def cross_entropy_by_hand(chunk: int) -> Callable[..., Any]:
    def loss(labels: Array, hidden: Array, head: Array) -> Array:
        def row(label: Array, one: Array) -> Array:
            logits = one @ head
            return logsumexp(logits) - logits[label]

        return jnp.mean(rows(row, chunk, labels, hidden))

    return jax.value_and_grad(loss, (1, 2))


def sinkhorn(x: Array, y: Array) -> Array:
    cost = squared_distances(x, y)

    def iteration(_: Array, potentials: tuple[Array, Array]) -> tuple[Array, Array]:
        f, g = potentials
        f = -logsumexp(g[None, :] - cost, axis=1)
        return f, -logsumexp(f[:, None] - cost, axis=0)

    start = (jnp.zeros(len(x)), jnp.zeros(len(y)))
    f, g = lax.fori_loop(0, 20, iteration, start)
    return jnp.sum(jnp.exp(f[:, None] + g[None, :] - cost) * cost)


def sinkhorn_by_hand(chunk: int) -> Callable[..., Any]:
    def function(x: Array, y: Array) -> Array:
        def iteration(_: Array, potentials: tuple[Array, Array]) -> tuple[Array, Array]:
            f, g = potentials
            f = rows(lambda row: -logsumexp(g - jnp.sum((row - y) ** 2, -1)), chunk, x)
            return f, rows(lambda row: -logsumexp(f - jnp.sum((row - x) ** 2, -1)), chunk, y)

        f, g = lax.fori_loop(0, 20, iteration, (jnp.zeros(len(x)), jnp.zeros(len(y))))

        def row(one: Array, potential: Array) -> Array:
            cost = jnp.sum((one - y) ** 2, -1)
            return jnp.sum(jnp.exp(potential + g - cost) * cost)

        return jnp.sum(rows(row, chunk, x, f))

    return function


def discrepancy(x: Array, y: Array) -> Array:
    """The maximum mean discrepancy of two samples."""

    def mean(a: Array, b: Array) -> Array:
        return jnp.mean(jnp.exp(-0.5 * squared_distances(a, b)))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def discrepancy_by_hand(chunk: int) -> Callable[..., Any]:
    def mean(a: Array, b: Array) -> Array:
        return jnp.mean(rows(lambda row: jnp.mean(jnp.exp(-0.5 * jnp.sum((row - b) ** 2, -1))), chunk, a))

    return lambda x, y: mean(x, x) + mean(y, y) - 2 * mean(x, y)


def forces(positions: Array, masses: Array) -> Array:
    apart = positions[None, :, :] - positions[:, None, :]
    cubed = (jnp.sum(apart**2, axis=-1) + 1e-3) ** 1.5
    return jnp.sum(masses[None, :, None] * apart / cubed[:, :, None], axis=1)


def forces_by_hand(chunk: int) -> Callable[..., Any]:
    def function(positions: Array, masses: Array) -> Array:
        def row(one: Array) -> Array:
            apart = positions - one
            cubed = (jnp.sum(apart**2, axis=-1) + 1e-3) ** 1.5
            return (masses / cubed) @ apart

        return rows(row, chunk, positions)

    return function


def k_means(x: Array, centres: Array) -> Array:
    """Ten of Lloyd's iterations."""

    def iteration(_: Array, centres: Array) -> Array:
        scores = jnp.sum(centres**2, 1)[None, :] - 2 * x @ centres.T
        labels = jnp.argmin(scores, axis=1)
        sums = jax.ops.segment_sum(x, labels, len(centres))
        counts = jax.ops.segment_sum(jnp.ones(len(x)), labels, len(centres))
        return sums / jnp.maximum(counts, 1)[:, None]

    return lax.fori_loop(0, 10, iteration, centres)


def k_means_by_hand(chunk: int) -> Callable[..., Any]:
    def function(x: Array, centres: Array) -> Array:
        def iteration(_: Array, centres: Array) -> Array:
            squares = jnp.sum(centres**2, 1)
            labels = rows(lambda row: jnp.argmin(squares - 2 * centres @ row), chunk, x)
            sums = jax.ops.segment_sum(x, labels, len(centres))
            counts = jax.ops.segment_sum(jnp.ones(len(x)), labels, len(centres))
            return sums / jnp.maximum(counts, 1)[:, None]

        return lax.fori_loop(0, 10, iteration, centres)

    return function


def clipped_gradients(x: Array, targets: Array, first: Array, second: Array) -> Array:
    """The sum of the gradients of examples, each scaled to a norm of at most one (DP-SGD)."""

    def loss(weights: tuple[Array, Array], one: Array, target: Array) -> Array:
        return jnp.sum((jnp.tanh(one @ weights[0]) @ weights[1] - target) ** 2)

    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))((first, second), x, targets)
    norms = jnp.sqrt(sum(jnp.sum(leaf**2, axis=(1, 2)) for leaf in gradients))
    scale = 1 / jnp.maximum(norms, 1.0)
    return [jnp.einsum("n,nij->ij", scale, leaf) for leaf in gradients]


def messages(senders: Array, receivers: Array, nodes: Array, weights: Array) -> Array:
    """The sums of the messages to each node of a graph."""
    found = jax.nn.relu(nodes[senders] - nodes[receivers]) * weights
    return jax.ops.segment_sum(found, receivers, len(nodes))


def sparse_gp(x: Array, y: Array, inducing: Array) -> Array:
    """The collapsed bound of sparse GP regression, up to a constant (Titsias, 2009, equation 9).

    In single precision: with less noise, or products in TF32, the second factorisation fails on a GPU.
    """
    noise = 10.0
    kuu = jnp.exp(-0.5 * squared_distances(inducing, inducing)) + 0.1 * jnp.eye(len(inducing))
    kuf = jnp.exp(-0.5 * squared_distances(inducing, x))
    factor = jnp.linalg.cholesky(kuu)
    a = solve_triangular(factor, kuf, lower=True) / np.sqrt(noise)
    b = jnp.eye(len(inducing)) + jnp.matmul(a, a.T, precision="highest")
    inner = jnp.linalg.cholesky(b)
    c = solve_triangular(inner, a @ y, lower=True) / np.sqrt(noise)
    trace = len(x) / noise - jnp.sum(a**2)
    return jnp.sum(jnp.log(jnp.diag(inner))) + 0.5 * (jnp.sum(y**2) / noise - jnp.sum(c**2) + trace)


N, S = 100_000, 512

PROGRAMS = [
    Program("kernel times vector", kernel_matvec, ((N, 3), (N, 3), (N,)), ((S, 3), (S, 3), (S,)),
            kernel_matvec_by_hand),
    Program("its gradient", jax.grad(kernel_loss), ((N, 3), (N, 3), (N,)), ((S, 3), (S, 3), (S,)),
            kernel_gradient_by_hand),
    Program("Laplace kernel times 8 vectors", laplace, ((N, 10), (N, 10), (N, 8)),
            ((S, 10), (S, 10), (S, 8)), laplace_by_hand),
    Program("density (logsumexp)", density, ((N, 3), (N, 3)), ((S, 3), (S, 3)), density_by_hand),
    Program("nearest of 100,000 (argmin)", nearest, ((N, 3), (N, 3)), ((S, 3), (S, 3)), nearest_by_hand),
    Program("10 nearest of 500,000, d = 100", neighbours, ((10_000, 100), (500_000, 100)),
            ((S, 100), (2 * S, 100)), neighbours_by_hand),
    Program("attention, 8 heads × 16,384", attention, ((8, 16_384, 64),) * 3, ((2, S, 64),) * 3,
            attention_by_hand, (0, 1)),
    Program("attention in bfloat16", attention, ((8, 16_384, 64),) * 3, ((2, S, 64),) * 3,
            attention_by_hand, (0, 1), dtype=jnp.bfloat16),
    Program("gradient of attention, 8 × 8,192", jax.grad(attention_loss, (0, 1, 2)), ((8, 8_192, 64),) * 3,
            ((2, S, 64),) * 3, attention_gradient_by_hand, (0, 1)),
    Program("cross-entropy of 131,072 tokens and its gradient", jax.value_and_grad(cross_entropy, (1, 2)),
            ((8_192,), (8_192, 1_024), (1_024, 131_072)), ((S,), (S, 64), (64, 2 * S)),
            cross_entropy_by_hand, limits=(131_072,)),
    Program("Sinkhorn, 20 iterations, 20,000²", sinkhorn, ((20_000, 3), (20_000, 3)), ((S, 3), (S, 3)),
            sinkhorn_by_hand),
    Program("maximum mean discrepancy, 50,000", discrepancy, ((50_000, 8), (50_000, 8)),
            ((S, 8), (S, 8)), discrepancy_by_hand),
    Program("forces of 40,000 bodies", forces, ((40_000, 3), (40_000,)), ((S, 3), (S,)), forces_by_hand),
    Program("k-means, 10 iterations, 4,000,000 × 512", k_means, ((4_000_000, 32), (512, 32)),
            ((4 * S, 32), (64, 32)), k_means_by_hand),
    Program("clipped gradients of 4,096 examples", clipped_gradients,
            ((4_096, 512), (4_096, 512), (512, 512), (512, 512)),
            ((S, 32), (S, 32), (32, 32), (32, 32))),
    Program("messages over 20,000,000 edges", messages,
            ((20_000_000,), (20_000_000,), (1_000_000, 32), (32,)), ((8 * S,), (8 * S,), (S, 32), (32,)),
            limits=(1_000_000, 1_000_000)),
    Program("sparse GP, 400,000 × 1,000, and its gradient", jax.value_and_grad(sparse_gp, 2),
            ((400_000, 3), (400_000,), (1_000, 3)), ((8 * S, 3), (8 * S,), (64, 3))),
]  # fmt: skip
"""Programs that single-precision users of a GPU with 80 GB run, or would run if they could."""
