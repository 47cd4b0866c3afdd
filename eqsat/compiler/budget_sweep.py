"""The cost of budgets: plans from the smallest budget up to the memory of the function as written."""

from __future__ import annotations

import math

from eqsat.compiler.planner import Planner
from eqsat.errors import BudgetError
from eqsat.reports.explanation import Explanation
from eqsat.reports.plan import Plan
from eqsat.reports.records import Price
from eqsat.reports.refusal import Refusal
from eqsat.support.units import UNLIMITED


def explanation(planner: Planner, title: str, count: int) -> Explanation:
    """Where a program's memory goes, and what up to `count` budgets would cost.

    A plan also serves smaller budgets down to its peak. Every budget is therefore below the peak of the plan
    before it, so that no two budgets have the same plan.
    """
    planner = planner.at(planner.budget)
    planner.max_slowdown = math.inf  # what is slow has its price, too
    whole = planner.at(UNLIMITED).planned().plan
    minimum = planner.minimum()
    prices = [price(whole.original_peak_bytes, whole)]
    plan = whole
    for left in range(count - 1, 0, -1):
        if plan.peak_bytes <= minimum:
            break
        budget = next_budget(plan.peak_bytes, minimum, left)
        try:
            plan = planner.at(budget).attempt().plan
        except (Refusal, BudgetError):
            break  # there was no time for more
        prices.append(price(budget, plan))
    return Explanation(
        title,
        whole.original_peak_bytes,
        whole.original_seconds,
        whole.argument_bytes,
        whole.result_bytes,
        minimum,
        tuple(reversed(prices)),
        plan.too_big or whole.before.live,
        whole.before,
        planner.peak_tensors(),
    )


def next_budget(peak: int, minimum: int, left: int) -> int:
    """The next budget to price after a plan with this peak, with `left` more to go. The last is the minimum.

    >>> next_budget(1000, 10, 2), next_budget(100, 10, 1), next_budget(12, 10, 9)
    (100, 10, 11)
    """
    if left == 1:
        return minimum
    share: float = (minimum / peak) ** (1 / left)
    return max(minimum, min(peak - 1, round(peak * share)))


def price(budget: int, plan: Plan) -> Price:
    """The price of a budget, from its plan."""
    loops = tuple(f"{loop.label} by {loop.chunk}" for loop in plan.loops)
    return Price(budget, plan.peak_bytes, plan.predicted_seconds, loops, plan.changed)
