"""No plan that nobody would wait for: a far slower program is a refusal, unless the caller takes any."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.support.units import parse_budget
from examples.measure import plain_peak
from tests.nightly import nightly_but
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


@pytest.mark.parametrize("part", nightly_but([0.5], [0.2, 0.5]))
def test_gradients_of_maxima_of_products_fit_in_parts_of_their_temporaries(part: float) -> None:
    """One product can be known by chunks of one axis only: others of its values are computed by tiles."""
    x = normal(80, 60)
    gradient = jax.grad(lambda x: jnp.sum(jnp.max(x @ x.T @ x * 1.7, 1)))
    budget = int(2 * x.nbytes + part * (plain_peak(gradient, [x]) - 2 * x.nbytes))
    optimized = eqsat.optimize(gradient, budget=budget)
    assert optimized.plan(x).peak_bytes <= budget
    np.testing.assert_allclose(optimized(x), gradient(jnp.asarray(x)), rtol=1e-4, atol=1e-2)


def test_a_product_that_is_in_the_place_of_the_result_until_it_is_a_mask_is_computed_once() -> None:
    """Of two thirds of the product, as it is, there is no room beside the result: none is needed."""
    x, b = normal(300, 280), normal(300)
    gradient = jax.grad(lambda x, b: jnp.sum(jnp.max(x.T @ (x * b[:, None]), 1)))
    optimized = eqsat.optimize(gradient, budget="882kB")
    plan = optimized.plan(x, b)
    assert plan.peak_bytes <= 882_000
    assert plan.predicted_seconds < 4 * plan.original_seconds
    np.testing.assert_allclose(optimized(x, b), gradient(jnp.asarray(x), b), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("factor", [0.5, 0, -1, "fast", True])
def test_a_slowdown_is_a_number_from_one_on(factor: Any) -> None:
    with pytest.raises(ValueError, match="max_slowdown is a number from 1 on, or None"):
        eqsat.optimize(kernel, max_slowdown=factor)
