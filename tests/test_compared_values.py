"""What is compared with an entry of it is the same bits on both sides, whatever the budget."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from examples.measure import plain_peak
from tests.nightly import nightly_but
from tests.stages import normal

X, Y, S = normal(96, 8), normal(80, 8), normal(40, 36)

FUNCTIONS = {
    "largest of rows": lambda v: jnp.max(v, 1),
    "least of columns": lambda v: jnp.min(v, 0),
    "largest of all": jnp.max,
    "range of rows": lambda v: jnp.ptp(v, 1),
    "bounded": lambda v: jnp.clip(v, -1, 1),
    "entries equal to the largest": lambda v: jnp.where(v == v.max(1, keepdims=True), v, 0.0),
    "entries among the three largest": lambda v: jnp.where(v >= jnp.sort(v, 1)[:, -3:-2], v, 0.0),
    "largest of segments": lambda v: jax.ops.segment_max(v, np.arange(96) % 5, 5),
    "no less than the largest": lambda v: jnp.where(v - v.max(1, keepdims=True) >= 0, v, 0.0),
}


def check_gradient(fn: Any, part: float, *args: Any) -> None:
    """A gradient is that of plain JAX, within inputs, outputs and a part of what plain JAX needs besides."""
    gradient = jax.grad(fn, argnums=tuple(range(len(args))))
    wanted = gradient(*map(jnp.asarray, args))
    fixed = 2 * sum(arg.nbytes for arg in args)
    budget = int(fixed + part * (plain_peak(gradient, args) - fixed))
    optimized = eqsat.optimize(gradient, budget=budget, max_slowdown=None)
    plan = optimized.plan(*args)
    assert plan.changed
    assert plan.peak_bytes <= budget
    for result, value in zip(optimized(*args), wanted, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-4 * float(jnp.abs(value).max()))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_functions_of_a_product(name: str) -> None:
    check_gradient(lambda x, y: jnp.sum(FUNCTIONS[name](1.3 * (x @ y.T) + 0.1)), 0.3, X, Y)


@pytest.mark.parametrize("part", nightly_but({0.2}, [0.2, 0.5]))
def test_the_gradient_of_a_maximum_of_products_in_any_order(part: float) -> None:
    check_gradient(lambda x: jnp.sum(jnp.max(x @ x.T @ x * 1.7, 1)), part, S)


def history(w: Any, u: Any, x: Any) -> Any:
    """The states of a small recurrent network."""

    def step(state: Any, row: Any) -> Any:
        state = jnp.tanh(row @ w + state @ u)
        return state, state

    return jax.lax.scan(step, jnp.zeros((x.shape[1], w.shape[1])), x)[1]


@pytest.mark.parametrize("part", nightly_but({0.2}, [0.8, 0.4, 0.2]))
def test_the_gradient_of_the_largest_state_of_a_history(part: float) -> None:
    """Backwards, states are computed again, but for the comparison with the largest."""
    w, u, x = normal(8, 16) / 3, normal(16, 16) / 4, normal(30, 96, 8)
    check_gradient(lambda w, u: jnp.mean(history(w, u, x).max(0) ** 2), part, w, u)
