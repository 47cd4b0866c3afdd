"""No plan that nobody would wait for: a far slower program is a refusal, unless the caller takes any."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import pytest

import eqsat
from eqsat.amounts import parse_budget
from tests.stages import normal


def kernel(x: Any, y: Any) -> Any:
    """Tiles of nearly nothing are needed where rows of it are too much."""
    scores = x[:, None] * y
    return (jnp.exp(scores) / jnp.exp(scores).sum(0)).sum(1)


def test_a_plan_that_is_far_slower_is_a_refusal_that_says_what_would_do() -> None:
    x = normal(2000)
    least = eqsat.minimum_budget(kernel)(x, x)
    with pytest.raises(eqsat.BudgetError, match="max_slowdown=10; as written") as refused:
        eqsat.optimize(kernel, budget=least).plan(x, x)
    advised = re.search(r"Raise the budget to ([\d.]+ \w+) or more", str(refused.value))
    assert advised is not None
    plan = eqsat.optimize(kernel, budget=parse_budget(advised.group(1))).plan(x, x)
    assert plan.peak_bytes <= parse_budget(advised.group(1))


def test_a_caller_may_take_any_plan() -> None:
    x = normal(2000)
    least = eqsat.minimum_budget(kernel)(x, x)
    assert eqsat.optimize(kernel, budget=least, max_slowdown=None).plan(x, x).peak_bytes <= least


@pytest.mark.parametrize("factor", [0.5, 0, -1, "fast", True])
def test_a_slowdown_is_a_number_from_one_on(factor: Any) -> None:
    with pytest.raises(ValueError, match="max_slowdown is a number from 1 on, or None"):
        eqsat.optimize(kernel, max_slowdown=factor)
