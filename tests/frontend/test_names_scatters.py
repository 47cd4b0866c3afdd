"""A scatter to a diagonal is also a choice by index, bit for bit."""

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

N = 6
HOSTILE = np.array([np.inf, -np.inf, np.nan, -0.0, 1.5, 3e38], np.float32)


def diagonal(a: Any) -> Any:
    return a.at[jnp.diag_indices(N)]


WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda a, d: diagonal(a).set(d),
    "of a number": lambda a, d: diagonal(a).set(0),
    "add": lambda a, d: diagonal(a).add(d),
    "subtract": lambda a, d: diagonal(a).subtract(d),
    "multiply": lambda a, d: diagonal(a).multiply(d),
    "min": lambda a, d: diagonal(a).min(d),
    "max": lambda a, d: diagonal(a).max(d),
    "by counting": lambda a, d: a.at[jnp.arange(N), jnp.arange(N)].add(d),
    "of each of a batch": lambda a, d: jax.vmap(lambda a: diagonal(a).add(d))(jnp.stack([a, a.T])),
    "of slices": lambda a, d: (
        jnp.stack([a, -a], 2).at[jnp.arange(N), jnp.arange(N)].set(jnp.stack([d, 2 * d], 1))
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_scatter_to_the_diagonal_is_a_choice(name: str) -> None:
    a = np.stack([np.roll(HOSTILE, i) for i in range(N)])
    program, constants = lowered(WRITTEN[name], a, HOSTILE[::-1])
    check_choice(program, [a, HOSTILE[::-1], *constants])


ELSEWHERE: dict[str, Callable[[Any, Any], Any]] = {
    "next to it": lambda a, d: a.at[jnp.arange(N), (jnp.arange(N) + 1) % N].set(d),
    "a part of it": lambda a, d: a.at[jnp.arange(3), jnp.arange(3)].set(d[:3]),
    "of a rectangle": lambda a, d: jnp.concatenate([a, a])[: N + 2].at[jnp.arange(N), jnp.arange(N)].set(d),
    "a row": lambda a, d: a.at[2].set(d),
    "a function of its entries": lambda a, d: diagonal(a).apply(jnp.cos),
    "known when it runs": lambda a, d: a.at[jnp.argsort(d), jnp.argsort(d)].set(d),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_scatter_to_elsewhere_is_none(name: str) -> None:
    program, _ = lowered(ELSEWHERE[name], normal(N, N), normal(N))
    assert choices(program) == []


def test_a_kernel_matrix_with_noise_on_its_diagonal_is_multiplied_in_chunks() -> None:
    def product(x: Any, v: Any) -> Any:
        k = jnp.exp(-jnp.sum((x[:, None] - x[None]) ** 2, -1))
        k = k.at[jnp.diag_indices(len(x))].set(0)
        p = k / k.sum(1, keepdims=True)
        return (p + p.T) ** 2 @ v

    x, v = normal(1500, 3), normal(1500)
    optimized = eqsat.optimize(product, budget="1MB")
    assert optimized.plan(x, v).peak_bytes <= 1_000_000 < 4 * 1500 * 1500
    np.testing.assert_allclose(optimized(x, v), jax.jit(product)(x, v), rtol=1e-4, atol=1e-6)
