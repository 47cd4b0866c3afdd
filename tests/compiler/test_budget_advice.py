"""The budget that an error recommends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from eqsat.compiler.budget_advice import enough
from eqsat.reports.refusal import Refusal
from eqsat.support.deadline import NO_DEADLINE

WRITTEN, FIXED = 1000, 100


class Planner:
    """A planner of a function that needs `WRITTEN` bytes as written, and has plans from some budget on."""

    obstacle = None
    deadline = NO_DEADLINE
    searches_long = False
    baseline: Any = SimpleNamespace(certified=lambda: SimpleNamespace(peak=WRITTEN, fixed=FIXED), spared=0)

    likely: tuple[int, ...] = ()

    def __init__(self, needed: int, budget: int = 200, certain: int = WRITTEN) -> None:
        self.needed = needed
        self.budget = budget
        self.certain = certain
        self.tried: list[int] = []

    def at(self, budget: int) -> Planner:
        self.tried.append(budget)
        return Planner(self.needed, budget)

    def likely_budgets(self) -> tuple[int, ...]:
        return self.likely

    def is_certain(self, budget: int) -> bool:
        return budget >= self.certain

    def attempt(self) -> None:
        if self.budget < self.needed:
            raise Refusal(["too small"], None)


def advised(needed: int, reached: int, certain: int = WRITTEN) -> tuple[int, list[int]]:
    """The recommended budget, and the budgets that were tried for it."""
    planner: Any = Planner(needed, certain=certain)
    return enough(planner, Refusal(["too small"], reached)), planner.tried


def test_the_smallest_peak_that_was_reached_is_enough_if_there_is_a_plan_for_it() -> None:
    assert advised(500, 600) == (600, [600])


def test_otherwise_the_budget_is_between_that_and_the_function_as_written() -> None:
    budget, tried = advised(700, 600)
    assert 700 <= budget < WRITTEN
    assert len(tried) > 1


def test_if_a_search_takes_long_one_budget_is_tried() -> None:
    planner: Any = Planner(700)
    planner.searches_long = True
    budget = enough(planner, Refusal(["too small"], 600))
    assert 700 <= budget < WRITTEN
    assert len(planner.tried) == 1


def test_budgets_that_other_programs_should_keep_to_are_tried_first() -> None:
    planner: Any = Planner(700)
    planner.searches_long = True
    planner.likely = (150, 720, 800)
    assert enough(planner, Refusal(["too small"], 600)) == 720
    assert planner.tried == [720]


def test_nothing_is_tried_if_no_program_needs_less_than_the_function_as_written() -> None:
    assert advised(500, WRITTEN) == (WRITTEN, [])
    assert advised(500, WRITTEN + 500) == (WRITTEN, [])


def test_a_budget_that_is_certainly_enough_is_not_tried() -> None:
    assert advised(500, 600, certain=600) == (600, [])
