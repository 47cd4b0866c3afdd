"""Statistics of long simulations: carried along in place of their histories, in as many runs as they need.

    python -m benchmarks.beyond.histories [--quick] [--runs N]

The programs written by hand carry running sums, and run the simulation again for what needs its mean first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.beyond.table import Case, main

Array = Any


def oscillators(state: Array, time: Array) -> Array:
    """Phases that a common force and the mean of all pull at."""
    return state + 0.05 * jnp.sin(3 * state - 0.01 * time) - 0.02 * (state - jnp.mean(state))


def history(start: Array, steps: int) -> Array:
    def step(state: Array, time: Array) -> tuple[Array, Array]:
        state = oscillators(state, time)
        return state, state

    return lax.scan(step, start, jnp.arange(float(steps)))[1]


def passed(start: Array, steps: int, sums: Any, added: Callable[[Any, Array, Array], Any]) -> Any:
    """Runs the simulation, with sums that each state is added to."""

    def step(carry: Any, time: Array) -> tuple[Any, None]:
        state, sums = carry
        state = oscillators(state, time)
        return (state, added(sums, state, time)), None

    return lax.scan(step, (start, sums), jnp.arange(float(steps)))[0][1]


def moments(start: Array, steps: int) -> tuple[Array, ...]:
    states = history(start, steps)
    return states.mean(0), states.std(0), states.max(0)


def moments_by_hand(start: Array, steps: int) -> tuple[Array, ...]:
    nothing = jnp.zeros_like(start), jnp.full_like(start, -jnp.inf)
    total, largest = passed(start, steps, nothing, lambda c, x, _: (c[0] + x, jnp.maximum(c[1], x)))
    mean = total / steps
    squares = passed(start, steps, nothing[0], lambda c, x, _: c + (x - mean) ** 2)
    return mean, jnp.sqrt(squares / steps), largest


BURN_IN, LAG = 500, 5


def autocorrelation(start: Array, steps: int) -> Array:
    """The correlation of states that are five steps apart, after a burn-in."""
    states = history(start, steps)[BURN_IN:]
    deviations = states - states.mean(0)
    return jnp.mean(deviations[LAG:] * deviations[:-LAG], 0) / jnp.mean(deviations**2, 0)


def autocorrelation_by_hand(start: Array, steps: int) -> Array:
    zero = jnp.zeros_like(start)
    total = passed(start, steps, zero, lambda c, x, t: c + jnp.where(t >= BURN_IN, x, 0))
    count = steps - BURN_IN
    mean = total / count

    def added(sums: Any, state: Array, time: Array) -> Any:
        products, squares, before = sums
        deviation = state - mean
        products = products + jnp.where(time >= BURN_IN + LAG, deviation * before[0], 0)
        squares = squares + jnp.where(time >= BURN_IN, deviation**2, 0)
        return products, squares, jnp.concatenate([before[1:], deviation[None]])

    empty = zero, zero, jnp.zeros((LAG, *start.shape))
    products, squares, _ = passed(start, steps, empty, added)
    return (products / (count - LAG)) / (squares / count)


def covariance(start: Array, steps: int) -> Array:
    return jnp.cov(history(start, steps).T)


def covariance_by_hand(start: Array, steps: int) -> Array:
    mean = passed(start, steps, jnp.zeros_like(start), lambda c, x, _: c + x) / steps
    square = jnp.zeros((len(start), len(start)))
    return passed(start, steps, square, lambda c, x, _: c + jnp.outer(x - mean, x - mean)) / (steps - 1)


def phases(count: int) -> tuple[Array]:
    return (np.random.default_rng(0).uniform(-2, 2, count).astype(np.float32),)


def case(
    title: str,
    program: Callable[..., Any],
    by_hand: Callable[..., Any],
    steps: int,
    count: int,
    *budgets: str,
) -> Case:
    written = {"running sums by hand": partial(by_hand, steps=steps)}
    return Case(title, partial(program, steps=steps), partial(phases, count), budgets, written)


CASES = (
    case("mean, deviation, maximum", moments, moments_by_hand, 2_000, 5_000, "1MB"),
    case("autocorrelation", autocorrelation, autocorrelation_by_hand, 2_000, 5_000, "1MB"),
    case("covariances of 40", covariance, covariance_by_hand, 20_000, 40, "1MB"),
)
QUICK = (
    case("mean, deviation, maximum", moments, moments_by_hand, 200, 500, "100kB"),
    case("covariances of 20", covariance, covariance_by_hand, 2_000, 20, "60kB"),
)

if __name__ == "__main__":
    main("histories", __doc__.splitlines()[0], CASES, QUICK)
