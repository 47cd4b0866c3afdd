"""Which axes are looped over, and in which order they are considered."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from eqsat.planning.loop_axes import large_axes
from tests.kernels import V, X, Y, kernel
from tests.stages import lowered, normal


def test_an_axis_of_all_large_terms_comes_before_longer_ones() -> None:
    """A step of total variation: each difference has a longer axis of its own, and the batch all of them."""

    def step(x: Any) -> Any:
        append = [jax.lax.slice_in_dim(x, x.shape[axis] - 1, None, axis=axis) for axis in (1, 2)]
        along = [jnp.diff(x, axis=axis, append=append[axis - 1]) for axis in (1, 2)]
        return jnp.sum(jnp.sqrt(sum(one**2 for one in along) + 1e-3))

    x = normal(70, 150, 150)
    program, _ = lowered(jax.grad(step), x)
    assert large_axes(program, x.nbytes // 2)[0].size == 70
    few, _ = lowered(jax.grad(step), x[:20])
    assert large_axes(few, x.nbytes // 7)[0].size > 20
    budget = 2 * x.nbytes + x.nbytes // 2
    optimized = eqsat.optimize(jax.grad(step), budget=budget)
    assert optimized.plan(x).peak_bytes <= budget
    np.testing.assert_allclose(optimized(x), jax.jit(jax.grad(step))(x), rtol=1e-5, atol=1e-5)


def test_large_axes_are_those_of_big_terms_biggest_first() -> None:
    program, _ = lowered(kernel, X, Y, V)
    assert [axis.size for axis in large_axes(program, 200_000)] == [307, 211, 3]
    assert large_axes(program, 1e9) == ()


def test_an_axis_of_one_large_term_comes_before_that_of_many_small_ones() -> None:
    def pieces(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
        large = jnp.sum(jnp.exp(-jnp.abs(x[:, None] - y)), axis=1)
        for number in range(20):
            large += jnp.sum(jnp.exp(-jnp.abs(x[:, None] - v + number)), axis=1)
        return large

    program, _ = lowered(pieces, normal(100), normal(4000), normal(500))
    # Those of 200 kB are larger together than the few of 1.6 MB.
    sizes = [axis.size for axis in large_axes(program, 100_000)]
    assert sizes.index(4000) < sizes.index(500)


def test_parts_that_share_no_axis_have_one_of_their_own_each() -> None:
    def ranked(*values: jax.Array) -> list[jax.Array]:
        pairs = zip(values[::2], values[1::2], strict=True)
        return [jnp.sort(jnp.exp(-jnp.abs(x[:, None] - y)), 0)[0] for x, y in pairs]

    program, _ = lowered(ranked, *map(normal, (900, 800, 300, 200, 150, 120)))
    sizes = [axis.size for axis in large_axes(program, 10_000)]
    assert sizes[:2] == [900, 800], "those of the largest part"
    assert set(sizes[2:4]) == {200, 120}, "of the other parts, those along which nothing is sorted"
    assert sorted(sizes) == [120, 150, 200, 300, 800, 900]


def test_other_names_of_axes_are_no_parts() -> None:
    def jacobian(x: jax.Array, e: jax.Array) -> jax.Array:
        return jnp.sum(jnp.exp(x[:, None, None, :] * e[None, :, :, None]), 0)

    def gram(x: jax.Array, y: jax.Array, e: jax.Array) -> jax.Array:
        return sum(jnp.einsum("fgp,hgp->fh", *2 * [jacobian(one, e)]) for one in (x, y))

    x, y, e = normal(60, 40), normal(60, 30), normal(50, 4)
    program, _ = lowered(gram, x, y, e)
    sizes = [axis.size for axis in large_axes(program, 20_000)]
    assert sizes[:3] == [50, 60, 40], "only the other name of 50 has none of the first axes, but that of 4"


def test_an_axis_that_a_call_needs_whole_makes_no_chunks_of_its_results() -> None:
    """Rows of the kernel matrices are longer, but only the scales make fewer of their factors."""

    def factors(x: jax.Array, y: jax.Array, e: jax.Array) -> jax.Array:
        ks = jax.vmap(lambda e: jnp.exp(-jnp.abs(x[:, None] - x) / e) + jnp.eye(len(x)))(e)
        near = jnp.sum(jnp.exp(-jnp.abs(y[:, None] - x)), 1)
        return jnp.sum(jnp.linalg.cholesky(ks)) + near

    program, _ = lowered(factors, normal(100), normal(3000), normal(6))
    assert [axis.size for axis in large_axes(program, 20_000)][:3] == [3000, 100, 6]


def test_short_axes_that_pass_through_the_largest_calls_come_first_together() -> None:
    """Ridge regression by every fold, for every ridge and every width: no row of a matrix is solved alone."""
    n, widths, ridges, folds = 80, 6, 5, 4

    def scores(x: Any, y: Any, fold: Any, gammas: Any, ridge: Any) -> Any:
        def score(gamma: Any, ridge: Any, number: Any) -> Any:
            k = jnp.exp(-gamma * (x[:, None] - x) ** 2)
            kept = (fold != number).astype(k.dtype)
            within = k * kept[:, None] * kept + ridge * jnp.eye(n) + jnp.diag(1 - kept)
            return jnp.sum((k @ (jnp.linalg.solve(within, y * kept) * kept) - y) ** 2 * (1 - kept))

        def grid(gamma: Any, ridge: Any) -> Any:
            return jnp.sum(jax.vmap(lambda number: score(gamma, ridge, number))(jnp.arange(folds)))

        return jax.vmap(lambda gamma: jax.vmap(lambda one: grid(gamma, one))(ridge))(gammas)

    fold = np.arange(n) % folds
    args = normal(n), normal(n), fold, np.linspace(0.1, 2, widths), np.linspace(0.1, 1, ridges)
    program, _ = lowered(scores, *args)
    sizes = [axis.size for axis in large_axes(program, 10_000)]
    assert set(sizes[:2]) == {widths, ridges}
    assert folds in sizes[:4]
    few, _ = lowered(scores, *args[:3], args[3][:2], args[4][:2])
    assert large_axes(few, 10_000)[0].size == n
    budget = 30 * 4 * n * n
    optimized = eqsat.optimize(scores, budget=budget)
    assert optimized.plan(*args).peak_bytes <= budget < widths * ridges * folds * 4 * n * n
    np.testing.assert_allclose(optimized(*args), jax.jit(scores)(*args), rtol=1e-3)


def test_inputs_do_not_make_an_axis_large() -> None:
    program, _ = lowered(lambda x: jnp.sum(x), normal(1000))
    assert large_axes(program, 1000) == ()


def interval_means(y: jax.Array, w: jax.Array) -> jax.Array:
    """Isotonic regression by the formula of maxima of minima over a table of all intervals."""
    sums, weights = (jnp.concatenate([jnp.zeros(1), jnp.cumsum(each)]) for each in (w * y, w))
    inside = jnp.arange(y.size)[:, None] <= jnp.arange(y.size)
    means = (sums[None, 1:] - sums[:-1, None]) / jnp.maximum(weights[None, 1:] - weights[:-1, None], 1e-6)
    lowest = jax.lax.cummin(jnp.where(inside, means, jnp.inf), axis=1, reverse=True)
    return jnp.diagonal(jax.lax.cummax(jnp.where(inside, lowest, -jnp.inf), axis=0))


def bootstrapped(y: jax.Array, w: jax.Array) -> jax.Array:
    fit = interval_means(y, jnp.ones_like(y))
    return jnp.sort(jax.vmap(interval_means, (None, 0))(y, w) - fit, axis=0)[2]


def test_an_axis_that_passes_through_the_largest_calls_comes_first() -> None:
    """The cumulative extremes of tables need their rows and columns whole, but not all of the tables."""
    program, _ = lowered(bootstrapped, normal(300), 1 + jnp.abs(normal(70, 300)))
    largest = 70 * 300 * 300 * 4
    assert large_axes(program, largest // 1024)[0].size == 70


def test_a_batch_of_cumulative_extremes_is_chunked() -> None:
    y, w = jnp.sort(normal(300)), 1 + jnp.abs(normal(70, 300))
    optimized = eqsat.optimize(bootstrapped, budget="4MB")
    plan = optimized.plan(y, w)
    assert plan.peak_bytes <= 4_000_000
    assert [loop.label for loop in plan.loops] == ["w.0"]
    np.testing.assert_allclose(optimized(y, w), jax.jit(bootstrapped)(y, w), rtol=1e-5, atol=1e-6)
