"""The test programs of eXLA that have loops of their own, whose steps each exceed the budget as written."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tests.rules.exla_programs import Array, L, Program, normal


def conjugate_gradients(x: Array, b: Array) -> Array:
    """Takes four steps towards (K + I / 2)^-1 b; K is computed before the loop."""
    k = jnp.exp(-((x[:, None] - x) ** 2)) + 0.5 * jnp.eye(len(x), dtype=x.dtype)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, solution, residual, direction = state
        product = k @ direction
        length = residual @ residual / (direction @ product)
        smaller = residual - length * product
        turned = smaller + (smaller @ smaller) / (residual @ residual) * direction
        return count + 1, solution + length * direction, smaller, turned

    start = (0, jnp.zeros_like(b), b, b)
    return lax.while_loop(lambda state: state[0] < 4, step, start)[1]


def outer_in_loop(a: Array, b: Array, v: Array) -> Array:
    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return state[0] + 1, jnp.outer(a, b) @ state[1] / L

    return lax.while_loop(lambda state: state[0] < 3, step, (0, v))[1]


INSIDE_LOOPS = [
    Program(
        "conjugate gradients with K before a while loop",
        conjugate_gradients,
        lambda: (normal(L), normal(L)),
        "K p in a loop over rows, in every step",
        5_000_000,
        L * L / 8,
    ),
    Program(
        "outer(a, b) v inside a while loop",
        outer_in_loop,
        lambda: (normal(L), normal(L), normal(L)),
        "a times one number, in every step",
        1_000_000,
        L,
    ),
]
