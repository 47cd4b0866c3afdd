"""The search for a program: one decision after the other, each of them logged with what came of it."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.backend.certificate import Certified
from eqsat.backend.module import Module
from eqsat.compiler.candidate_compiler import CompiledCandidate, Stopwatch
from eqsat.compiler.goals import Goal
from eqsat.compiler.lengthening import MOST_TRIES
from eqsat.compiler.search import ENOUGH_HELD, MOST_FAILED, MOST_UNMOVED, Search
from eqsat.planning.candidates import Candidate
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.ranking import Ranking
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.progress import SILENT, Progress
from eqsat.support.records import SearchStep
from eqsat.targets.cpu import CPU
from tests.kernels import V, X, Y, kernel
from tests.stages import lowered, normal

BUDGET = 60_000


def pairs(x: Any, y: Any, v: Any) -> Any:
    found = jnp.sin(x @ y.T)
    return found @ v, found.max(1)


@cache
def space(axes: int | None) -> SearchSpace:
    program, _ = lowered(pairs, normal(211, 3), normal(307, 3), normal(307))
    return prepare(program, rules_for((), "reassociates"), None if axes is None else BUDGET, CPU, axes or 2)


class Compiler:
    """Takes no time: peaks and seconds are what a function makes of a candidate."""

    def __init__(self, come_out: Callable[[Candidate], tuple[int, float]]) -> None:
        self.come_out = come_out
        self.stopwatch = Stopwatch(SILENT)
        self.compiled: list[CompiledCandidate] = []

    @property
    def smallest(self) -> CompiledCandidate | None:
        return min(self.compiled, key=lambda one: one.peak, default=None)

    def compile(self, candidate: Candidate, budget: float) -> CompiledCandidate:
        peak, seconds = self.come_out(candidate)
        timed = replace(candidate, seconds=seconds, taking=0.0)
        found = CompiledCandidate(timed, Module("", {}), Certified(None, peak, 0, 0, 0))
        self.compiled.append(found)
        return found


def as_predicted(candidate: Candidate) -> tuple[int, float]:
    return candidate.predicted_peak, candidate.predicted_seconds


def search(
    come_out: Callable[[Candidate], tuple[int, float]] = as_predicted,
    spaces: tuple[int | None, ...] = (2, 4),
    deadline: Deadline = NO_DEADLINE,
    **goal: float,
) -> Search:
    wanted = Goal(BUDGET, space(2).program.fixed_bytes, spaces, **goal)
    return Search(wanted, space, Compiler(come_out), CPU, deadline, [])


def kinds(log: list[SearchStep]) -> list[str]:
    """The first word of every decision."""
    return [step.decision.split()[0].rstrip(",") for step in log]


def test_the_first_program_that_fits_ends_the_search() -> None:
    searched = search()
    found = searched.run()
    assert found is not None
    assert found.peak <= BUDGET
    log = kinds(searched.log)
    assert log[0] == "apply"
    assert set(log[1:-2]) == {"extract"}
    assert log[-2:] == ["compile", "stop"]
    assert searched.log[-2].outcome.endswith("it fits")
    assert searched.stop_reason == "a program that fits was found; rules: saturated"


def test_what_is_too_big_is_compiled_again_with_smaller_chunks() -> None:
    peaks: list[int] = []

    def larger(candidate: Candidate) -> tuple[int, float]:
        fixed = space(2).program.fixed_bytes
        peaks.append(fixed + 3 * (candidate.predicted_peak - fixed))
        return peaks[-1], candidate.predicted_seconds

    searched = search(larger)
    assert searched.run() is not None
    assert max(peaks) > BUDGET >= peaks[-1]
    assert [step.outcome.endswith("too much") for step in searched.log if "compile" in step.decision] == [
        peak > BUDGET for peak in peaks
    ]


@pytest.mark.parametrize("slower", [1.5, 3])
def test_variants_are_tried_that_store_less_if_smaller_chunks_do_not_do_and_others_are_slow(
    slower: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are slower than the first one by this factor."""
    searched = search(lambda candidate: (2 * BUDGET, candidate.predicted_seconds))
    came_out, best = Ranking.came_out, Ranking.best
    firsts: list[Candidate] = []

    def no_smaller_chunks(ranking: Ranking, candidate: Candidate, peak: int) -> bool:
        firsts.append(candidate)
        came_out(ranking, candidate, peak)
        return False

    def slow(ranking: Ranking) -> Candidate | None:
        found = best(ranking)
        if len(firsts) != 1 or found is None:
            return found
        return replace(found, seconds=slower * firsts[0].predicted_seconds, taking=0.0)

    monkeypatch.setattr(Ranking, "came_out", no_smaller_chunks)
    monkeypatch.setattr(Ranking, "best", slow)
    while not firsts or not searched.log[-1].decision.startswith("compile"):
        searched._take(searched.decide())
    step = str(searched.decide())
    assert ("store less than one of" in step) == (slower > 2)


