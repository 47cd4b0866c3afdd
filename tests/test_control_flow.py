"""Programs whose memory is inside of loops and branches, optimised as users do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import eqsat
from eqsat.reports.plan import Plan
from tests.stages import normal


def fitted(function: Callable[..., Any], budget: int, *arguments: Any, rtol: float = 2e-4) -> Plan:
    """The plan within a budget that the function as it is exceeds, found to give the same results."""
    optimized = eqsat.optimize(function, budget=budget)
    plan = optimized.plan(*arguments)
    assert plan.original_peak_bytes > budget >= plan.peak_bytes
    wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    for result, value in zip(jax.tree.leaves(optimized(*arguments)), wanted, strict=True):
        scale = float(np.abs(value).max())
        np.testing.assert_allclose(result, value, rtol=rtol, atol=rtol * scale)
    return plan


def gram(x: Any) -> Any:
    return jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1))


def test_a_solver_s_matrix_is_computed_where_it_is_used() -> None:
    def ridge(x, b):
        matrix = gram(x) + jnp.eye(len(x))
        return jax.scipy.sparse.linalg.cg(lambda v: matrix @ v, b, maxiter=20)[0]

    x = normal(900, 3)
    plan = fitted(ridge, 400_000, x, x[:, 0])
    assert plan.rules_fired["rematerialised-in-loop"] >= 1
    assert plan.predicted_seconds > plan.original_seconds


def test_a_matrix_that_fits_stays_outside_the_loop() -> None:
    def power(x, v):
        matrix = gram(x)
        return lax.fori_loop(0, 20, lambda _, v: matrix @ v / jnp.linalg.norm(v), v)

    x = normal(900, 50)
    budget = 8_000_000  # the matrix is 3.24 MB, the differences 162 MB
    plan = fitted(power, budget, x, x[:, 0])
    assert "rematerialised-in-loop" not in plan.rules_fired


def test_forces_inside_a_loop_over_time() -> None:
    def orbits(x, v):
        def step(state, _):
            x, v = state
            d = x[None] - x[:, None]
            force = (d / (jnp.sum(d**2, -1, keepdims=True) + 0.1) ** 1.5).sum(1)
            return (x + 0.01 * v, v + 0.01 * force), jnp.sum(v**2)

        return lax.scan(step, (x, v), None, length=5)

    fitted(orbits, 250_000, normal(500, 3), normal(500, 3, seed=1))


def test_the_gradient_by_a_loop_s_weights_is_summed_over_chunks_of_the_batch() -> None:
    def loss(weights, xs):
        w, u = weights

        def iteration(h, x):
            h = jnp.tanh(h @ w + x @ u)
            return h, jnp.sum(h**2)

        h, norms = lax.scan(iteration, jnp.zeros((xs.shape[1], 16)), xs)
        return h.sum() + norms.sum()

    weights = normal(16, 16) / 4, normal(4, 16, seed=1)
    plan = fitted(jax.value_and_grad(loss), 500_000, weights, normal(50, 250, 4))
    assert plan.rules_fired["split-summing-call"] >= 1


def test_a_batch_of_sequences_goes_through_the_loop_by_chunks() -> None:
    def recurrent(xs, w):
        def iteration(h, x):
            h = jnp.tanh(h @ w + x[:, None])
            return h, None

        return lax.scan(iteration, jnp.zeros((2000, 64)), xs)[0].sum(1)

    plan = fitted(recurrent, 600_000, normal(8, 2000), 0.1 * normal(64, 64))
    assert any(loop.size == 2000 for loop in plan.loops)


def test_all_results_of_a_loop_that_is_done_by_chunks_come_from_one_pass() -> None:
    def ensemble(y0, w):
        def step(y, _):
            k = jnp.sort(y @ w, axis=1)[:, ::8] - y
            return y + 0.1 * k, y.sum(1)

        return lax.scan(step, y0, None, length=4)

    plan = fitted(ensemble, 1_800_000, normal(10_000, 8), 0.1 * normal(8, 64))
    assert [loop.size for loop in plan.loops] == [10_000]


def test_a_batch_of_loops_that_end_when_they_like() -> None:
    def shrink(x):
        return lax.while_loop(lambda c: jnp.sum(c * c) > 1.0, lambda c: 0.7 * jnp.sin(c), x).sum()

    x = normal(3000, 50)
    plan = fitted(lambda x: jax.vmap(shrink)(2 * x), 1_000_000, x)
    assert any(loop.size == 3000 for loop in plan.loops)


def test_the_branch_that_is_taken_computes_what_it_needs_by_chunks() -> None:
    def either(p, x, v):
        return lax.cond(p > 0, lambda: gram(x) @ v, lambda: v)

    x = normal(900, 3)
    fitted(either, 300_000, jnp.float32(1.0), x, x[:, 0])


def test_a_loop_in_a_loop() -> None:
    def outer(x, v):
        def inner(_, v):
            return jnp.tanh(gram(x) @ v)

        def iteration(v, _):
            v = lax.fori_loop(0, 3, inner, v)
            return v, v.sum()

        return lax.scan(iteration, v, None, length=2)

    x = normal(700, 3)
    fitted(outer, 300_000, x, x[:, 0])


def test_what_a_loop_takes_slice_by_slice_is_computed_slice_by_slice() -> None:
    def recurrent(xs, w, u):
        inputs = jnp.tanh(xs @ w)

        def iteration(h, x):
            h = jnp.tanh(h * u + x)
            return h, h.sum()

        return lax.scan(iteration, jnp.zeros(200), inputs)

    plan = fitted(recurrent, 300_000, normal(2000, 4), normal(4, 200), normal(200))
    assert plan.rules_fired["rematerialised-in-loop"] >= 1


def test_a_slice_that_depends_on_its_place_is_not_computed_without_it() -> None:
    def weighed(xs, w):
        inputs = jnp.cumsum(xs @ w, 0) * jnp.arange(300.0)[:, None]
        return lax.scan(lambda h, x: (jnp.tanh(h + x), h.sum()), jnp.zeros(200), inputs)

    xs, w = normal(300, 4), normal(4, 200)
    plan = eqsat.optimize(weighed, budget="1MB").plan(xs, w)
    assert "rematerialised-in-loop" not in plan.rules_fired
