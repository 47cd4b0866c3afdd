"""Parts of an array that are set or changed, as the walls of a simulation are, by tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from tests.frontend.test_tiles import SPECIALS, check
from tests.nightly import THOROUGH
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


def fluid(h: Any) -> Any:
    """Two steps of shallow water between walls, at rest before."""
    across = jnp.zeros_like(h)
    for _ in range(2):
        h, across = (
            h - 0.1 * (jnp.roll(across, -1, 0) - jnp.roll(across, 1, 0)),
            across - 0.1 * (jnp.roll(h, -1, 0) - jnp.roll(h, 1, 0) + jnp.roll(across, 1, 1)),
        )
        h = h.at[0].set(h[1]).at[-1].set(h[-2])
        across = across.at[0].set(0.0).at[-1].set(0.0)
    return h


def cavity(w: Any) -> Any:
    """Two steps of a fluid in a box with a lid that moves, by stream function and vorticity."""
    psi = jnp.zeros_like(w)
    for _ in range(2):
        psi = psi.at[1:-1, 1:-1].set(psi[1:-1, 1:-1] + 0.25 * (inside(psi) + w[1:-1, 1:-1]))
        w = w.at[0].set(-2 * psi[1]).at[-1].set(-2 * psi[-2] - 2.0)
        w = w.at[1:-1, 1:-1].add(0.1 * inside(w) - psi[2:, 1:-1] * w[1:-1, 2:])
    return w


def slope(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.grad(lambda u: jnp.sum(fn(u) ** 2))


WALLS: dict[str, Callable[[Any], Any]] = {
    "zeros": steps(lambda u: u.at[0].set(0.0).at[-1].set(0.0).at[:, 0].set(0.0).at[:, -1].set(0.0)),
    "ones": steps(lambda u: u.at[-1].set(1.0)),
    "neighbours": steps(lambda u: u.at[0].set(u[1]).at[-1].set(u[-2])),
    "columns": steps(lambda u: u.at[:, 0].set(u[:, 1]).at[:, -1].set(2.0)),
    "a block": steps(lambda u: u.at[3:9, 5:8].multiply(2.0).at[20:30].min(0.1)),
    "functions": steps(lambda u: u.at[0].apply(jnp.cos).at[3:9, 5:8].apply(lambda v: 3 * v)),
    "inside, added": lambda u: (lambda g: g(jnp.sin(g(u))))(lambda u: u.at[1:-1, 1:-1].add(0.1 * inside(u))),
    "inside, set": lambda u: (lambda g: g(g(u)))(lambda u: u.at[1:-1, 1:-1].set(jnp.tanh(inside(u)))),
    "a fluid": fluid,
    "a box": cavity,
    "a computed row": steps(lambda u: u.at[0].set(jnp.cos(u[2]) - u[1] * u[3]).at[-2].add(2.0 - u[-4])),
}
SLOPES = ("zeros", "neighbours", "a block", "inside, added", "a fluid", "a box")
ALL = WALLS | {f"slope of {name}": slope(WALLS[name]) for name in SLOPES}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shape", [(96, 64), (251, 300)])
@pytest.mark.parametrize("fn", ALL.values(), ids=ALL)
def test_stencils_within_walls_have_tiles(fn: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    assert check(fn, x)
    random = np.random.default_rng(0)
    hostile = np.where(random.random(shape) < 0.002, random.choice(SPECIALS, shape), x).astype(np.float32)
    check(fn, hostile)


def block(u: Any, change: str, first: int, last: int, left: int, right: int) -> Any:
    return getattr(u.at[first:last, left:right], change)(1.5)


def moved(u: Any, change: str, first: int, last: int, *_: int) -> Any:
    """Rows that are changed by the last ones, computed by tiles as well."""
    return getattr(u.at[first:last], change)(jnp.tanh(u[len(u) - last + first :]))


def copied(u: Any, _: str, first: int, last: int, left: int, right: int) -> Any:
    return u.at[first].set(u[last]).at[:, left].set(u[:, right])


def computed(u: Any, change: str, first: int, last: int, *_: int) -> Any:
    return getattr(u.at[first], change)(jnp.cos(u[last]) - 2 * u[first])


def edges(u: Any, *_: Any) -> Any:
    padded = jnp.pad(u, 1, mode="edge")
    return inside(padded) + u


CHANGES = ("set", "add", "multiply", "min", "max")


@settings(max_examples=60 if THOROUGH else 3)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([block, moved, copied, computed, edges, lambda u, *_: around(u)]),
            st.sampled_from(CHANGES),
            st.tuples(st.integers(0, 40), st.integers(1, 50), st.integers(0, 30), st.integers(1, 30)),
        ),
        min_size=2,
        max_size=5,
    ),
    st.booleans(),
    st.integers(0, 1000),
)
def test_chains_of_stencils_and_walls_on_hostile_data(chain: list[Any], sloped: bool, seed: int) -> None:
    def fn(u: Any) -> Any:
        for step, change, (first, rows, left, columns) in chain:
            u = jnp.sin(step(u, change, first, first + rows, left, left + columns))
        return u

    random = np.random.default_rng(seed)
    shape = (96, 64)
    x = np.where(random.random(shape) < 0.003, random.choice(SPECIALS, shape), normal(*shape))
    check(slope(fn) if sloped else fn, x.astype(np.float32))


@pytest.mark.parametrize("place", [3, -1, 200])
def test_a_place_that_is_not_known_is_found_when_it_runs(place: int) -> None:
    def fn(u: Any, place: Any) -> Any:
        return around(jnp.tanh(around(u).at[place].set(0.0)))

    assert check(fn, normal(96, 64), jnp.int32(place))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("fn", [ALL[name] for name in ALL if name != "functions"])
def test_stencils_within_walls_keep_to_a_budget(fn: Callable[[Any], Any]) -> None:
    x = normal(512, 500)
    optimized = eqsat.optimize(fn, budget=2.6 * x.nbytes)
    assert optimized.plan(x).peak_bytes <= 2.6 * x.nbytes
    np.testing.assert_allclose(optimized(x), jax.jit(fn)(x), rtol=1e-5, atol=1e-5)
