"""Chunk lengths between those that fit and longer ones that were too large."""

from __future__ import annotations

from functools import cache

import pytest

from eqsat.compiler.lengthening import MOST_TRIES, SAFE, WORTHWHILE, Lengthening
from eqsat.planning.candidates import Candidate, rechunk
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.search_space import prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.compiler.test_search import pairs
from tests.stages import lowered, normal

BUDGET = 200_000


@cache
def large() -> Candidate:
    """A candidate whose chunks take the budget, as predicted."""
    program, _ = lowered(pairs, normal(1000, 3), normal(900, 3), normal(900))
    space = prepare(program, rules_for((), "reassociates"), BUDGET, CPU, 2)
    return next(group[0] for group in attempts(space, BUDGET) if group[0].predicted_peak <= BUDGET)


@cache
def short() -> Candidate:
    """The same with the shortest chunks."""
    return rechunk(large(), 0, CPU)


def lengthening(peak: int) -> Lengthening:
    """After the large candidate was compiled to this peak."""
    found = Lengthening(BUDGET, CPU)
    found.came_out(large(), peak)
    return found


@pytest.mark.parametrize("excess", [1.1, 2.0, 5.0])
def test_the_room_is_shared_out_in_proportion(excess: float) -> None:
    least = short().predicted_peak
    longer = lengthening(int(excess * BUDGET)).longer(short(), least)
    assert longer is not None
    bound = least + SAFE * (BUDGET - least) * (large().predicted_peak - least) / (excess * BUDGET - least)
    assert least < longer.predicted_peak <= 1.001 * bound
    assert longer.predicted_seconds <= WORTHWHILE * short().predicted_seconds


def test_a_program_of_which_none_was_too_large_is_left() -> None:
    assert Lengthening(BUDGET, CPU).longer(short(), short().predicted_peak) is None


def test_what_fits_exactly_is_left() -> None:
    assert lengthening(2 * BUDGET).longer(short(), BUDGET) is None


def test_chunks_that_are_not_longer_are_not_tried() -> None:
    assert lengthening(2 * BUDGET).longer(large(), large().predicted_peak) is None


def test_it_tries_a_few_times() -> None:
    trying = lengthening(2 * BUDGET)
    found = [trying.longer(short(), short().predicted_peak) for _ in range(MOST_TRIES + 1)]
    assert [one is None for one in found] == [False] * MOST_TRIES + [True]
