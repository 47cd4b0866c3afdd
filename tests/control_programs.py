"""Functions with control flow, with arguments, for the tests of all stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.stages import normal

Case = tuple[Callable[..., Any], tuple[Any, ...]]

CASES: dict[str, Case] = {}
"""The functions and their arguments, by what is special about them."""


def case(name: str, *args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[name] = (function, args)
        return function

    return register


@case("scan: carried and stacked", normal(6, 3, 4), normal(4, 4))
def recurrent(xs, w):
    def turn(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum(1)

    return lax.scan(turn, jnp.zeros((3, 4)), xs)


@case("scan: backwards", normal(5, 3))
def backwards(xs):
    return lax.scan(lambda c, x: (c * 0.5 + x, c - x), xs[0], xs, reverse=True)


@case("scan: unrolled", normal(7, 2))
def unrolled(xs):
    return lax.scan(lambda c, x: (c + x, c * x), xs[0], xs, unroll=3)


@case("scan: no turn", normal(0, 3), normal(3))
def no_turn(xs, c):
    return lax.scan(lambda c, x: (c + x, c * x), c, xs)


@case("scan: one turn", normal(1, 3), normal(3))
def one_turn(xs, c):
    return lax.scan(lambda c, x: (c + x, c * x), c, xs)


@case("scan: nothing carried, as in map", normal(5, 4))
def mapped(xs):
    return lax.map(lambda x: jnp.outer(x, x).sum(0), xs)


@case("scan: nothing sliced", normal(4))
def counted(x):
    return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=4)[0]


@case("scan: carried as it is, and swapped", normal(4), normal(4, seed=1))
def swapped(x, y):
    return lax.scan(lambda c, _: ((c[1], c[0], c[2]), c[2]), (x, y, x), None, length=3)


@case("scan: of a constant array and of an index", normal(6))
def with_table(x):
    table = np.arange(6.0, dtype=np.float32)
    return lax.scan(lambda c, i: (c + table * i, i), x, jnp.arange(5))


@case("scan: matrix powers, whose axes trade places", normal(4, 4))
def powers(a):
    return lax.scan(lambda c, _: (a @ c, jnp.trace(c)), jnp.eye(4), None, length=3)


@case("scan: unit dimensions", normal(5, 1, 3))
def units(xs):
    return lax.scan(lambda c, x: (c + x, x[0, :2]), xs[0], xs)


@case("scan: in a scan", normal(3, 4, 2))
def nested(xs):
    def outer(c, rows):
        c, ys = lax.scan(lambda d, r: (d * 0.9 + r, d.sum()), c, rows)
        return c, ys

    return lax.scan(outer, jnp.ones(2), xs)


@case("while: of fixed length", normal(5))
def iterated(x):
    return lax.fori_loop(0, 4, lambda i, c: jnp.cos(c) + i, x)


@case("while: until converged", normal(4, 4))
def converged(a):
    a = a @ a.T + 4 * jnp.eye(4)
    b = jnp.ones(4)

    def turn(state):
        i, x, _ = state
        new = (b - (a - jnp.diag(jnp.diag(a))) @ x) / jnp.diag(a)
        return i + 1, new, jnp.abs(new - x).max()

    return lax.while_loop(lambda s: (s[2] > 1e-2) & (s[0] < 50), turn, (0, b, jnp.float32(1.0)))[:2]


@case("while: that never turns", normal(3))
def idle(x):
    return lax.while_loop(lambda c: c[0] > 5, lambda c: (c[0] + 1, c[1] * 2), (0, x))


@case("while: condition on a value from outside", normal(3), jnp.float32(20.0))
def bounded(x, most):
    return lax.while_loop(lambda c: jnp.sum(c * c) < most, lambda c: c * 1.5 + 0.1, x)


@case("while: a batch of them", normal(4, 3))
def batched(xs):
    def until(x):
        return lax.while_loop(lambda c: jnp.sum(c * c) < 9.0, lambda c: c * 1.5 + 0.1, x)

    return jax.vmap(until)(xs)


@case("cond", jnp.float32(0.3), normal(3, 2))
def either(p, x):
    return lax.cond(p > 0, lambda x: x.sum(1), lambda x: x[:, 0] * p, x)


@case("cond: one branch gives a constant", jnp.float32(-0.3), normal(3, 2))
def constant_branch(p, x):
    return lax.cond(p > 0, lambda: x, lambda: jnp.ones((3, 2)))


@case("switch: among three", jnp.int32(7), normal(3))
def switched(i, x):
    return lax.switch(i, (jnp.sin, jnp.cos, lambda x: x[::-1] * 1.0), x)


@case("cond: in a scan in a while", normal(4, 3))
def deep(xs):
    def row(c, x):
        return lax.cond(x.sum() > 0, lambda c: c + x, lambda c: c - x, c), c

    def turn(state):
        i, c = state
        c, ys = lax.scan(row, c, xs)
        return i + 1, c + ys.sum(0)

    return lax.while_loop(lambda s: s[0] < 2, turn, (0, jnp.ones(3)))


@case("gradient of a scan", normal(5, 3))
def gradient(xs):
    def loss(xs):
        c, ys = lax.scan(lambda c, x: (jnp.tanh(c + x), c * x), jnp.zeros(3), xs)
        return (c**2).sum() + ys.sum()

    return jax.grad(loss)(xs)


@case("integers and truth values carried", jnp.arange(6))
def integers(xs):
    return lax.scan(lambda c, x: ((c[0] + x, c[1] ^ (x > 2)), c[0] % 3), (0, False), xs)


@case("conjugate gradients", normal(6, 6), normal(6, seed=1))
def solved(a, b):
    return jax.scipy.sparse.linalg.cg(lambda v: a @ (a.T @ v) + 3 * v, b, maxiter=5)[0]
