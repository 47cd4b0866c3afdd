"""The budget to recommend when one is too small: one that was tried, or that of the function as written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Self

from eqsat.compiler.baseline import Baseline, Obstacle
from eqsat.compiler.defect_report import is_defect, reported
from eqsat.compiler.plan_assembly import PlanAssembly
from eqsat.compiler.planned import Planned
from eqsat.errors import BudgetError, EqsatError
from eqsat.reports.refusal import Refusal
from eqsat.support.deadline import Deadline

MOST_TRIED, MOST_TRIED_IF_LONG = 3, 1
"""Budgets tried between bounds. Each takes a search: if that takes long, the smallest budget that may do
is not tried in addition."""

NEAR = 1.1
"""The search stops when the bounds differ by less than this factor."""


class BudgetPlanner(Protocol):
    """Plans the function for one budget after another."""

    budget: int
    deadline: Deadline
    baseline: Baseline
    assembly: PlanAssembly
    obstacle: Obstacle | None

    @property
    def searches_long(self) -> bool:
        """Whether a search takes long."""
        ...

    def searched_minimum(self) -> int:
        """The smallest budget in bytes that may be enough."""
        ...

    def is_certain(self, budget: int) -> bool:
        """Whether there is a plan for a budget, as far as is known without a search."""
        ...

    def likely_budgets(self) -> Sequence[int]:
        """Budgets in bytes that programs found on the way should keep to, the smallest first."""
        ...

    def at(self, budget: int) -> Self:
        """The planner of the same function for another budget."""
        ...

    def attempt(self) -> Planned:
        """The plan, or a `Refusal`."""
        ...


def refused(planner: BudgetPlanner, refusal: Refusal) -> BudgetError:
    """The error that names a sufficient budget. Its cause is a defect met on the way, if there is one."""
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


def enough(planner: BudgetPlanner, refusal: Refusal) -> int:
    """A budget in bytes for which there is a plan.

    The smallest one that may be enough is tried first, unless a search takes long, then budgets between the
    largest that is too small and the smallest that is known to be enough: those that programs found on the
    way should keep to, or else their mean. The function as written is always a plan for its own peak.
    """
    least = planner.baseline.certified().peak
    if planner.obstacle is not None:
        return planner.baseline.within(0).peak
    if planner.deadline.passed():
        return least
    may_do = planner.searched_minimum() if refusal.reached is None else refusal.reached
    if may_do >= least:
        return least  # Not even the programs that need least memory need less than the function as written.
    too_small = planner.budget
    if too_small < may_do:
        if planner.is_certain(may_do) or (not planner.searches_long and _does(planner, may_do)):
            return may_do
        too_small = may_do
    too_small = max(too_small, planner.baseline.certified().fixed - planner.baseline.spared)
    for _ in range(MOST_TRIED_IF_LONG if planner.searches_long else MOST_TRIED):
        if planner.deadline.passed() or least <= NEAR * too_small:
            break
        likely = (budget for budget in planner.likely_budgets() if NEAR * too_small < budget < least / NEAR)
        middle = next(likely, round(math.sqrt(too_small * least)))
        if _does(planner, middle):
            least = middle
        else:
            too_small = middle
    return least


def _does(planner: BudgetPlanner, budget: int) -> bool:
    """Whether there is a plan for a budget."""
    try:
        planner.at(budget).attempt()
    except (Refusal, EqsatError):
        return False
    return True
