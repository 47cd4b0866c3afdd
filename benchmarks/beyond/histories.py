"""Statistics of long simulations: carried along in place of their histories, in as many runs as they need.

    python -m benchmarks.beyond.histories [--quick] [--runs N]

The programs written by hand carry running sums, and run the simulation again for what needs its mean first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
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


def observables(start: Array, steps: int) -> tuple[Array, ...]:
    """The order of each state, its distance from the first one, and four of the states."""
    states = history(start, steps)
    order = jnp.hypot(jnp.cos(states).mean(1), jnp.sin(states).mean(1))
    return order, jnp.mean((states - states[0]) ** 2, 1), states[:: steps // 4]


def observables_by_hand(start: Array, steps: int) -> tuple[Array, ...]:
    every = steps // 4

    def step(carry: Any, time: Array) -> tuple[Any, Any]:
        state, first, some = carry
        state = oscillators(state, time)
        first = jnp.where(time == 0, state, first)
        number = (time / every).astype(int)
        kept = jnp.where(time % every == 0, state, some[number])
        order = jnp.hypot(jnp.cos(state).mean(), jnp.sin(state).mean())
        carry = state, first, some.at[number].set(kept)
        return carry, (order, jnp.mean((state - first) ** 2))

    empty = start, jnp.zeros_like(start), jnp.zeros((4, *start.shape))
    (_, _, some), (order, distance) = lax.scan(step, empty, jnp.arange(float(steps)))
    return order, distance, some


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

    def added(square: Array, states: Array) -> Array:
        return square + (states - mean).T @ (states - mean)

    return blocks(start, steps, 20, square, added) / (steps - 1)


def blocks(
    start: Array, steps: int, count: int, sums: Array, added: Callable[[Array, Array], Array]
) -> Array:
    """Runs the simulation by blocks of steps, with sums that what is computed of each block is added to."""

    def step(state: Array, time: Array) -> tuple[Array, Array]:
        state = oscillators(state, time)
        return state, state

    def block(carry: Any, times: Array) -> tuple[Any, None]:
        state, sums = carry
        state, states = lax.scan(step, state, times)
        return (state, added(sums, states)), None

    return lax.scan(block, (start, sums), jnp.arange(float(steps)).reshape(count, -1))[0][1]


WINDOWS = 40


def power(states: Array) -> Array:
    """The power spectra of windows of states, along the last but one axis."""
    length = states.shape[-2]
    return jnp.abs(jnp.fft.rfft(states * jnp.hanning(length)[:, None], axis=-2)) ** 2


def spectra(start: Array, steps: int) -> Array:
    """The power spectrum of each oscillator: the mean of those of windows."""
    return power(history(start, steps).reshape(WINDOWS, -1, len(start))).mean(0)


def spectra_by_hand(start: Array, steps: int) -> Array:
    empty = jnp.zeros((steps // WINDOWS // 2 + 1, len(start)))
    return blocks(start, steps, WINDOWS, empty, lambda c, x: c + power(x)) / WINDOWS


SHORTER = 20
SEGMENT = 50


def driven(force: Array, state: Array, time: Array) -> Array:
    return 0.99 * state + 0.05 * jnp.sin(force * time / 40) - 0.01 * jnp.tanh(state - jnp.mean(state))


def variance_loss(force: Array, steps: int) -> Array:
    """How far the variances of a simulation, after a burn-in, are from one."""

    def step(state: Array, time: Array) -> tuple[Array, Array]:
        state = driven(force, state, time)
        return state, state

    states = lax.scan(step, jnp.zeros_like(force), jnp.arange(float(steps)))[1]
    return jnp.sum((jnp.var(states[BURN_IN:], 0) - 1) ** 2)


def variance_loss_by_hand(force: Array, steps: int) -> Array:
    """The same with running sums, of which checkpoints are kept for segments of the steps."""
    count = steps - BURN_IN

    def sums(added: Callable[[Array], Array]) -> Array:
        def step(carry: Any, time: Array) -> tuple[Any, None]:
            state, total = carry
            state = driven(force, state, time)
            return (state, total + jnp.where(time >= BURN_IN, added(state), 0)), None

        @jax.checkpoint
        def segment(carry: Any, times: Array) -> tuple[Any, None]:
            return lax.scan(step, carry, times)

        zero = jnp.zeros_like(force)
        return lax.scan(segment, (zero, zero), jnp.arange(float(steps)).reshape(-1, SEGMENT))[0][1]

    mean = sums(lambda state: state) / count
    return jnp.sum((sums(lambda state: (state - mean) ** 2) / count - 1) ** 2)


def gradient(force: Array, steps: int) -> Array:
    return jax.grad(variance_loss)(force, steps)


def gradient_by_hand(force: Array, steps: int) -> Array:
    return jax.grad(variance_loss_by_hand)(force, steps)


def wave(speeds: Array, state: Any, time: Array) -> tuple[Any, Array]:
    """A step of the wave equation on a square, pushed in the middle."""
    now, before = state
    size = len(now)
    around = sum(jnp.roll(now, move, axis) for move in (1, -1) for axis in (0, 1))
    later = 2 * now - before + 0.2 * speeds**2 * (around - 4 * now)
    later = later.at[size // 2, size // 2].add(jnp.sin(time / 8))
    return (later, now), later


def misfit(speeds: Array, steps: int) -> Array:
    """How far what receivers in a row hear of a wave is from nothing."""
    start = jnp.zeros_like(speeds), jnp.zeros_like(speeds)
    states = lax.scan(partial(wave, speeds), start, jnp.arange(float(steps)))[1]
    return jnp.mean(states[:, 10, ::4] ** 2)


def misfit_by_hand(speeds: Array, steps: int) -> Array:
    """The same, hearing in each step, with checkpoints for segments of the steps."""

    def step(state: Any, time: Array) -> tuple[Any, Array]:
        state, later = wave(speeds, state, time)
        return state, later[10, ::4]

    @jax.checkpoint
    def segment(state: Any, times: Array) -> tuple[Any, Array]:
        return lax.scan(step, state, times)

    start = jnp.zeros_like(speeds), jnp.zeros_like(speeds)
    return jnp.mean(lax.scan(segment, start, jnp.arange(float(steps)).reshape(-1, SHORTER))[1] ** 2)


def inversion(speeds: Array, steps: int) -> Array:
    return jax.grad(misfit)(speeds, steps)


def inversion_by_hand(speeds: Array, steps: int) -> Array:
    return jax.grad(misfit_by_hand)(speeds, steps)


LAYERS = 3


def layers(inputs: Array, steps: int) -> Array:
    """The mean of what the last of some recurrent layers gives, each of which reads all of the one below."""

    def step(state: Array, given: Array) -> tuple[Array, Array]:
        state = jnp.tanh(0.9 * state + given + 0.1 * jnp.roll(state, 1))
        return state, state

    given = jnp.sin(jnp.arange(float(steps))[:, None] * inputs / 20)
    for _ in range(LAYERS):
        given = lax.scan(step, jnp.zeros_like(inputs), given)[1]
    return given.mean(0)


def layers_by_hand(inputs: Array, steps: int) -> Array:
    def step(carry: Any, time: Array) -> tuple[Any, None]:
        states, total = carry
        given = jnp.sin(time * inputs / 20)
        made = []
        for state in states:
            given = jnp.tanh(0.9 * state + given + 0.1 * jnp.roll(state, 1))
            made.append(given)
        return (made, total + given), None

    zero = jnp.zeros_like(inputs)
    return lax.scan(step, ([zero] * LAYERS, zero), jnp.arange(float(steps)))[0][1] / steps


def phases(count: int) -> tuple[Array]:
    return (np.random.default_rng(0).uniform(-2, 2, count).astype(np.float32),)


def forces(count: int) -> tuple[Array]:
    return (np.linspace(0.3, 1.7, count, dtype=np.float32),)


def speeds(size: int) -> tuple[Array]:
    return (np.random.default_rng(0).uniform(0.8, 1.2, (size, size)).astype(np.float32),)


def case(
    title: str,
    program: Callable[..., Any],
    by_hand: Callable[..., Any],
    steps: int,
    count: int,
    *budgets: str,
    arguments: Callable[[int], tuple[Array]] = phases,
    way: str = "running sums by hand",
) -> Case:
    written = {way: partial(by_hand, steps=steps)}
    return Case(title, partial(program, steps=steps), partial(arguments, count), budgets, written)


CASES = (
    case("mean, deviation, maximum", moments, moments_by_hand, 2_000, 5_000, "1MB"),
    case("observables", observables, observables_by_hand, 2_000, 5_000, "1MB"),
    case("autocorrelation", autocorrelation, autocorrelation_by_hand, 2_000, 5_000, "1MB"),
    case("covariances of 40", covariance, covariance_by_hand, 20_000, 40, "1MB", way="segments by hand"),
    case("spectra of windows", spectra, spectra_by_hand, 20_000, 400, "4MB", way="windows by hand"),
    case(
        "gradient of variances",
        gradient,
        gradient_by_hand,
        2_000,
        5_000,
        "8MB",
        arguments=forces,
        way="checkpoints by hand",
    ),
    case(
        "inversion of a wave",
        inversion,
        inversion_by_hand,
        500,
        160,
        "16MB",
        arguments=speeds,
        way="checkpoints by hand",
    ),
    case(
        "three layers",
        layers,
        layers_by_hand,
        2_000,
        5_000,
        "1MB",
        arguments=forces,
        way="one scan by hand",
    ),
)
QUICK = (
    case("mean, deviation, maximum", moments, moments_by_hand, 200, 500, "100kB"),
    case("observables", observables, observables_by_hand, 200, 500, "100kB"),
    case("covariances of 20", covariance, covariance_by_hand, 2_000, 20, "60kB"),
    case("spectra of windows", spectra, spectra_by_hand, 2_000, 40, "80kB"),
    case("gradient of variances", gradient, gradient_by_hand, 600, 500, "600kB", arguments=forces),
    case("inversion of a wave", inversion, inversion_by_hand, 100, 40, "500kB", arguments=speeds),
    case("three layers", layers, layers_by_hand, 200, 500, "100kB", arguments=forces),
)

if __name__ == "__main__":
    main("histories", __doc__.splitlines()[0], CASES, QUICK)
