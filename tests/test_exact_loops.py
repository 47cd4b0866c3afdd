"""At "exact", what may be done in any order is done by chunks, and is the same in every bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.targets.compiler_profile import HONEST

LONG, SHORT = 1511, 307
"""Lengths of which neither is a multiple of a chunk's."""


def floats(rng: np.random.Generator, length: int) -> jax.Array:
    """Zeros of either sign, mostly; in one number of 500, infinities and NaN."""
    rare = rng.random(length) < 0.002
    usual = rng.choice(np.array([0.0, -0.0, -1e-42], np.float32), length)
    return jnp.asarray(np.where(rare, rng.choice([np.nan, np.inf, -np.inf], length), usual), jnp.float32)


def integers(rng: np.random.Generator, length: int, dtype: str) -> jax.Array:
    """Any that there are, both ends among them: sums and products wrap around."""
    limits = np.iinfo(dtype)
    drawn = rng.integers(limits.min, limits.max, length, dtype, endpoint=True)
    drawn[::5], drawn[::7] = limits.max, limits.min
    return jnp.asarray(drawn)


PROGRAMS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "extremes": (
        "float32",
        "split-unrounded",
        lambda x, y: (jnp.max(x[:, None] * y), jnp.min(jnp.abs(x[:, None]) * y, 0)),
    ),
    "extremes of bytes": (
        "uint8",
        "split-unrounded",
        lambda x, y: (jnp.max(x[:, None] - y), jnp.min(x[:, None] * y, 0)),
    ),
    "sums and products": (
        "int32",
        "split-integers",
        lambda x, y: (jnp.sum((x[:, None] ^ y) * y), jnp.prod((x[:, None] & y) | 1, 0)),
    ),
    "sums of bytes": ("int8", "split-integers", lambda x, y: jnp.sum(x[:, None] ^ y, 0, dtype=jnp.int8)),
    "truths": (
        "float32",
        "split-unrounded",
        lambda x, y: (jnp.any(x[:, None] > y, 0), jnp.all(x[:, None] <= y), jnp.sum(x[:, None] == y, 0)),
    ),
    "bits": ("uint32", "split-unrounded", lambda x, y: jnp.bitwise_xor.reduce(x[:, None] * y, None)),
    "products of matrices": (
        "int32",
        "split-integer-contraction",
        lambda x, y: (x * 3) @ (x[:, None] ^ y),
    ),
    "entries that are the maximum": (
        "int8",
        "split-unrounded",
        lambda x, y: (lambda t: jnp.sum(t == jnp.max(t)))(jnp.float32(x)[:, None] * y),
    ),
    "places": ("float32", "", lambda x, y: (jnp.argmax(x[:, None] - y), jnp.argmin(x - y[:, None], 1))),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_the_same_in_any_order_fits_when_exact(name: str) -> None:
    dtype, rule, function = PROGRAMS[name]
    rng = np.random.default_rng(0)
    args = [
        floats(rng, length) if dtype == "float32" else integers(rng, length, dtype)
        for length in (LONG, SHORT)
    ]
    small = eqsat.optimize(function, budget="60kB", accuracy="exact")
    plan = small.plan(*args)
    assert not rule or rule in plan.rules_fired
    # XLA's own options lose NaN and signs of zero in maxima: docs/xla.md.
    whole = jax.jit(function, compiler_options=eqsat.compiler_options())(*args)
    for found, wanted in zip(jax.tree.leaves(small(*args)), jax.tree.leaves(whole), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(
            np.signbit(found) & ~np.isnan(found), np.signbit(wanted) & ~np.isnan(wanted)
        )


def test_maxima_that_are_to_be_exact_are_not_left_to_fusions_that_lose_nan() -> None:
    """XLA's own options are the faster ones, and lose it."""
    x, y = jnp.zeros(20_011).at[11_003].set(jnp.nan), jnp.ones(SHORT)
    small = eqsat.optimize(lambda x, y: jnp.max(x[:, None] * y), budget="200kB", accuracy="exact")
    assert small.plan(x, y).options == HONEST
    assert jnp.isnan(small(x, y))


def test_maxima_of_bytes_that_wrap_around_are_not_left_to_fusions_that_do_not() -> None:
    """XLA's own options are the faster ones, and wrong: by default as well."""
    x = jnp.arange(130, dtype=jnp.uint8)
    small = eqsat.optimize(lambda x: jnp.max(x - x[:, None]), budget=9000)
    assert small.plan(x).changed
    assert small(x) == 255


def test_a_sum_of_floats_is_not_split_when_exact() -> None:
    with pytest.raises(eqsat.BudgetError):
        eqsat.optimize(lambda x, y: jnp.sum(jnp.cos(x[:, None] * y)), budget="60kB", accuracy="exact").plan(
            jnp.ones(LONG), jnp.ones(SHORT)
        )


@pytest.mark.parametrize("squared", [lambda z: z**2, lambda z: z * z, jax.lax.square])
def test_squares_of_complex_numbers_are_rounded_as_they_are_written(squared: Callable[..., Any]) -> None:
    """`lax.square` is another number than the product in the last digit."""
    rng = np.random.default_rng(0)
    x, y = (
        (rng.normal(size=length) + 1j * rng.normal(size=length)).astype(np.complex64) for length in (150, 130)
    )

    def largest(x: Any, y: Any) -> Any:
        return jnp.max(jnp.abs(squared(x[:, None] - y)), 1)

    optimized = eqsat.optimize(largest, budget="60kB", accuracy="exact")
    assert optimized.plan(x, y).changed
    np.testing.assert_array_equal(optimized(x, y), jax.jit(largest)(x, y))
