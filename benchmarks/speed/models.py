"""Models that compare all pairs: Gaussian processes, discrepancies, transport, ranking."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from benchmarks.beyond import tiles
from benchmarks.loops import loops
from benchmarks.speed.case import Case
from examples.comparison import in_double_precision
from examples.data import regression
from examples.programs import sparse_gp, sparse_gp_data, squared_distances

Array = Any

GROUP = "models"
LENGTHS = (50, 100, 250)


def kernel(x: Array, y: Array) -> Array:
    return jnp.exp(-0.5 * squared_distances(x, y))


# Sparse GP regression: the bound, accumulated over chunks of the data.


def chunked_bound(params: dict[str, Array], x: Array, y: Array, length: int) -> Array:
    """Computes `examples.programs.sparse_gp_bound`, accumulating only products with the inducing points."""
    scale = jnp.exp(-params["log_lengthscales"])
    variance, noise = jnp.exp(params["log_variance"]), jnp.exp(params["log_noise"])
    z = params["inducing"] * scale
    n, m = len(x), len(z)
    identity = jnp.eye(m, dtype=x.dtype)
    factor = jnp.linalg.cholesky(variance * kernel(z, z) + 1e-4 * variance * identity)

    @jax.checkpoint
    def turn(carry: tuple[Array, Array], chunk: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        inputs, targets = chunk
        a = solve_triangular(factor, variance * kernel(z, inputs * scale), lower=True) / jnp.sqrt(noise)
        return (carry[0] + a @ a.T, carry[1] + a @ targets), None

    start = (jnp.zeros((m, m), x.dtype), jnp.zeros(m, x.dtype))
    (aat, ay), _ = lax.scan(turn, start, (x.reshape(-1, length, x.shape[1]), y.reshape(-1, length)))
    inner = jnp.linalg.cholesky(identity + aat)
    c = solve_triangular(inner, ay, lower=True) / jnp.sqrt(noise)
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diag(inner))) + n * jnp.log(noise)
    fit = jnp.sum(y**2) / noise - jnp.sum(c**2)
    slack = n * variance / noise - jnp.trace(aat)
    return -0.5 * (n * math.log(2 * math.pi) + log_determinant + fit + slack)


def sparse_case(n: int, inducing: int) -> Case:
    return Case(
        GROUP,
        f"sparse GP, bound and gradient: {n:,} points, {inducing:,} inducing",
        sparse_gp,
        partial(sparse_gp_data, n, inducing),
        {
            f"scan over {length:,} points": jax.value_and_grad(partial(chunked_bound, length=length))
            for length in (n // 100, n // 20)
        },
    )


# Exact GP prediction.

NOISE = 0.1


def conditioned(x: Array, y: Array) -> tuple[Array, Array]:
    factor = jnp.linalg.cholesky(kernel(x, x) + NOISE * jnp.eye(len(x), dtype=x.dtype))
    return factor, solve_triangular(factor, y, lower=True)


def predicted(factor: Array, whitened: Array, x: Array, x_test: Array) -> tuple[Array, Array]:
    cross = solve_triangular(factor, kernel(x, x_test), lower=True)
    return cross.T @ whitened, 1 - jnp.sum(cross**2, axis=0)


def predict(x: Array, y: Array, x_test: Array) -> tuple[Array, Array]:
    """Returns means [m] and variances [m] at the inputs x_test [m, d], given x [n, d] and y [n]."""
    return predicted(*conditioned(x, y), x, x_test)


def predict_by_rows(loop: Any, x: Array, y: Array, x_test: Array) -> tuple[Array, Array]:
    return loop(*conditioned(x, y), x, x_test)


def prediction_data(n: int, tests: int) -> tuple[Array, ...]:
    found = regression(None, "kin40k", n + tests)
    return found.x[:n], found.y[:n], found.x[n:]


def prediction_case(n: int, tests: int) -> Case:
    by_hand = {
        name: partial(predict_by_rows, loop)
        for name, loop in loops(
            {"": predicted}, (3,), (tests // 100, tests // 20), ("scan", "in place")
        ).items()
    }
    return Case(
        GROUP,
        f"exact GP, prediction: {tests:,} points, given {n:,}",
        predict,
        partial(prediction_data, n, tests),
        by_hand,
    )


# The maximum mean discrepancy.


def discrepancy(x: Array, y: Array) -> Array:
    """Returns the squared discrepancy between the samples x [n, d] and y [m, d]."""
    return jnp.mean(kernel(x, x)) + jnp.mean(kernel(y, y)) - 2 * jnp.mean(kernel(x, y))


def discrepancy_by_rows(loop: Any, x: Array, y: Array) -> Array:
    own, others, both = (jnp.sum(loop(a, b)) for a, b in ((x, x), (y, y), (x, y)))
    return own / len(x) ** 2 + others / len(y) ** 2 - 2 * both / (len(x) * len(y))


def row_sums(x: Array, y: Array) -> Array:
    return jnp.sum(kernel(x, y), axis=1)


def two_samples(n: int, width: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(2, n, width)) / np.sqrt(width)).astype(np.float32)
    return x, y + np.float32(0.1)


def discrepancy_case(n: int, width: int) -> Case:
    found = loops({"": row_sums}, (0,), LENGTHS, ("scan",))
    by_rows = {name: partial(discrepancy_by_rows, loop) for name, loop in found.items()}
    return Case(
        GROUP,
        f"maximum mean discrepancy: {n:,} and {n:,} points, d = {width}",
        discrepancy,
        partial(two_samples, n, width),
        by_rows,
        # The program itself takes 160 GB in float64.
        reference=in_double_precision(next(iter(by_rows.values()))),
    )


# Optimal transport by Sinkhorn's iterations.

TURNS, EPSILON = 10, 0.5


def softened(x: Array, y: Array, potential: Array) -> Array:
    """Returns for every x the soft minimum over y of the costs less the potential."""
    costs = squared_distances(x, y)
    return -EPSILON * jax.nn.logsumexp((potential - costs) / EPSILON - math.log(len(y)), axis=1)


def sinkhorn(x: Array, y: Array, half_turn: Callable[..., Array] = softened) -> Array:
    """Returns the cost of transport between x [n, d] and y [m, d], which have equal weights."""

    def turn(potentials: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        at_x = half_turn(x, y, potentials[1])
        return (at_x, half_turn(y, x, at_x)), None

    start = (jnp.zeros(len(x), x.dtype), jnp.zeros(len(y), y.dtype))
    (at_x, at_y), _ = lax.scan(turn, start, None, length=TURNS)
    return jnp.mean(at_x) + jnp.mean(at_y)


def sinkhorn_case(n: int, width: int) -> Case:
    found = loops({"": softened}, (0,), LENGTHS, ("scan",))
    return Case(
        GROUP,
        f"Sinkhorn, {TURNS} turns: {n:,} and {n:,} points, d = {width}",
        sinkhorn,
        partial(two_samples, n, width),
        {name: partial(sinkhorn, half_turn=loop) for name, loop in found.items()},
    )


# Losses of all pairs.


def ranking(scores: Array, targets: Array) -> Array:
    """Returns the logistic loss over all pairs whose first member has the larger target; both are [n]."""
    return jnp.sum(ranking_rows(scores, targets, scores, targets)) / len(scores) ** 2


def ranking_rows(scores: Array, targets: Array, all_scores: Array, all_targets: Array) -> Array:
    losses = jax.nn.softplus(all_scores - scores[:, None])
    return jnp.sum(jnp.where(targets[:, None] > all_targets, losses, 0), axis=1)


def ranking_by_rows(loop: Any, scores: Array, targets: Array) -> Array:
    return jnp.sum(loop(scores, targets, scores, targets)) / len(scores) ** 2


def scored(n: int) -> tuple[Array, Array]:
    return tuple(np.random.default_rng(0).normal(size=(2, n)).astype(np.float32))


def ranking_case(n: int, gradient: bool) -> Case:
    found = loops({"": jax.checkpoint(ranking_rows)}, (0, 1), LENGTHS, ("scan",))
    by_hand = {name: partial(ranking_by_rows, loop) for name, loop in found.items()}
    if gradient:
        by_hand = {name: jax.value_and_grad(function) for name, function in by_hand.items()}
    return Case(
        GROUP,
        f"ranking loss{' and gradient' if gradient else ''}: all pairs of {n:,}",
        jax.value_and_grad(ranking) if gradient else ranking,
        partial(scored, n),
        by_hand,
    )


def contrastive_case(n: int) -> Case:
    rows = {f"map over {length} queries": partial(tiles.by_rows, length=length) for length in (50, 200)}
    squares = {f"tiles of {length}": partial(tiles.by_tiles, length=length) for length in (250, 500)}
    return Case(
        GROUP, f"contrastive loss: {n:,} pairs", tiles.contrastive, partial(tiles.data, n), rows | squares
    )


def cases(quick: bool) -> Iterator[Case]:
    if quick:
        yield discrepancy_case(4_000, 3)
        return
    yield sparse_case(20_000, 200)
    yield sparse_case(40_000, 500)
    yield prediction_case(1_000, 20_000)
    yield prediction_case(2_000, 20_000)
    yield from (discrepancy_case(10_000, width) for width in (3, 100))
    yield sinkhorn_case(2_000, 3)
    yield sinkhorn_case(5_000, 8)
    yield contrastive_case(10_000)
    yield from (ranking_case(10_000, gradient) for gradient in (False, True))
