"""Value numbering: what is the same computation, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.frontend.value_numbering import LARGE, Numbering, primitives
from tests.stages import normal

X = normal(4, 4)


def same(one: Callable[..., Any], other: Callable[..., Any], *args: Any) -> bool:
    """Whether two functions of these arguments have results with the same numbers."""
    numbering = Numbering()
    numbers = []
    for fn in (one, other):
        closed = jax.make_jaxpr(fn)(*args)
        inputs = [numbering.number(("input", position)) for position in range(len(closed.in_avals))]
        numbers.append(numbering.results(closed, inputs))
    return numbers[0] == numbers[1]


TABLE = jnp.arange(4.0)
BIG = np.zeros(LARGE, np.float32)


@jax.custom_jvp
def custom(x: Any) -> Any:
    return jnp.exp(x)


custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (jnp.sin, jnp.sin),
        (lambda x: jnp.exp(x), jax.jit(jax.jit(jnp.exp))),
        (custom, jnp.exp),
        (jax.checkpoint(jnp.exp), jnp.exp),
        (lambda x: (jnp.sin(x), jnp.cos(x))[0], jnp.sin),
        (lambda x: jnp.exp(lax.stop_gradient(x)), jnp.exp),
        (lambda x: jnp.exp(x) + jnp.exp(x), lambda x: (y := jnp.exp(x)) + y),
        (lambda x: x + TABLE, lambda x: x + jnp.asarray([0.0, 1, 2, 3])),
        (
            lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x)[1],
            lambda y: lax.scan(lambda a, b: (a + b, a), y[0], y)[1],
        ),
        (lambda x: jnp.sum(x[BIG.astype(int)[:1]]), lambda x: jnp.sum(x[BIG.astype(int)[:1]])),
    ],
)
def test_the_same(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    assert same(one, other, X)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (jnp.sin, jnp.cos),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x * 1.0, lambda x: x * -1.0),
        (lambda x: x - 0.0, lambda x: x - (-0.0)),
        (lambda x: x.sum(0), lambda x: x.sum(1)),
        (lambda x: x + TABLE, lambda x: x + TABLE[::-1]),
        (lambda x: lax.cumsum(x, 0), lambda x: lax.cumsum(x, 0, reverse=True)),
        (
            lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x)[1],
            lambda x: lax.scan(lambda c, r: (c * r, c), x[0], x)[1],
        ),
        (
            lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
            lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.sin, x),
        ),
        (
            lambda x: jax.pure_callback(lambda a: a, x, x),
            lambda x: jax.pure_callback(lambda a: a + 1, x, x),
        ),
    ],
)
def test_not_the_same(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    assert not same(one, other, X)


def test_arguments_have_places() -> None:
    assert not same(lambda x, y: x - y, lambda x, y: y - x, X, X)
    assert not same(lambda x, y: x, lambda x, y: y, X, X)


def test_large_constants_are_told_apart_by_identity() -> None:
    table, copy = jnp.asarray(BIG), jnp.asarray(BIG) + 0
    assert same(lambda x: x + table, lambda x: x + table, np.float32(1))
    assert not same(lambda x: x + table, lambda x: x + copy, np.float32(1))


def test_effects_are_never_the_same() -> None:
    def fn(x: Any) -> Any:
        return jax.experimental.io_callback(lambda a: a, x, x)

    assert not same(fn, fn, X)


def test_random_numbers_are_the_same_for_one_key() -> None:
    assert same(jax.random.normal, lambda key: jax.random.normal(key), jax.random.key(0))
    assert not same(
        jax.random.normal, lambda key: jax.random.normal(jax.random.split(key)[0]), jax.random.key(0)
    )


def test_primitives_at_every_depth() -> None:
    closed = jax.make_jaxpr(lambda x: jax.jit(lambda y: lax.map(jnp.sin, y))(x))(X)
    assert {"jit", "scan", "sin"} <= set(primitives(closed))
