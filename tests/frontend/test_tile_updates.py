"""Parts of an array that are set or changed, as the walls of a simulation are, by tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.frontend.test_tiles import SPECIALS, check
from tests.stages import normal


def around(u: Any) -> Any:
    return sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * u


def inside(u: Any) -> Any:
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


def steps(wall: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def fn(u: Any) -> Any:
        for _ in range(2):
            u = wall(jnp.tanh(u + 0.1 * around(u)))
        return u

    return fn


WALLS: dict[str, Callable[[Any], Any]] = {
    "zeros": steps(lambda u: u.at[0].set(0.0).at[-1].set(0.0).at[:, 0].set(0.0).at[:, -1].set(0.0)),
    "ones": steps(lambda u: u.at[-1].set(1.0)),
    "neighbours": steps(lambda u: u.at[0].set(u[1]).at[-1].set(u[-2])),
    "columns": steps(lambda u: u.at[:, 0].set(u[:, 1]).at[:, -1].set(2.0)),
    "a block": steps(lambda u: u.at[3:9, 5:8].multiply(2.0).at[20:30].min(0.1)),
    "functions": steps(lambda u: u.at[0].apply(jnp.cos).at[3:9, 5:8].apply(lambda v: 3 * v)),
    "inside, added": lambda u: (lambda g: g(jnp.sin(g(u))))(lambda u: u.at[1:-1, 1:-1].add(0.1 * inside(u))),
    "inside, set": lambda u: (lambda g: g(g(u)))(lambda u: u.at[1:-1, 1:-1].set(jnp.tanh(inside(u)))),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", [(96, 64), (251, 300)])
@pytest.mark.parametrize("name", WALLS)
def test_stencils_within_walls_have_tiles(name: str, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    assert check(WALLS[name], x)
    random = np.random.default_rng(0)
    hostile = np.where(random.random(shape) < 0.002, random.choice(SPECIALS, shape), x).astype(np.float32)
    check(WALLS[name], hostile)


@pytest.mark.parametrize("place", [3, -1, 200])
def test_a_place_that_is_not_known_is_found_when_it_runs(place: int) -> None:
    def fn(u: Any, place: Any) -> Any:
        return around(jnp.tanh(around(u).at[place].set(0.0)))

    assert check(fn, normal(96, 64), jnp.int32(place))


@pytest.mark.parametrize("name", ["inside, added", "inside, set"])
def test_stencils_within_walls_keep_to_a_budget(name: str) -> None:
    x = normal(512, 500)
    optimized = eqsat.optimize(WALLS[name], budget=2.6 * x.nbytes)
    assert optimized.plan(x).peak_bytes <= 2.6 * x.nbytes
    np.testing.assert_allclose(optimized(x), jax.jit(WALLS[name])(x), rtol=1e-5, atol=1e-5)
