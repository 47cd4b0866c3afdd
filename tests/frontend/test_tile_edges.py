"""Stencils that differ at the edges of an image, as `jnp.gradient` does, and what they decide, by tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.frontend.tiles import tilings
from tests.frontend.test_tiles import SPECIALS, check
from tests.stages import normal


def smoothed(u: Any) -> Any:
    for axis in (0, 1):
        padded = jnp.pad(u, [(1, 1) if d == axis else (0, 0) for d in range(2)], mode="reflect")
        u = sum(jax.lax.slice_in_dim(padded, i, i + u.shape[axis], axis=axis) for i in range(3)) / 3
    return u


def slopes(u: Any) -> Any:
    down, right = jnp.gradient(smoothed(u))
    return jnp.sqrt(down**2 + right**2)


def thinned(u: Any) -> Any:
    """Of each entry and its neighbours, the largest is kept, as Canny's detector does."""
    size = slopes(u)
    padded = jnp.pad(size, 1)
    beside = jnp.maximum(
        jnp.maximum(padded[2:, 1:-1], padded[:-2, 1:-1]), jnp.maximum(padded[1:-1, 2:], padded[1:-1, :-2])
    )
    return jnp.where(size >= beside, size, 0.0)


def one_sided(u: Any) -> Any:
    """Differences of two rows, and of three at the edges."""
    v = smoothed(u)
    first, last = v[:1] - 2 * v[1:2] + v[2:3], v[-1:] - 2 * v[-2:-1] + v[-3:-2]
    return jnp.concatenate([first, v[2:] - v[:-2], last])


def long_edges(u: Any) -> Any:
    v = smoothed(u)
    return jnp.concatenate([jnp.cos(v[:7]), v[2:-11], jnp.sin(v[-16:])])


EDGES: dict[str, Callable[[Any], Any]] = {
    "slopes": slopes,
    "thinned": thinned,
    "one-sided": one_sided,
    "long edges": long_edges,
    "slopes of slopes": lambda u: slopes(slopes(u)),
    "above": lambda u: slopes(u) > 0.1,
    "thinned above": lambda u: thinned(u) > 0.1,
    "descent": jax.grad(lambda u: jnp.sum(slopes(u))),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("shape", [(96, 64), (251, 100)])
@pytest.mark.parametrize("name", EDGES)
def test_edges_of_another_kind_have_tiles(name: str, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    assert check(EDGES[name], x)
    random = np.random.default_rng(0)
    hostile = np.where(random.random(shape) < 0.002, random.choice(SPECIALS, shape), x).astype(np.float32)
    check(EDGES[name], hostile)


def test_tiles_compute_edges_from_the_image() -> None:
    jaxpr = jax.make_jaxpr(slopes)(normal(96, 64)).jaxpr
    (tiling,) = tilings(jaxpr)
    assert [one.var for one in tiling.inputs if one.var.aval.ndim] == list(jaxpr.invars)


def test_rows_of_the_other_end_are_computed_as_a_whole() -> None:
    def fn(u: Any) -> Any:
        v = smoothed(u)
        return jnp.concatenate([jnp.cos(v[-1:]), v[1:-1], jnp.sin(v[:1])])

    assert check(fn, normal(96, 64))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["slopes", "thinned", "above", "thinned above"])
def test_edges_of_another_kind_keep_to_a_budget(name: str) -> None:
    x, fn = normal(512, 500), EDGES[name]
    wanted = jax.jit(fn)(x)
    budget = x.nbytes + wanted.nbytes + x.nbytes
    optimized = eqsat.optimize(fn, budget=budget)
    assert optimized.plan(x).peak_bytes <= budget
    np.testing.assert_allclose(optimized(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
def test_the_gradient_of_many_steps_with_repeated_edges_keeps_to_a_budget() -> None:
    def loss(u: Any) -> Any:
        for _ in range(5):
            padded = jnp.pad(u, 1, mode="edge")
            u = u + 0.1 * (padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] - 3 * u)
        return jnp.sum(u**2)

    x, fn = normal(512, 500), jax.grad(loss)
    optimized = eqsat.optimize(fn, budget=4 * x.nbytes)
    assert optimized.plan(x).peak_bytes <= 4 * x.nbytes
    np.testing.assert_allclose(optimized(x), jax.jit(fn)(x), rtol=1e-5, atol=1e-5)
