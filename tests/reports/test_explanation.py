"""Explanations: where memory goes, what the smallest budget is, and what budgets cost."""

from __future__ import annotations

import functools
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import eqsat
from eqsat.support.serialisation import from_json
from tests.kernels import V, X, Y, kernel
from tests.reports.test_pictures import check_labels
from tests.stages import normal


@pytest.fixture(scope="module")
def explained() -> eqsat.Explanation:
    return eqsat.explain(kernel, budgets=5)(X, Y, V)


def test_prices_go_from_the_smallest_budget_to_the_function_as_written(explained: eqsat.Explanation) -> None:
    prices = explained.prices
    assert 3 <= len(prices) <= 5
    assert prices[0].budget_bytes == explained.minimum_bytes == eqsat.minimum_budget(kernel)(X, Y, V)
    assert prices[-1].budget_bytes == explained.original_peak_bytes
    assert prices[-1].seconds == explained.original_seconds
    assert all(one.budget_bytes < other.budget_bytes for one, other in pairwise(prices))
    assert [price.changed for price in prices] == [True] * (len(prices) - 1) + [False]


def test_every_budget_told_has_a_plan_of_that_price(explained: eqsat.Explanation) -> None:
    for price in explained.prices:
        plan = eqsat.optimize(kernel, budget=price.budget_bytes).plan(X, Y, V)
        assert plan.peak_bytes == price.peak_bytes <= price.budget_bytes
        assert plan.predicted_seconds == price.seconds


def test_the_page_can_be_read(explained: eqsat.Explanation) -> None:
    page = str(explained)
    lines = page.splitlines()
    assert len(lines) <= 60
    assert all(len(line) <= 100 for line in lines)
    for part in ("explanation of kernel", "smallest budget", "largest arrays", "times as long", "as written"):
        assert part in page
    assert "kernels.py" in page


def test_the_curve_can_be_read(explained: eqsat.Explanation) -> None:
    check_labels(explained.figure())


def test_explanations_are_saved(explained: eqsat.Explanation, tmp_path: Path) -> None:
    for kind in ("png", "svg", "pdf", "html", "txt", "json"):
        explained.save(tmp_path / f"it.{kind}")
    assert from_json(eqsat.Explanation, (tmp_path / "it.json").read_text()) == explained
    with pytest.raises(eqsat.EqsatError, match="Explanation can be saved as"):
        explained.save(tmp_path / "it.dot")


def test_a_function_that_nothing_makes_smaller_has_one_price() -> None:
    explained = eqsat.explain(lambda x: jnp.sort(jnp.ravel(x))[:3])(X)
    assert explained.minimum_bytes == explained.original_peak_bytes
    assert len(explained.prices) == 1
    assert "what stops them from being split" in str(explained)
    check_labels(explained.figure())


def test_a_function_that_is_better_rewritten_anyway_has_that_as_its_last_price() -> None:
    def chain(a: Any, b: Any, v: Any) -> Any:
        return a @ b @ v

    arrays = normal(300, 310), normal(310, 320), normal(320)
    explained = eqsat.explain(chain, accuracy="rescales")(*arrays)
    assert explained.prices[-1].seconds < explained.original_seconds
    assert explained.prices[-1].changed


def test_arguments_are_given_by_name_too() -> None:
    explained = eqsat.explain(functools.partial(jnp.sum, axis=1), budgets=2)(a=X)
    assert explained.minimum_bytes <= explained.original_peak_bytes


def test_a_budget_is_no_option_of_an_explanation() -> None:
    with pytest.raises(TypeError, match="takes none"):
        eqsat.explain(kernel, budget="1MB")
