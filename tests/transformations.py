"""JAX's transformations, each as a map between functions that take a vector to a vector of the same length.

Hence they compose in every order. What they compute is arbitrary, but it depends on every part of the
transformation's result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import eqsat

Vectors = Callable[[Any], Any]


def total(f: Vectors) -> Callable[[Any], Any]:
    return lambda x: jnp.sum(jnp.sin(f(x)))


def vmap(f: Vectors) -> Vectors:
    return lambda x: jax.vmap(f)(jnp.stack([x, 2 * x, -x])).sum(0)


def vmap_of_columns(f: Vectors) -> Vectors:
    """Maps over the last axis, in the argument and in the result. The batch has length 1."""
    return lambda x: jax.vmap(f, in_axes=-1, out_axes=-1)(x[:, None])[:, 0]


def vmap_of_nothing(f: Vectors) -> Vectors:
    """Maps over a factor of the result only, so the function has no batch."""
    return lambda x: jax.vmap(lambda x, s: s * f(x), (None, 0))(x, jnp.arange(2.0)).sum(0)


def value_and_grad(f: Vectors) -> Vectors:
    def both(x: Any) -> Any:
        value, gradient = jax.value_and_grad(total(f))(x)
        return value * gradient

    return both


def linearize(f: Vectors) -> Vectors:
    def both(x: Any) -> Any:
        value, tangent = jax.linearize(f, x)
        return value + tangent(jnp.cos(x))

    return both


def scan(f: Vectors) -> Vectors:
    def body(carry: Any, scale: Any) -> tuple[Any, Any]:
        moved = f(carry * scale)
        return carry + moved, moved

    def looped(x: Any) -> Any:
        carry, every = lax.scan(body, x, jnp.arange(1.0, 3.0))
        return carry + every.sum(0)

    return looped


def while_loop(f: Vectors) -> Vectors:
    """Loops for a fixed number of iterations, so that reverse mode can differentiate it."""
    return lambda x: lax.fori_loop(0, 2, lambda _, carry: f(carry), x)


def cond(f: Vectors) -> Vectors:
    return lambda x: lax.cond(x[0] > 0, f, lambda x: 2 * f(-x), x)


TRANSFORMATIONS: dict[str, Callable[[Vectors], Vectors]] = {
    "jit": jax.jit,
    "vmap": vmap,
    "vmap of columns": vmap_of_columns,
    "vmap of nothing": vmap_of_nothing,
    "grad": lambda f: jax.grad(total(f)),
    "value and grad": value_and_grad,
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](x)[0],
    "jvp": lambda f: lambda x: sum(jax.jvp(f, (x,), (jnp.cos(x),))),
    "jacfwd": lambda f: lambda x: jax.jacfwd(f)(x) @ x,
    "jacrev": lambda f: lambda x: jax.jacrev(f)(x) @ x,
    "hessian": lambda f: lambda x: jax.hessian(total(f))(x) @ x,
    "linearize": linearize,
    "checkpoint": jax.checkpoint,
    "scan": scan,
    "map": lambda f: lambda x: lax.map(f, jnp.stack([x, -x])).sum(0),
    "while": while_loop,
    "cond": cond,
    "optimize": lambda f: eqsat.optimize(f, budget="1MB"),
}
