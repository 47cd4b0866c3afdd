"""Reductions over rows by tiles, whatever the number of rows is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.frontend.tiles import tilings
from eqsat.ir.tiled_values import tiled_values
from tests.frontend.test_tiles import SPECIALS, check, conv
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

PRIME = 10_007


def filtered(x: Any, taps: int = 5, **options: Any) -> Any:
    """A series through a filter."""
    kernel = jnp.asarray(normal(1, 1, taps))
    given = {"window_strides": (1,), "padding": "VALID", **options}
    return lax.conv_general_dilated(x[None, None], kernel, **given)[0, 0]


def highest(x: Any, size: int = 5, step: int = 1) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (size,), (step,), "VALID")


def log_sum(y: Any) -> Any:
    return jax.nn.logsumexp(y)


REDUCED: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: jnp.sum(jnp.abs(filtered(x))),
    "mean": lambda x: jnp.mean(filtered(x) ** 2),
    "variance": lambda x: jnp.var(filtered(x)),
    "maximum": lambda x: jnp.max(filtered(x)),
    "minimum": lambda x: jnp.min(highest(x)),
    "any": lambda x: jnp.any(highest(x) > 3),
    "all": lambda x: jnp.all(highest(x) > -1),
    "counted": lambda x: jnp.sum(filtered(x) > 0),
    "inner product": lambda x: jnp.vdot(filtered(x), highest(x)),
    "with another series": lambda x: jnp.abs(filtered(x)) @ jnp.cos(x[2:-2]) ** 2,
    "softmax": lambda x: log_sum(filtered(x)),
    "steps": lambda x: jnp.sum(highest(x, 8, 3)),
    "same length": lambda x: jnp.sum(1 + jnp.tanh(filtered(x, padding="SAME"))),
    "one after another": lambda x: jnp.sum(filtered(jax.nn.relu(filtered(x))) ** 2),
    "half precision": lambda x: jnp.sum(highest(x).astype(jnp.bfloat16)),
    "small integers": lambda x: jnp.sum((highest(x) > 0).astype(jnp.int8), dtype=jnp.int8),
    "where highest": lambda x: jnp.argmax(filtered(x)),
    "where lowest": lambda x: jnp.argmin(highest(x)),
    "where first": lambda x: jnp.argmax(filtered(x) > 2),
    "value and place": lambda x: (jnp.max(filtered(x)), jnp.argmax(filtered(x))),
    "convolve": lambda x: jnp.max(jnp.convolve(x, jnp.arange(9.0), mode="same")),
}
"""Addends of sums have one sign: others might cancel, and leave rounding errors."""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", REDUCED)
def test_reductions_after_windows(name: str) -> None:
    x = normal(PRIME + 4)
    assert check(REDUCED[name], x) >= 1
    (tiling, *_) = tilings(jax.make_jaxpr(REDUCED[name])(x).jaxpr)
    assert name == "steps" or all(result.dimension is None for result in tiling.results)
    assert len(tiling.results) == len(list(tiled_values(lowered(REDUCED[name], x)[0])))


@settings(max_examples=100 if THOROUGH else 6)
@given(st.sampled_from(sorted(REDUCED)), st.integers(64, 400), st.integers(0, 1000))
def test_reductions_of_hostile_series(name: str, rows: int, seed: int) -> None:
    """XLA for CPUs drops NaN from some windows, so series for maxima have none."""
    random = np.random.default_rng(seed)
    hostile = random.random(rows) < random.choice([0.0, 0.01, 0.2])
    some = [one for one in SPECIALS if not np.isnan(one)]
    x = np.where(hostile, random.choice(some, rows), random.normal(size=rows)).astype(np.float32)
    check(REDUCED[name], x)


def test_images_of_a_prime_number_of_rows() -> None:
    def loss(x: Any) -> Any:
        return jnp.mean(conv(jax.nn.relu(conv(x, 4)), 4), axis=(1, 2))

    x = normal(1, 257, 11, 1)
    assert check(loss, x) == 1
    (tiling,) = tilings(jax.make_jaxpr(loss)(x).jaxpr)
    assert tiling.results[0].dimension is None


@pytest.mark.parametrize("columns", [(-1, 1), (-2, 2), (-1, 0), (1, -1)])
def test_columns_that_are_cropped(columns: tuple[int, int]) -> None:
    """XLA for CPUs computes some such convolutions wrongly if rows are not padded; those of tiles are not."""
    kernel = normal(5, 3, 2, 8)

    def fn(x: Any) -> Any:
        padding = [(4, 0), columns]
        y = lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.sum(y, (0, 1))

    assert check(fn, normal(4, 520, 32, 2)) == 1


@pytest.mark.parametrize("mode", ["edge", "reflect", "constant", "wrap"])
def test_series_that_are_padded(mode: str) -> None:
    """Some pads join arrays without entries."""
    x = normal(PRIME)
    assert check(lambda x: jnp.convolve(jnp.pad(x, (7, 0), mode=mode), jnp.ones(8) / 8, "valid"), x) == 1


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_images_that_are_padded(mode: str) -> None:
    def padded(x: Any) -> Any:
        return conv(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode=mode), 4, padding="VALID")

    x = normal(1, 97, 32, 3)
    assert check(padded, x) == 1
    assert check(lambda x: jnp.sum(padded(x) ** 2), x) == 1


def test_rows_of_the_other_end_are_taken_for_each_tile() -> None:
    """They are few: windows of both ends would be of all rows."""
    x = normal(PRIME)

    def around(x: Any) -> Any:
        return jnp.sum(jnp.abs(filtered(jnp.roll(x, 3)) + filtered(jnp.roll(x, -3))))

    assert check(around, x) == 1
    (tiling,) = tilings(jax.make_jaxpr(around)(x).jaxpr)
    assert tiling.results[0].parts[0] > 50


def test_what_has_no_results_is_passed_over() -> None:
    def fn(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x[0])
        return jnp.sum(filtered(x))

    (tiling,) = tilings(jax.make_jaxpr(fn)(normal(PRIME)).jaxpr)
    assert tiling.results[0].dimension is None


def test_results_by_rows() -> None:
    def fn(x: Any) -> Any:
        y = filtered(x)
        return jnp.sum(y), y, jnp.tanh(y) * 2

    x = normal(PRIME)
    assert check(fn, x) == 3
    (tiling,) = tilings(jax.make_jaxpr(fn)(x).jaxpr)
    assert {result.dimension for result in tiling.results} == {None, 0}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.sort(filtered(x))[3],
        lambda x: jnp.cumsum(filtered(x)).max(),
    ],
)
def test_what_is_needed_whole_is_joined(fn: Callable[[Any], Any]) -> None:
    x = normal(PRIME)
    found = tilings(jax.make_jaxpr(fn)(x).jaxpr)
    assert all(result.dimension is not None for one in found for result in one.results)


def test_a_series_of_a_prime_length_in_little_memory() -> None:
    def fn(x: Any) -> Any:
        y = jnp.convolve(x, jnp.ones(31) / 31, mode="valid")
        return jnp.sum(jnp.maximum(y, 0.0)), jnp.max(jnp.abs(y))

    x = jnp.asarray(normal(1_000_003))
    optimized = eqsat.optimize(fn, budget=5_000_000)
    plan = optimized.plan(x)
    assert plan.loops
    for found, wanted in zip(optimized(x), jax.jit(fn)(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
