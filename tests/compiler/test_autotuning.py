"""`tune=True`: the best few programs are timed, the fastest is the plan, and later processes start with it.

How long calls take is decided here, not measured: the programs do run, but the clock is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.compiler import autotuning
from eqsat.compiler.autotuning import PAIRS, ROUNDS, SOME, rounds
from eqsat.compiler.planned import Planned
from eqsat.support import deadline
from eqsat.support.deadline import NO_DEADLINE
from tests.stages import normal

X, Y, V = normal(2000, 3), normal(2000, 3), normal(2000)
BUDGET = "4MB"


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1) / 2) @ v


@dataclass
class Clock:
    """How long a program is said to take, and what was called.

    **Attributes:**

    - `live`: the bytes of all arrays before each call.
    """

    seconds: Callable[[Planned], float]
    called: list[Planned] = field(default_factory=list)
    live: list[int] = field(default_factory=list)


def shorter_is_faster(planned: Planned) -> float:
    """Of programs with loops, that with the shortest chunks; what has none is slow."""
    return 0.001 * min((loop.chunk for loop in planned.plan.loops), default=10_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, measure = Clock(shorter_is_faster), autotuning.seconds_of

    def told(planned: Planned, values: Sequence[Any]) -> float:
        clock.called.append(planned)
        clock.live.append(sum(array.nbytes for array in jax.live_arrays()))
        assert measure(planned, values) > 0
        return clock.seconds(planned)

    monkeypatch.setattr(autotuning, "seconds_of", told)
    return clock


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_what_is_measured_to_be_fastest_is_the_plan(clock: Clock) -> None:
    predicted = eqsat.optimize(kernel, budget=BUDGET).plan(X, Y, V)
    small = eqsat.optimize(kernel, budget=BUDGET, tune=True)
    np.testing.assert_allclose(small(X, Y, V), kernel(X, Y, V), rtol=1e-3)
    plan = small.plan(X, Y, V)
    assert plan.loops[0].chunk == min(planned.plan.loops[0].chunk for planned in clock.called)
    assert plan.loops[0].chunk < predicted.loops[0].chunk
    assert plan.peak_bytes <= plan.budget_bytes
    assert plan.tuning is not None
    first, *others = plan.tuning.programs
    assert not first.chosen
    assert first.peak_bytes == predicted.peak_bytes
    (chosen,) = [program for program in others if program.chosen]
    assert chosen.seconds == min(program.seconds for program in plan.tuning.programs)
    assert plan.planning_seconds["tune"] > 0
    page = str(plan)
    assert "Timed on this device" in page
    assert f"->{eqsat.support.units.format_seconds(chosen.predicted_seconds)}" in page
    assert eqsat.Plan.from_json(plan.to_json()).tuning == plan.tuning


def test_what_is_hardly_faster_is_noise(clock: Clock) -> None:
    clock.seconds = lambda planned: 1 + 1e-5 * shorter_is_faster(planned)
    plan = eqsat.optimize(kernel, budget=BUDGET, tune=True).plan(X, Y, V)
    assert plan.tuning is not None
    assert [program.chosen for program in plan.tuning.programs].index(True) == 0


def test_the_luckiest_of_several_is_not_the_plan(clock: Clock) -> None:
    lucky: list[str] = []

    def seconds(planned: Planned) -> float:
        lucky.append(planned.plan.source)
        first = planned.plan.source == lucky[0]
        return 0.001 if first or lucky.count(planned.plan.source) > ROUNDS + 1 else 0.0005

    clock.seconds = seconds
    plan = eqsat.optimize(kernel, budget=BUDGET, tune=True).plan(X, Y, V)
    assert plan.source == lucky[0]
    assert plan.tuning is not None
    assert plan.tuning.note == f"the fastest was so in 0 of {PAIRS} more calls"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("width", [3, 6])
def test_a_function_that_fits_stays_if_that_is_fastest(width: int, clock: Clock) -> None:
    """Of three coordinates, it is predicted to take more than twice as long as the best."""
    clock.seconds = lambda planned: 2.0 if planned.plan.changed else 1.0
    x = normal(4000, width)  # large enough for chunks to be predicted to pay
    optimized = eqsat.optimize(kernel, budget="1GB", tune=True)
    plan = optimized.plan(x, x, x[:, 0])
    assert not plan.changed
    assert plan.tuning is not None
    assert not plan.tuning.programs[0].chosen
    np.testing.assert_allclose(optimized(x, x, x[:, 0]), kernel(x, x, x[:, 0]), rtol=1e-3)


def test_a_function_that_fits_is_rewritten_if_that_is_faster_than_predicted(clock: Clock) -> None:
    assert not eqsat.optimize(kernel, budget="1GB").plan(X, Y, V).changed
    plan = eqsat.optimize(kernel, budget="1GB", tune=True).plan(X, Y, V)
    assert plan.changed
    assert plan.loops


def test_programs_are_timed_one_at_a_time_within_the_budget(clock: Clock) -> None:
    eqsat.optimize(kernel, budget=BUDGET, tune=True).plan(X, Y, V)
    assert all(planned.certified.peak <= 4_000_000 for planned in clock.called)
    assert len(clock.live) > 2
    assert len(set(clock.live)) == 1  # what one has returned is gone before the next one runs


# What is kept.


def test_the_winner_is_remembered_for_all(folder: Path, clock: Clock) -> None:
    first = eqsat.optimize(kernel, budget=BUDGET, tune=True).plan(X, Y, V)
    clock.called.clear()
    for tune in (True, False):
        again = eqsat.optimize(kernel, budget=BUDGET, tune=tune).plan(X, Y, V)
        assert set(again.planning_seconds) == {"reading", "compile"}
        assert (again.source, again.tuning) == (first.source, first.tuning)
    assert not clock.called


def test_what_was_never_timed_is_replaced(folder: Path, clock: Clock) -> None:
    eqsat.optimize(kernel, budget=BUDGET).plan(X, Y, V)
    tuned = eqsat.optimize(kernel, budget=BUDGET, tune=True).plan(X, Y, V)
    assert clock.called
    assert eqsat.optimize(kernel, budget=BUDGET).plan(X, Y, V).source == tuned.source


def test_without_arrays_the_stored_plan_is_used(folder: Path, clock: Clock) -> None:
    tuned = eqsat.optimize(kernel, budget=BUDGET, tune=True).plan(X, Y, V)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (X, Y, V)]
    assert eqsat.optimize(kernel, budget=BUDGET, tune=True).plan(*shapes).source == tuned.source


# When nothing can be timed.


def test_types_of_arguments_are_planned_untimed_until_there_are_arrays(clock: Clock) -> None:
    small = eqsat.optimize(kernel, budget=BUDGET, tune=True)
    plan = small.plan(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (X, Y, V)))
    assert plan.tuning is not None
    assert "no arrays at hand" in plan.tuning.note
    assert "Nothing was timed" in str(plan)
    jax.jit(small)(X, Y, V)
    assert not clock.called
    small(X, Y, V)
    count = len(clock.called)
    assert count > 2
    small(X, Y, V)
    assert len(clock.called) == count
    assert small.plan(X, Y, V).tuning != plan.tuning


def test_gradients_and_batches_are_timed_where_they_have_arrays(clock: Clock) -> None:
    small = eqsat.optimize(kernel, budget=BUDGET, tune=True)
    gradient = jax.grad(lambda v: small(X, Y, v).sum())
    expected = jax.grad(lambda v: kernel(X, Y, v).sum())(V)
    np.testing.assert_allclose(jax.jit(gradient)(V), expected, rtol=1e-3)
    assert not clock.called
    np.testing.assert_allclose(gradient(V), expected, rtol=1e-3)
    assert clock.called


def test_side_effects_happen_once() -> None:
    heard: list[float] = []

    def fn(x: Any) -> Any:
        jax.debug.callback(lambda total: heard.append(float(total)), x.sum())
        return kernel(x, x, x[:, 0])

    small = eqsat.optimize(fn, budget="200MB", tune=True)  # under XLA's own options, as JAX runs it
    plan = small.plan(X)
    jax.effects_barrier()
    assert not heard
    assert plan.tuning is not None
    assert "side effects" in plan.tuning.note
    small(X)
    jax.effects_barrier()
    assert len(heard) == 1


@pytest.mark.parametrize(("budget", "timed"), [("4MB", True), ("80kB", False)])
def test_what_is_given_up_is_timed_on_copies_if_there_is_room(budget: str, timed: bool, clock: Clock) -> None:
    def step(x: Any, y: Any) -> Any:
        return x + kernel(x, y, y[:, 0])[:, None] * y

    small = eqsat.optimize(step, budget=budget, tune=True, donate_argnums=0)
    x = jnp.array(X)
    plan = small.plan(x, Y)
    assert not x.is_deleted()
    assert bool(clock.called) == timed
    assert plan.tuning is not None
    assert timed == bool(plan.tuning.programs)
    assert timed or "no room for copies" in plan.tuning.note
    np.testing.assert_allclose(small(x, Y), step(jnp.array(X), Y), rtol=1e-3)
    assert x.is_deleted()


def test_there_is_no_timing_after_the_deadline(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now)

    def late(planned: Planned) -> float:
        nonlocal now
        now += 6
        return 1.0

    clock.seconds = late
    plan = eqsat.optimize(kernel, budget=BUDGET, tune=True, planning_seconds=10).plan(X, Y, V)
    assert len(clock.called) == 2
    assert plan.tuning is not None
    assert len(plan.tuning.programs) == 2
    assert "no time for" in plan.tuning.note
    plan = eqsat.optimize(kernel, budget=BUDGET, tune=True, planning_seconds=5).plan(X, Y, V)
    assert plan.tuning == autotuning.Tuning(note="there was no time")


def test_a_failure_of_timing_leaves_the_plan(clock: Clock) -> None:
    def fails(planned: Planned) -> float:
        raise MemoryError("no more")

    clock.seconds = fails
    small = eqsat.optimize(kernel, budget=BUDGET, tune=True)
    plan = small.plan(X, Y, V)
    assert plan.changed
    assert plan.tuning is not None
    assert "no more" in plan.tuning.note
    np.testing.assert_allclose(small(X, Y, V), kernel(X, Y, V), rtol=1e-3)


def test_tune_is_a_truth_value() -> None:
    with pytest.raises(ValueError, match="tune is True or False, not 'yes'"):
        eqsat.optimize(kernel, tune="yes")  # type: ignore[call-overload]


# How often each program is called.


@pytest.mark.parametrize(
    ("seconds", "calls"),
    [
        ([0.001, 0.0012], [ROUNDS + 1, ROUNDS + 1]),  # in turns, as often as allowed
        ([0.001, 0.01], [ROUNDS + 1, SOME + 1]),  # the slower one is not called again
        ([1.0, 20.0], [2, 1]),  # nor if its first call took so much longer
        ([25.0, 26.0, 27.0], [1, 1, 1]),  # a minute is enough
    ],
)
def test_slow_programs_are_called_less_often(seconds: list[float], calls: list[int]) -> None:
    order: list[int] = []

    def call(number: int) -> float:
        order.append(number)
        return seconds[number]

    times = rounds(len(seconds), call, NO_DEADLINE)
    assert [len(each) for each in times] == calls
    assert order[: len(seconds)] == list(range(len(seconds)))
    assert order[len(seconds) :][:1] in ([0], [])
