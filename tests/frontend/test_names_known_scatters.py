"""A scatter to places that are known is also a choice by index, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.frontend.named import check_choice, choices
from tests.stages import lowered, normal

N = 140
PAIRS = N * (N + 1) // 2
HOSTILE = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1.5, -(2.0**60)], np.float32)
TABLE = np.resize(HOSTILE, (N, N))
UPDATES = np.resize(HOSTILE[::-1], PAIRS)
FLAT = 5 * 1 << 12


def lower_triangle(a: Any) -> Any:
    return a.at[jnp.tril_indices(N)]


WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda a, u: lower_triangle(a).set(u),
    "one number": lambda a, u: lower_triangle(a).set(u[0]),
    "of zeros": lambda a, u: lower_triangle(jnp.zeros_like(a)).set(u),
    "add": lambda a, u: lower_triangle(a).add(u),
    "multiply": lambda a, u: lower_triangle(a).multiply(u),
    "subtract": lambda a, u: lower_triangle(a).subtract(u),
    "upper": lambda a, u: a.at[jnp.triu_indices(N, 1)].set(u[: PAIRS - N]),
    "transposed": lambda a, u: a.at[jnp.tril_indices(N)[::-1]].set(u),
    "captured": lambda a, u: a.at[np.tril_indices(N, -1)].add(u[: PAIRS - N]),
    "from the end": lambda a, u: a.at[tuple(i[::-1] for i in np.tril_indices(N))].set(u),
    "of slices": lambda a, u: (
        jnp.stack([a, -a], 1)
        .at[np.tril_indices(N)[0], :, np.tril_indices(N)[1]]
        .add(jnp.stack([u, 2 * u], 1))
    ),
    "negative": lambda a, u: jnp.zeros(FLAT).at[np.arange(-9000, -1)].add(u[:8999]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_scatter_to_known_places_is_a_choice(name: str) -> None:
    program, constants = lowered(WRITTEN[name], TABLE, UPDATES)
    check_choice(program, [TABLE, UPDATES, *constants])


ROWS, COLUMNS = np.tril_indices(N)
ANY = np.random.default_rng(0).permutation(N * N)[:PAIRS]

ELSEWHERE: dict[str, Callable[[Any, Any], Any]] = {
    "a place twice": lambda a, u: a.at[np.append(ROWS[1:], 5), np.append(COLUMNS[1:], 5)].add(u),
    "out of bounds": lambda a, u: a.at[ROWS + 1, COLUMNS].set(u),
    "anywhere": lambda a, u: a.at[ANY // N, ANY % N].set(u),
    "known when it runs": lambda a, u: a.at[ROWS, (COLUMNS + jnp.argmax(u)) % N].set(u),
    "every third": lambda a, u: jnp.zeros(FLAT).at[np.arange(1, FLAT, 3)].set(u[: len(range(1, FLAT, 3))]),
    "a function of entries": lambda a, u: lower_triangle(a).apply(jnp.cos),
    "of a small matrix": lambda a, u: a[:9, :9].at[np.tril_indices(9)].set(u[:45]),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_scatter_to_elsewhere_is_none(name: str) -> None:
    program, _ = lowered(ELSEWHERE[name], TABLE, UPDATES)
    assert choices(program) == []


@pytest.mark.nightly
def test_the_gradient_of_a_loss_over_pairs_fits() -> None:
    def loss(x: Any) -> Any:
        return jnp.mean(jnp.tanh(x[:, :1] - x[:, 1])[jnp.triu_indices(len(x), 1)])

    x = normal(900, 2)
    optimized = eqsat.optimize(jax.grad(loss), budget="600kB")
    assert optimized.plan(x).peak_bytes <= 600_000 < 4 * 900 * 900 // 5
    np.testing.assert_allclose(optimized(x), jax.grad(loss)(x), rtol=2e-4, atol=1e-9)


def test_a_triangular_matrix_of_its_entries_is_multiplied_in_chunks() -> None:
    def product(t: Any, x: Any) -> Any:
        def step(x: Any, t: Any) -> tuple[Any, None]:
            n = len(x)
            entries = jnp.sin(t * jnp.arange(n * (n + 1) // 2))
            return jnp.tanh(jnp.zeros((n, n)).at[jnp.tril_indices(n)].set(entries) @ x), None

        return jax.lax.scan(step, x, t)[0]

    t, x = normal(3), normal(500)
    optimized = eqsat.optimize(product, budget="300kB")
    assert optimized.plan(t, x).peak_bytes <= 300_000 < 4 * 500 * 500 // 3
    np.testing.assert_allclose(optimized(t, x), jax.jit(product)(t, x), rtol=1e-4, atol=1e-4)
