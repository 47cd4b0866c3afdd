"""Functions with side effects, and callbacks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import eqsat
from tests.kernels import BUDGET, V, X, Y, close, kernel


def test_side_effects_are_left_alone() -> None:
    heard: list[float] = []

    def fn(x: Any) -> Any:
        jax.debug.callback(lambda total: heard.append(float(total)), x.sum())
        return x + 1

    optimized = eqsat.optimize(fn, budget="1MB")
    plan = optimized.plan(X)
    assert not plan.changed
    assert "side effects" in plan.stop_reason
    close(optimized(X), X + 1)
    optimized(X)
    jax.effects_barrier()
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("transform", "times"),
    [
        (jax.jit, 2),
        (jax.grad, 2),
        (lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x]))[0], 4),
        (lambda f: lambda x: lax.fori_loop(0, 3, lambda _, carry: f(carry), x), 6),
        (lambda f: eqsat.optimize(f, budget="1MB"), 2),
    ],
)
def test_side_effects_happen_as_often_and_in_the_same_order(
    transform: Callable[..., Any], times: int
) -> None:
    def run(optimize: Callable[..., Any]) -> list[str]:
        heard: list[str] = []

        def fn(x: Any) -> Any:
            jax.debug.callback(lambda x: heard.append("first"), x)
            jax.debug.callback(lambda x: heard.append("second"), x)
            return 2 * x

        transformed = transform(optimize(fn))
        transformed(jnp.float32(1))
        transformed(jnp.float32(2))
        jax.effects_barrier()
        return heard

    heard = run(lambda f: eqsat.optimize(f, budget="1MB"))
    assert len(heard) == 2 * times
    assert sorted(heard) == sorted(run(lambda f: f))


def test_ordered_effects_stay_in_order() -> None:
    heard: list[int] = []

    def fn(x: Any) -> Any:
        for number in range(3):
            io_callback(functools.partial(lambda n, x: heard.append(n), number), None, x, ordered=True)
        return x + 1

    optimized = eqsat.optimize(fn, budget="1MB")
    optimized(jnp.float32(1))
    jax.jit(lambda x: optimized(optimized(x)))(jnp.float32(1))
    jax.effects_barrier()
    assert heard == [0, 1, 2] * 3


def test_side_effects_cannot_be_made_to_fit() -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        jax.debug.callback(lambda _: None, x.sum())
        return kernel(x, y, v)

    with pytest.raises(eqsat.BudgetError, match="has side effects"):
        eqsat.optimize(fn, budget=BUDGET).plan(X, Y, V)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "transform",
    [
        jax.jit,
        lambda f: lambda x, y, v: jax.grad(lambda *xs: jnp.sum(f(*xs)))(x, y, v),
        lambda f: lambda x, y, v: jax.vmap(f, (None, None, 0))(x, y, v[None]),
        lambda f: lambda x, y, v: lax.scan(lambda c, _: (c + f(x, y, v), None), x[:, 0], None, 2),
    ],
)
def test_what_has_side_effects_keeps_to_the_budget_under_transformations(
    transform: Callable[..., Any],
) -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        jax.debug.callback(lambda _: None, x.sum())
        return kernel(x, y, v)

    with pytest.raises(eqsat.BudgetError, match="has side effects"):
        transform(eqsat.optimize(fn, budget=BUDGET))(X, Y, V)
    fits = transform(eqsat.optimize(fn, budget="1GB"))(X, Y, V)
    close(fits, transform(fn)(X, Y, V), rtol=1e-3)


def test_what_control_flow_prints_is_not_printed_again_by_the_gradient() -> None:
    heard: list[float] = []

    def fn(x: Any) -> Any:
        def iteration(carry: Any, _: Any) -> Any:
            jax.debug.callback(lambda c: heard.append(float(c)), carry)
            return jnp.sin(carry), carry

        last, stacked = lax.scan(jax.checkpoint(iteration), x, None, 3)
        return last + jnp.sum(stacked)

    gradient = jax.grad(eqsat.optimize(fn, budget="1MB"))(jnp.float32(1))
    jax.effects_barrier()
    assert len(heard) == 3
    close(gradient, jax.grad(fn)(jnp.float32(1)))


def test_pure_callbacks_are_calls_like_any_other() -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        doubled = jax.pure_callback(lambda a: 2 * np.asarray(a), jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        return kernel(x, y, doubled)

    optimized = eqsat.optimize(fn, budget=BUDGET)
    assert optimized.plan(X, Y, V).changed
    close(optimized(X, Y, V), fn(X, Y, V))
