"""The smallest budget of functions of files, and what others cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import BudgetError
from eqsat.streaming.budgets import NEAR, smallest_budget
from eqsat.streaming.planner import StreamPlanner
from tests.stages import normal

X = normal(20_000, 4)
CENTRES = normal(50, 4)


def scores(x: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - CENTRES) ** 2, -1)).sum(0)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def test_the_smallest_budget_is_of_passes(file: Any) -> None:
    least = eqsat.minimum_budget(scores)(file)
    assert least < X.nbytes / 20
    small = eqsat.optimize(scores, budget=least)
    plan = small.plan(file)
    assert isinstance(plan, eqsat.StreamPlan)
    assert plan.peak_bytes <= least
    with pytest.raises(BudgetError):
        eqsat.optimize(scores, budget=int(least / NEAR) - 1).plan(file)
    np.testing.assert_allclose(small(file), scores(X), rtol=1e-4)


def test_what_needs_the_file_whole_needs_its_bytes() -> None:
    absent = eqsat.on_host(jax.ShapeDtypeStruct(X.shape, X.dtype))
    assert eqsat.minimum_budget(lambda x: jnp.sort(x, 0))(absent) >= 2 * X.nbytes


def test_what_no_chunk_is_short_enough_for_is_refused_at_once(
    file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of half the length were tried again and again, for programs that keep a value whole."""
    tried = []
    programs = StreamPlanner._programs

    def counted(planner: StreamPlanner, steps: Any, lengths: Any, *rest: Any) -> Any:
        tried.append(set(lengths.values()))
        return programs(planner, steps, lengths, *rest)

    monkeypatch.setattr(StreamPlanner, "_programs", counted)
    whole = X[:, :1].nbytes
    with pytest.raises(BudgetError, match=f"alone exceed the budget of {whole // 2_000} kB"):
        eqsat.optimize(lambda x: jnp.sort(jnp.sum(x, 1)), budget=whole // 2).plan(file)
    assert tried == [{2}]


def test_no_budget_helps_where_the_host_is_too_small(file: Any) -> None:
    with pytest.raises(BudgetError, match="results in arrays of NumPy take 320 kB"):
        eqsat.minimum_budget(lambda x: 2 * x, host_budget="100kB")(file)


@pytest.mark.parametrize("least", [1, 4_095, 5_000, 77_777, 10**7])
def test_the_search_ends_close_to_the_least(least: int) -> None:
    def planned(budget: int) -> Any:
        if budget < least + 1_000:
            raise BudgetError("too small")

    found = smallest_budget(planned, 1_000, 10**6)
    assert least + 1_000 <= found <= NEAR * (least + 1_000) + 1


@pytest.mark.nightly
def test_an_explanation_prices_budgets(file: Any, tmp_path: Path) -> None:
    explanation = eqsat.explain(lambda x: (x - x.mean(0)) / x.std(0), budgets=2)(file)
    assert isinstance(explanation, eqsat.StreamExplanation)
    budgets = [plan.budget_bytes for plan in explanation.plans]
    seconds = [plan.predicted_seconds for plan in explanation.plans]
    assert budgets == sorted(budgets)
    assert seconds == sorted(seconds, reverse=True)
    assert budgets[0] == explanation.minimum_bytes < X.nbytes / 20
    assert budgets[-1] <= explanation.argument_bytes + explanation.result_bytes == 2 * X.nbytes
    assert all(plan.peak_bytes <= plan.budget_bytes for plan in explanation.plans)
    page = str(explanation)
    assert "x 3 times" in page
    assert all(len(line) <= 120 for line in page.splitlines())
    explanation.save(tmp_path / "explanation.png")
    explanation.save(tmp_path / "explanation.html")


@pytest.mark.nightly
def test_a_class_that_takes_fewer_passes_gains(file: Any) -> None:
    compared = eqsat.compare_accuracies(lambda x: (x.mean(0), x.var(0)), budget="50kB")(file)
    own, wider, *_ = compared.prices
    assert (own.accuracy, wider.accuracy) == ("reassociates", "rescales")
    assert own.seconds is not None
    assert wider.seconds is not None
    assert wider.seconds < 0.9 * own.seconds
    assert wider.rules


@pytest.mark.one_in(3)
@pytest.mark.parametrize("budget", ["3MB", "5MB", "8MB", "10MB", "12MB"])
def test_more_memory_is_no_slower(budget: str) -> None:
    """A value that is kept from pass to pass, or read whole, may leave too little for chunks."""
    rows, targets = jax.ShapeDtypeStruct((800_000, 25), "f4"), jax.ShapeDtypeStruct((800_000,), "f4")

    def fitted(w: Any, x: Any, y: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, w: w - 0.5 * x.T @ (x @ w - y) / len(y), w)

    def spread(w: Any, x: Any, y: Any) -> Any:
        return jnp.var(y - x @ w)

    for fn in (fitted, spread):
        small = eqsat.optimize(fn, budget=budget)
        plan = small.plan(jax.ShapeDtypeStruct((25,), "f4"), eqsat.on_host(rows), eqsat.on_host(targets))
        assert all(one.length >= 2_000 for one in plan.passes)
        assert plan.predicted_seconds < 1
        if fn is spread and budget != "3MB":
            assert set(plan.read.values()) == {1}, "what is computed of both is kept, and read by chunks"
