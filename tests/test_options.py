"""Which compiler options a plan is compiled with."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.certificate import HONEST, OWN, certify
from tests.stages import normal


def variances(x: Any) -> Any:
    return jnp.var(x, axis=1)


def test_xla_s_own_options_are_taken_where_they_pay_and_what_they_hide_fits() -> None:
    x = normal(700, 800)
    own = certify(lambda y: [variances(y)], [x], OWN).peak
    honest = certify(lambda y: [variances(y)], [x], HONEST).peak
    assert honest < own
    for budget, options in [(own, OWN), (own - 1, HONEST), (honest, HONEST)]:
        optimized = eqsat.optimize(variances, budget=budget)
        plan = optimized.plan(x)
        assert plan.options == options
        assert plan.peak_bytes <= budget
        np.testing.assert_allclose(optimized(x), variances(x), rtol=1e-5)


def test_scratch_counts_against_the_budget() -> None:
    """Sorting a row takes another 16 bytes for each of its entries: what remains for rows is less."""

    def medians(x: Any, y: Any) -> Any:
        return jnp.sort(x[:, None] * y, axis=1)[:, 25_000]

    x, y = normal(40), normal(50_000)
    scratch, row = 16 * 50_000, 4 * 50_000
    whole = eqsat.optimize(medians, budget="1GB").plan(x, y)
    assert whole.scratch_bytes == scratch
    less = eqsat.optimize(medians, budget=whole.argument_bytes + scratch + 5 * row)
    plan = less.plan(x, y)
    assert plan.loops
    assert plan.scratch_bytes == scratch
    np.testing.assert_array_equal(less(x, y), medians(x, y))
    with pytest.raises(eqsat.BudgetError):
        eqsat.optimize(medians, budget=whole.argument_bytes + scratch + row // 2).plan(x, y)


def test_the_page_says_what_options_and_scratch_there_are() -> None:
    x = jnp.zeros(100_000)
    text = str(eqsat.optimize(jnp.sort, budget="1GB").plan(x))
    assert "1.6 MB in libraries and fusions" in text
    assert "honest options" in text
