"""The budget of a call: named, overridden in a block, or what the device has free."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.kernels import BUDGET, V, X, Y, close, kernel


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The budgets of the plans that are made, in order."""
    from eqsat.compiler import planners

    class Planner(planners.Planner):
        def planned(self) -> Any:
            budgets.append(self.budget)
            return super().planned()

    budgets: list[int] = []
    monkeypatch.setattr(planners, "Planner", Planner)
    return budgets


def double(x: Any) -> Any:
    return x * 2


# What the device has free.


def free(monkeypatch: pytest.MonkeyPatch, amount: int) -> None:
    monkeypatch.setattr("eqsat.targets.device_memory.free_host_bytes", lambda: amount)


def test_without_a_budget_it_is_what_is_free(planned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, BUDGET)
    optimized = eqsat.optimize(kernel)
    plan = optimized.plan(X, Y, V)
    assert plan.changed
    assert plan.peak_bytes <= plan.budget_bytes == planned[0] < 7 / 8 * BUDGET
    close(optimized(X, Y, V), kernel(X, Y, V))


def test_what_is_free_is_looked_up_once_for_a_program(
    planned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    optimized = eqsat.optimize(double)
    free(monkeypatch, 100_000)
    optimized(X)
    free(monkeypatch, 1_000_000)
    optimized(X)
    optimized(Y)
    eqsat.optimize(double)(X)
    assert planned == [87_000 + X.nbytes, 870_000 + Y.nbytes, 870_000 + X.nbytes]


def test_arguments_in_memory_are_in_use_and_in_the_budget(
    planned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 80_000)
    here = jnp.zeros((100, 100))
    eqsat.optimize(double)(here)
    eqsat.optimize(double).plan(here)
    eqsat.optimize(double).plan(jax.ShapeDtypeStruct((10, 100), np.float32))
    eqsat.optimize(lambda: jnp.sum(here))()
    jax.jit(eqsat.optimize(jnp.sum))(here)
    assert planned == [110_000, 110_000, 70_000, 110_000, 70_000]


def test_a_refusal_says_whose_budget_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 1000)
    with pytest.raises(eqsat.BudgetError, match="what the device had free"):
        eqsat.optimize(double).plan(X)


def test_sharded_arguments_have_a_share_on_each_device(
    planned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 80_000)
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    eqsat.optimize(double)(jax.device_put(np.zeros((100, 100), np.float32), sharding))
    assert planned == [110_000]


# Blocks with a budget of their own.


def test_a_block_has_its_own_budget(planned: list[int]) -> None:
    optimized = eqsat.optimize(double, budget="1MB")
    with eqsat.budget("2MB"):
        close(optimized(X), 2 * X)
        with eqsat.budget(3_000_000):
            optimized.plan(X)
        assert optimized.plan(X).budget_bytes == 2_000_000
    assert optimized.plan(X).budget_bytes == 1_000_000
    assert planned == [2_000_000, 3_000_000, 1_000_000]


def test_going_back_to_a_budget_plans_nothing(planned: list[int]) -> None:
    optimized = eqsat.optimize(double, budget="1MB")
    for _ in range(3):
        optimized(X)
        with eqsat.budget("2MB"):
            optimized(X)
    assert planned == [1_000_000, 2_000_000]


def test_none_is_what_is_free_also_in_a_block(planned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 80_000)
    with eqsat.budget(None):
        eqsat.optimize(double, budget="1MB").plan(X)
    assert planned == [70_000]


def test_a_block_is_left_by_errors_too() -> None:
    optimized = eqsat.optimize(double, budget="1MB")
    with pytest.raises(eqsat.BudgetError, match="alone exceed the budget of 100 B"), eqsat.budget(100):
        optimized(X)
    close(optimized(X), 2 * X)


def test_it_decorates_functions(planned: list[int]) -> None:
    within = eqsat.budget("2MB")
    optimized = eqsat.optimize(double, budget="1MB")

    @within
    def outer(x: Any, depth: int) -> Any:
        """Calls itself: the same object is entered twice."""
        return outer(x, depth - 1) if depth else optimized(x)

    close(outer(X, 2), 2 * X)
    with within:
        optimized(X)
    assert planned == [2_000_000]
    assert outer.__doc__ == "Calls itself: the same object is entered twice."


def test_each_thread_has_its_own(planned: list[int]) -> None:
    optimized = eqsat.optimize(double, budget="1MB")
    within = eqsat.budget("2MB")
    entered, looked = threading.Event(), threading.Event()

    def inside() -> None:
        with within:
            entered.set()
            looked.wait(10)

    other = threading.Thread(target=inside)
    other.start()
    entered.wait(10)
    optimized(X)
    with within:
        looked.set()
        other.join()
        optimized(X)
    optimized(X)
    assert planned == [1_000_000, 2_000_000]


def test_a_jitted_function_is_traced_again_under_another_budget(planned: list[int]) -> None:
    outer = jax.jit(eqsat.optimize(double, budget="1MB"))
    for _ in range(2):
        outer(X)
        with eqsat.budget("2MB"):
            outer(X)
    assert planned == [1_000_000, 2_000_000]


def test_what_is_made_of_a_call_has_the_budget_of_the_call(planned: list[int]) -> None:
    optimized = eqsat.optimize(lambda x: jnp.sum(x**2), budget="1MB")
    with eqsat.budget("2MB"):
        _, pullback = jax.vjp(optimized, X)
        batched = jax.vmap(optimized)(X)
    assert batched.shape == X.shape[:1]
    close(pullback(jnp.float32(1))[0], 2 * X)
    assert set(planned) == {2_000_000}


@pytest.mark.parametrize("amount", ["2 cookies", 0, 1.5, True])
def test_what_is_no_budget_is_refused_before_the_block(amount: Any) -> None:
    with pytest.raises(eqsat.BudgetError, match="budget"):
        eqsat.budget(amount)


# As a decorator.


def test_optimize_decorates_with_arguments() -> None:
    @eqsat.optimize(budget="1MB", static_argnums=1)
    def scaled(x: Any, factor: int) -> Any:
        """Its own."""
        return x * factor

    assert scaled.__doc__ == "Its own."
    assert scaled.plan(X, 3).budget_bytes == 1_000_000
    close(scaled(X, 3), 3 * X)


def test_optimize_decorates_without_arguments() -> None:
    @eqsat.optimize
    def twice(x: Any) -> Any:
        return x * 2

    close(twice(X), 2 * X)


def test_settings_are_checked_before_there_is_a_function() -> None:
    with pytest.raises(eqsat.BudgetError, match="not an amount of memory"):
        eqsat.optimize(budget="lots")
    with pytest.raises(TypeError, match="takes a function, not 3"):
        eqsat.optimize(budget="1MB")(3)
