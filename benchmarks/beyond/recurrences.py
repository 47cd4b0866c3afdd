"""Gradients of long loops: segments of iterations that the backward pass runs again.

    python -m benchmarks.beyond.recurrences [--quick] [--runs N]

The programs written by hand are loops over segments, each under `jax.checkpoint`, of loops over their
iterations, with about as many segments as iterations in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.beyond.table import Case, main

Array = Any
Scan = Callable[..., Any]


def segmented(step: Callable[[Any, Any], Any], start: Any, inputs: Array) -> Any:
    """`lax.scan` whose gradient keeps the carries of segments; their number divides that of iterations."""
    steps = len(inputs)
    inner = min((n for n in range(1, steps + 1) if steps % n == 0), key=lambda n: abs(n - math.sqrt(steps)))
    segment = jax.checkpoint(lambda carry, xs: lax.scan(step, carry, xs))
    carry, stacked = lax.scan(segment, start, jnp.reshape(inputs, (-1, inner, *inputs.shape[1:])))
    return carry, jax.tree.map(lambda s: jnp.reshape(s, (steps, *s.shape[2:])), stacked)


def recurrent(scan: Scan, weights: Any, inputs: Array, targets: Array) -> Any:
    """The loss of a recurrent network and its gradient."""

    def loss(weights: Any) -> Array:
        def step(state: Array, x: Array) -> tuple[Array, Array]:
            state = jnp.tanh(x @ weights["input"] + state @ weights["state"] + weights["bias"])
            return state, state @ weights["output"]

        start = jnp.zeros((inputs.shape[1], weights["state"].shape[0]), inputs.dtype)
        return jnp.mean((scan(step, start, inputs)[1] - targets) ** 2)

    return jax.value_and_grad(loss)(weights)


def recurrent_data(steps: int, batch: int, width: int) -> tuple[Any, Array, Array]:
    draw = _drawing()
    weights = {
        "input": draw(32, width),
        "state": draw(width, width),
        "bias": draw(width),
        "output": draw(width, 4),
    }
    return weights, draw(steps, batch, 32, scale=1.0), draw(steps, batch, 4, scale=1.0)


def lstm(scan: Scan, weights: Any, inputs: Array, targets: Array) -> Any:
    """The loss of two layers of long short-term memory and its gradient."""

    def layer(weights: Any, inputs: Array) -> Array:
        def step(state: Any, x: Array) -> Any:
            hidden, cell = state
            i, f, g, o = jnp.split(x @ weights[0] + hidden @ weights[1] + weights[2], 4, -1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        start = jnp.zeros((inputs.shape[1], weights[1].shape[0]), inputs.dtype)
        states: Array = scan(step, (start, start), inputs)[1]
        return states

    def loss(weights: Any) -> Array:
        states = layer(weights[1], layer(weights[0], inputs))
        return jnp.mean((states @ weights[2] - targets) ** 2)

    return jax.value_and_grad(loss)(weights)


def lstm_data(steps: int, batch: int, width: int) -> tuple[Any, Array, Array]:
    draw = _drawing()
    layers = [(draw(rows, 4 * width), draw(width, 4 * width), draw(4 * width)) for rows in (32, width)]
    inputs, targets = draw(steps, batch, 32, scale=1.0), draw(steps, batch, 3, scale=1.0)
    return (*layers, draw(width, 3)), inputs, targets


def wave(scan: Scan, speed: Array, source: Array, observed: Array) -> Any:
    """The misfit of a simulated wave to what was observed on a line, and its gradient in the speed."""
    n = speed.shape[0]

    def loss(speed: Array) -> Array:
        def step(state: Any, pulse: Array) -> Any:
            now, before = state
            around = sum(jnp.roll(now, shift, axis) for shift in (1, -1) for axis in (0, 1))
            later = 2 * now - before + speed * (around - 4 * now)
            return (later.at[n // 2, n // 2].add(pulse), now), later[5]

        start = jnp.zeros_like(speed)
        return jnp.mean((scan(step, (start, start), source)[1] - observed) ** 2)

    return jax.value_and_grad(loss)(speed)


def wave_data(steps: int, n: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    speed = rng.uniform(0.1, 0.15, (n, n)).astype(np.float32)
    source, observed = rng.normal(size=steps).astype(np.float32), rng.normal(size=(steps, n))
    return speed, source, observed.astype(np.float32)


def _drawing() -> Callable[..., Array]:
    rng = np.random.default_rng(0)

    def draw(*shape: int, scale: float | None = None) -> Array:
        scale = scale or 1 / math.sqrt(shape[0])
        return (scale * rng.normal(size=shape)).astype(np.float32)

    return draw


def gradients(result: tuple[Array, Any]) -> Array:
    """Returns the gradient as one vector: parts of it are near zero."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result[1])])


def case(
    title: str, program: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]], *budgets: str
) -> Case:
    by_hand = {"segments under jax.checkpoint": partial(program, segmented)}
    return Case(title, partial(program, lax.scan), arguments, budgets, by_hand, part=gradients)


CASES = (
    case("recurrent network, 2,000 steps", recurrent, partial(recurrent_data, 2_000, 32, 128), "30MB"),
    case("recurrent network, 1,999 steps", recurrent, partial(recurrent_data, 1_999, 32, 128), "30MB"),
    case("two layers of LSTM, 1,000 steps", lstm, partial(lstm_data, 1_000, 32, 64), "40MB"),
    case("wave equation, 1,200 steps", wave, partial(wave_data, 1_200, 256), "50MB"),
)
QUICK = (
    case("recurrent network, 200 steps", recurrent, partial(recurrent_data, 200, 8, 64), "2MB"),
    case("wave equation, 200 steps", wave, partial(wave_data, 200, 64), "1MB"),
)

if __name__ == "__main__":
    main("recurrences", __doc__.splitlines()[0], CASES, QUICK)