def test_it_gives_up_a_space_where_no_peak_is_smaller() -> None:
    searched = search(lambda candidate: (10 * BUDGET, 1.0), spaces=(2,))
    assert searched.run() is None
    # The first one is the smallest so far.
    assert kinds(searched.log).count("compile") <= MOST_UNMOVED + 1
    assert searched.stop_reason == "no program that fits was found; rules: saturated"


def test_no_more_programs_are_compiled_than_are_wanted() -> None:
    searched = search(lambda candidate: (10 * BUDGET, 1.0), spaces=(2,), most=2)
    assert searched.run() is None
    assert kinds(searched.log).count("compile") == 2


def test_a_slow_program_is_looked_for_in_wider_spaces_too() -> None:
    searched = search(enough=0.0)
    found = searched.run()
    assert kinds(searched.log).count("apply") == (2 if len(space(2).large) == 2 else 1)
    assert len(searched.found) == kinds(searched.log).count("apply")
    assert found is min(searched.found, key=lambda one: one.seconds(CPU))
    assert searched.stop_reason.startswith("no other program should be faster")


def test_a_candidate_that_is_not_brisk_is_compiled_after_wider_spaces_were_searched() -> None:
    # In the first space, all candidates are slower than this; the search enters both before it compiles any.
    searched = search(spaces=(2, 2), brisk=0.0)
    found = searched.run()
    assert found is not None
    log = kinds(searched.log)
    assert log.count("apply") == 2
    assert log.index("compile") > len(log) - 1 - log[::-1].index("apply")
    alone = search(spaces=(2,), brisk=0.0)
    assert alone.run() is not None
    assert found.candidate.predicted_seconds <= alone.found[0].candidate.predicted_seconds


def test_after_two_that_are_too_big_wider_spaces_are_searched_before_a_third_is_compiled() -> None:
    searched = search(lambda candidate: (10 * BUDGET, 1.0), spaces=(2, 2))
    assert searched.run() is None
    log = kinds(searched.log)
    second = len(log) - 1 - log[::-1].index("apply")
    assert log[:second].count("compile") == MOST_FAILED
    assert log[second:].count("compile") > 0


