"""Functions with side effects, and callbacks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

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


def test_side_effects_cannot_be_made_to_fit() -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        jax.debug.callback(lambda _: None, x.sum())
        return kernel(x, y, v)

    with pytest.raises(eqsat.BudgetError, match="has side effects"):
        eqsat.optimize(fn, budget=BUDGET).plan(X, Y, V)


def test_pure_callbacks_are_calls_like_any_other() -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        doubled = jax.pure_callback(lambda a: 2 * np.asarray(a), jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        return kernel(x, y, doubled)

    optimized = eqsat.optimize(fn, budget=BUDGET)
    assert optimized.plan(X, Y, V).changed
    close(optimized(X, Y, V), fn(X, Y, V))
