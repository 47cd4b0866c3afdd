"""Which budget would do where one does not: one that was tried, or what the function needs as it is."""

from __future__ import annotations

import math
from typing import Protocol, Self

from eqsat.compiler.baseline import Baseline, Obstacle
from eqsat.compiler.defect_report import is_defect, reported
from eqsat.compiler.plan_assembly import PlanAssembly
from eqsat.compiler.planned import Planned
from eqsat.errors import BudgetError, EqsatError
from eqsat.reports.refusal import Refusal
from eqsat.support.deadline import Deadline

MOST_TRIED = 3
"""So many budgets are tried, besides the smallest that may do."""

NEAR = 1.1
"""Budgets that differ by less than this factor are not worth another try."""


class Planner(Protocol):
    """What plans the function, for one budget after another."""

    budget: int
    deadline: Deadline
    baseline: Baseline
    assembly: PlanAssembly
    obstacle: Obstacle | None

    def searched_minimum(self) -> int:
        """The smallest budget in bytes that may do."""
        ...

    def at(self, budget: int) -> Self:
        """What plans it for another budget."""
        ...

    def attempt(self) -> Planned:
        """The plan, or a `Refusal`."""
        ...


def refused(planner: Planner, refusal: Refusal) -> BudgetError:
    """The error that says which budget would do; a defect met while looking for that is its cause."""
    try:
        return refusal.error(enough(planner, refusal), tuple(planner.assembly.log))
    except Exception as error:
        if not is_defect(error):
            raise
        written = reported(error, planner.baseline.traced.closed, planner.budget)
        refusal.reasons += (
            "Looking for the smallest budget that would do failed. This is a defect of eqsat, please report"
            f" it: {error!r}; {written}",
        )
        found = refusal.error(planner.baseline.certified().peak, tuple(planner.assembly.log))
        found.__cause__ = error
        return found


def enough(planner: Planner, refusal: Refusal) -> int:
    """A budget in bytes that there is a plan for.

    The smallest that may do is tried first, and then ones between those that don't and the least known to do.
    As long as it takes, the function itself is a plan.
    """
    least = planner.baseline.certified().peak
    if planner.obstacle is not None:
        return planner.baseline.within(0).peak
    if planner.deadline.passed():
        return least
    may_do = planner.searched_minimum() if refusal.reached is None else refusal.reached
    too_small = planner.budget
    if too_small < may_do < least:
        if _does(planner, may_do):
            return may_do
        too_small = may_do
    too_small = max(too_small, planner.baseline.certified().fixed)
    for _ in range(MOST_TRIED):
        if planner.deadline.passed() or least <= NEAR * too_small:
            break
        middle = round(math.sqrt(too_small * least))
        if _does(planner, middle):
            least = middle
        else:
            too_small = middle
    return least


def _does(planner: Planner, budget: int) -> bool:
    """Whether there is a plan for a budget."""
    try:
        planner.at(budget).attempt()
    except (Refusal, EqsatError):
        return False
    return True