def test_of_a_long_program_the_same_with_smaller_chunks_is_compiled_before_wider_spaces_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To search a wider space of a network took five times as long as to compile once more."""
    monkeypatch.setattr(SearchSpace, "is_long", property(lambda _: True))

    def stages() -> list[str]:
        peaks = iter([BUDGET + 1])
        searched = search(lambda one: (next(peaks, one.predicted_peak), one.predicted_seconds), (2, 2))
        assert searched.run() is not None
        return [kind for kind in kinds(searched.log) if kind in ("apply", "compile")]

    assert stages() == ["apply", "compile", "compile"]
    monkeypatch.setattr("eqsat.compiler.search.NEARLY_AS_FAST", 1.0)  # it takes a little longer
    assert stages()[:3] == ["apply", "compile", "apply"]


class Clock(Deadline):
    """A deadline that has passed once it was asked so often."""

    left: list[int]

    def passed(self) -> bool:
        self.left[0] -= 1
        return self.left[0] < 0


def until(asked: int) -> Deadline:
    clock = Clock(1.0, math.inf)
    object.__setattr__(clock, "left", [asked])
    return clock


def test_if_time_is_limited_the_first_program_that_fits_is_compiled_before_others_are_looked_for() -> None:
    searched = search(deadline=until(1000))
    found = searched.run()
    free = search()
    assert found is not None
    assert found.candidate.predicted_seconds == free.run().candidate.predicted_seconds  # type: ignore[union-attr]
    log = kinds(searched.log)
    assert log.index("compile") < kinds(free.log).index("compile")


def test_the_later_the_time_runs_out_the_faster_the_program() -> None:
    times = []
    for asked in range(200):
        found = search(deadline=until(asked)).run()
        times.append(math.inf if found is None else found.candidate.predicted_seconds)
    assert times[0] == math.inf
    assert times[-1] == search().run().candidate.predicted_seconds  # type: ignore[union-attr]
    assert times == sorted(times, reverse=True)


def test_where_all_that_fits_is_slow_the_programs_that_need_least_are_tried() -> None:
    candidate = next(iter(attempts(space(2), BUDGET)))[0]
    small = CompiledCandidate(candidate, Module("", {}), Certified(None, 10, 0, 0, 0))

    class Least:
        space = None

        def within(self, budget: int, space: SearchSpace) -> Any:
            return iter([small])

    least: Any = Least()
    wanted = Goal(BUDGET, space(2).program.fixed_bytes, (2,), enough=0.0)
    found = Search(wanted, space, Compiler(as_predicted), CPU, NO_DEADLINE, [], least, lambda one: one)
    found.run()
    assert "compile program 1 of those that need least memory" in [step.decision for step in found.log]
    assert small in found.found


def test_what_is_slower_than_predicted_waits_for_faster_ones() -> None:
    slow: list[Candidate] = []

    def first_is_slow(candidate: Candidate) -> tuple[int, float]:
        if not slow:
            slow.append(candidate)
        return candidate.predicted_peak, (1.5 if candidate is slow[0] else 1.0) * candidate.predicted_seconds

    searched = search(first_is_slow)
    found = searched.run()
    assert found is not None
    waited = [step for step in searched.log if step.outcome.endswith("it waits")]
    assert len(waited) == 1
    # Another candidate is less than half as slow again, and is compiled meanwhile.
    assert kinds(searched.log).count("compile") == 2
    assert found.candidate.seconds < 1.5 * slow[0].predicted_seconds


def test_a_program_that_waited_is_accepted_when_all_others_should_be_slower() -> None:
    searched = search(lambda candidate: (candidate.predicted_peak, 1000 * candidate.predicted_seconds))
    found = searched.run()
    assert found is not None
    assert kinds(searched.log)[-2:] == ["accept", "stop"]
    assert kinds(searched.log).count("compile") > 1


def test_others_are_expected_to_be_slower_than_predicted_once_several_were() -> None:
    searched = search(lambda candidate: (candidate.predicted_peak, 1000 * candidate.predicted_seconds))
    found = searched.run()
    assert found is not None
    waited = [step for step in searched.log if step.outcome.endswith("it waits")]
    assert len(waited) == ENOUGH_HELD
    assert kinds(searched.log).count("compile") == ENOUGH_HELD


def test_what_should_take_too_long_is_not_compiled() -> None:
    searched = search(longest=1e-12)
    assert searched.run() is None
    assert "compile" not in kinds(searched.log)
    assert searched.stop_reason.startswith("no other program should be faster")


def test_without_loops_there_is_one_program() -> None:
    searched = search(lambda candidate: (0, candidate.predicted_seconds), spaces=(None,))
    found = searched.run()
    assert found is not None
    assert found.candidate.loops == 0
    assert kinds(searched.log).count("extract") == kinds(searched.log).count("compile") == 1


def test_after_the_deadline_nothing_is_searched() -> None:
    searched = search(deadline=Deadline.after(0))
    assert searched.run() is None
    assert kinds(searched.log) == ["stop"]
    assert searched.stop_reason == "planning took 0 s"


def test_further_programs_come_from_the_space_that_it_ended_in() -> None:
    searched = search()
    first = searched.run()
    further = list(searched.further(math.inf))
    assert further[0] is first
    assert len(further) > 1
    assert all(one.peak <= BUDGET for one in further)
    assert kinds(searched.log).count("apply") == 1


def test_a_plan_and_an_error_have_the_log() -> None:
    plan = eqsat.optimize(kernel, budget="60kB").plan(X, Y, V)
    assert plan.search[-1].decision == "stop, since a program that fits was found"
    assert any(step.decision.startswith("compile") for step in plan.search)
    assert f"{len(plan.search)} steps" in str(plan)
    assert plan.from_json(plan.to_json()).search == plan.search

    def sorted_pairs(x: jax.Array) -> jax.Array:
        return jnp.sort(jnp.sin(x[:, None] * x).ravel())[:3]

    with pytest.raises(eqsat.BudgetError) as refused:
        eqsat.optimize(sorted_pairs, budget="100kB").plan(normal(400))
    assert refused.value.search[-1].decision == "stop, since no program that fits was found"


def test_progress_in_lines_shows_the_decisions() -> None:
    file = io.StringIO()
    stopwatch = Stopwatch(Progress("planning", True, file))
    compiler = Compiler(as_predicted)
    compiler.stopwatch = stopwatch
    fixed = space(2).program.fixed_bytes
    searched = Search(Goal(BUDGET, fixed, (2,)), space, compiler, CPU, NO_DEADLINE, [])
    searched.run()
    lines = file.getvalue().splitlines()
    assert all(f"eqsat: planning: {step}" in lines for step in searched.log)


def excessive(least: int, factor: float) -> Callable[[Candidate], tuple[int, float]]:
    """Programs exceed what is predicted by so many times what they store above a least peak."""

    def come_out(candidate: Candidate) -> tuple[int, float]:
        above = max(candidate.predicted_peak - least, 0)
        return candidate.predicted_peak + int(factor * above), candidate.predicted_seconds

    return come_out


@pytest.mark.parametrize("factor", [10.0, 20.0])
def test_chunks_that_became_too_short_are_lengthened(factor: float) -> None:
    come_out = excessive(space(2).program.fixed_bytes + 8_000, factor)
    searched = search(come_out)
    found = searched.run()
    assert found is not None
    outcomes = [step.outcome for step in searched.log if step.decision.startswith("compile")]
    assert outcomes[0].endswith("too much")
    assert sum(step.decision.startswith("compile the same") for step in searched.log) in (1, 2)
    fitting = [one for one in searched._compiler.compiled if one.peak <= BUDGET]  # type: ignore[attr-defined]
    assert found is min(fitting, key=lambda one: one.seconds(CPU))
    assert found is not fitting[0]


def test_chunks_that_are_hardly_shorter_are_not_lengthened() -> None:
    searched = search(excessive(space(2).program.fixed_bytes + 8_000, 1.0))
    assert searched.run() is not None
    assert not any(step.decision.startswith("compile the same") for step in searched.log)


def test_what_fits_is_kept_if_longer_chunks_do_not() -> None:
    least = space(2).program.fixed_bytes + 8_000
    shorter = excessive(least, 10.0)
    peaks: list[int] = []

    def come_out(candidate: Candidate) -> tuple[int, float]:
        peak, seconds = shorter(candidate)
        # Whatever comes after the first one that fits is too big.
        peaks.append(BUDGET + 1 if any(one <= BUDGET for one in peaks) else peak)
        return peaks[-1], seconds

    searched = search(come_out)
    found = searched.run()
    assert found is not None
    assert [peak for peak in peaks if peak <= BUDGET] == [found.peak]
    log = kinds(searched.log)
    assert log[-2:] == ["accept", "stop"]
    assert sum(step.decision.startswith("compile the same") for step in searched.log) in (1, MOST_TRIES)
