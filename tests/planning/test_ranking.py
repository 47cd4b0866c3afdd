"""The ranking of candidates: the fastest that should fit comes first, and compiling teaches."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import pytest

from eqsat.planning.candidates import Candidate, as_written, rechunk
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.caps import caps
from eqsat.planning.ranking import ALIKE, MOST_DOUBTFUL, RECHUNKS, Ranking
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal

BUDGET = 60_000


def fn(x: Any, y: Any, v: Any) -> Any:
    pairs = jnp.sin(x @ y.T)
    return pairs @ v, pairs.max(1)


@cache
def searched() -> SearchSpace:
    program, _ = lowered(fn, normal(211, 3), normal(307, 3), normal(307))
    return prepare(program, rules_for((), "reassociates"), BUDGET, CPU)


@cache
def found() -> list[Candidate]:
    return [candidate for group in attempts(searched(), BUDGET) for candidate in group]


def ranking(budget: int = BUDGET) -> Ranking:
    return Ranking(budget, searched().program.fixed_bytes, CPU)


def test_the_fastest_that_should_fit_comes_first() -> None:
    ranked = ranking()
    ranked.add(reversed(found()))
    first = ranked.take()
    assert first is not None
    fitting = [c for c in found() if c.predicted_peak <= BUDGET]
    least = min(c.predicted_seconds for c in fitting)
    assert len(fitting) > 1
    assert first.predicted_seconds <= ALIKE * least
    assert first.loops == min(c.loops for c in fitting if c.predicted_seconds <= ALIKE * least)
    assert ranked.take() is not first


@pytest.mark.parametrize(("slower", "fewer_loops_win"), [(1.015, True), (1.03, False)])
def test_fewer_loops_win_where_times_are_nearly_the_same(slower: float, fewer_loops_win: bool) -> None:
    fast = replace(found()[0], predicted_peak=BUDGET - 1000, seconds=1.0, taking=0.0)
    without = as_written(searched().program, CPU)
    simple = replace(without, predicted_peak=BUDGET, seconds=slower, taking=0.0)
    assert fast.loops > simple.loops == 0
    ranked = ranking()
    ranked.add([fast, simple])
    assert ranked.take() is (simple if fewer_loops_win else fast)


def test_what_came_out_too_big_waits_with_smaller_chunks() -> None:
    ranked = ranking()
    ranked.add(found()[:1])
    first = ranked.take()
    assert first is not None
    fixed = searched().program.fixed_bytes
    ranked.came_out(first, fixed + 3 * (BUDGET - fixed))
    second = ranked.take()
    assert second is not None
    assert second.schedule.program is first.schedule.program
    assert second.predicted_peak - fixed <= (first.predicted_peak - fixed) / 3
    assert second.predicted_seconds >= first.predicted_seconds
    ranked.came_out(second, fixed + 3 * (BUDGET - fixed))
    assert ranked.take() is None, "smaller chunks made no difference"


def test_others_get_smaller_chunks_before_they_exceed_the_budget_as_much() -> None:
    fixed = searched().program.fixed_bytes
    first = found()[0]
    other = next(one for one in found() if one.schedule.program is not first.schedule.program)
    bound = fixed + (BUDGET - fixed) / 1.2
    whole = replace(rechunk(other, BUDGET, CPU), predicted_peak=BUDGET)
    smaller = rechunk(other, bound, CPU)
    assert smaller.predicted_peak <= bound
    ranked = ranking()
    ranked.add([replace(first, predicted_peak=BUDGET, seconds=0.0), replace(whole, seconds=smaller.seconds)])
    tried = ranked.take()
    assert tried is not None
    ranked.came_out(tried, round(fixed + 1.2 * (BUDGET - fixed)))
    best = ranked.best()
    assert best is not None
    assert best.predicted_peak <= bound
    ranked.add([replace(whole, seconds=smaller.seconds / 2, taking=0.0)])
    best = ranked.best()
    assert best is not None
    assert best.predicted_peak == BUDGET, "smaller chunks would cost time"


@pytest.mark.parametrize(("excess", "foreseen"), [(1.2, True), (3.0, False)])
def test_a_large_excess_is_not_expected_of_others(excess: float, foreseen: bool) -> None:
    fixed = searched().program.fixed_bytes
    ranked = ranking()
    first = replace(rechunk(found()[0], BUDGET, CPU), predicted_peak=BUDGET)
    ranked.came_out(first, round(fixed + excess * (BUDGET - fixed)))
    # With smaller chunks, it should take no longer.
    smaller = rechunk(found()[-1], fixed + (BUDGET - fixed) / excess, CPU)
    whole = rechunk(found()[-1], BUDGET, CPU)
    ranked.add([replace(whole, predicted_peak=BUDGET, seconds=smaller.seconds)])
    everything = []
    while (candidate := ranked.take()) is not None:
        everything.append(candidate.predicted_peak)
    assert (BUDGET in everything) != foreseen


def test_what_is_like_one_that_came_out_too_big_waits_for_the_others() -> None:
    other, *_, first = sorted(found(), key=lambda candidate: candidate.predicted_peak)
    assert other.predicted_peak < 0.995 * first.predicted_peak
    twins = [replace(first, seconds=first.seconds * (1 + share)) for share in (1e-3, 2e-3)]
    slower = replace(other, seconds=2 * first.seconds)
    ranked = ranking()
    ranked.add([first, twins[0], slower])
    assert ranked.take() in (first, twins[0])
    ranked.came_out(first, 2 * BUDGET)
    ranked.add(twins[1:])
    tried = []
    while (candidate := ranked.take()) is not None:
        tried.append(candidate)
    assert tried[-2:] == twins
    assert slower in tried
    assert len(tried) == 4, "and the first one with smaller chunks"


def test_it_says_whether_smaller_chunks_may_do() -> None:
    first = found()[0]
    fixed = searched().program.fixed_bytes
    assert ranking().came_out(first, fixed + 2 * (BUDGET - fixed))
    shortest = rechunk(first, fixed, CPU)
    assert not ranking().came_out(shortest, 2 * BUDGET)


def test_what_another_space_finds_again_is_not_tried_again() -> None:
    first = found()[0]
    ranked = ranking()
    ranked.came_out(first, 2 * BUDGET)
    again = replace(first, makers=dict(first.makers))
    ranked.add([again, replace(again, seconds=first.seconds * 1.001)])
    tried = []
    while (candidate := ranked.take()) is not None:
        tried.append(candidate)
    assert all(one is not again for one in tried)
    assert any(one.seconds == first.seconds * 1.001 for one in tried)


def test_smaller_chunks_are_not_tried_for_ever() -> None:
    ranked = ranking()
    ranked.add(found()[:1])
    peak, tried = 10.0 * BUDGET, 0
    while (candidate := ranked.take()) is not None:
        tried += 1
        peak *= 0.9
        ranked.came_out(candidate, int(peak))
    assert tried <= RECHUNKS + MOST_DOUBTFUL


def test_what_should_not_fit_but_nearly_does_comes_last() -> None:
    fixed = searched().program.fixed_bytes
    lean = rechunk(found()[0], 0, CPU)
    budget = fixed + int((lean.predicted_peak - fixed) / 1.2)
    hopeless = rechunk(found()[0], BUDGET, CPU)
    assert hopeless.predicted_peak - fixed > 2 * (budget - fixed)
    ranked = ranking(budget)
    ranked.add([hopeless, lean])
    assert ranked.best() is None
    assert ranked.take() is lean
    assert ranked.take() is None


def test_caps_are_the_same_for_all_budgets() -> None:
    small, large = list(caps(50_000)), list(caps(4_000_000))
    assert large[-len(small) :] == small
    assert small[0] >= 50_000 > small[1]
    assert large[0] >= 4_000_000 > large[1]


def test_what_shrinks_beside_large_arguments_is_tried_again() -> None:
    """Temporaries count, not the arguments and results: these stay what they are."""
    fixed = 100 * BUDGET
    ranked = Ranking(fixed + BUDGET, fixed, CPU)
    candidate = replace(rechunk(found()[0], BUDGET, CPU), predicted_peak=fixed + BUDGET)
    for excess in (3.0, 1.5):
        ranked.came_out(candidate, round(fixed + excess * BUDGET))
    assert ranked.take() is not None
    assert ranked.take() is not None, "the second excess is half of the first one"
