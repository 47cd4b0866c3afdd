"""Budgets for a function of arrays that are not in memory: the smallest, and those above that gain time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eqsat.errors import BudgetError
from eqsat.streaming.planner import StreamedProgram

FIRST = 4096
"""Bytes beyond what is held in any case, of the first budget that is tried."""

NEAR = 1.05
"""The smallest budget is at most this many times as much as the largest for which no program was found."""

MOST = 16
"""No budgets are tried beyond this many times what arguments and results take."""

Planned = Callable[[int], StreamedProgram]
"""A program within a budget in bytes; raises `BudgetError` if there is none."""


def smallest_budget(planned: Planned, held: int, whole: int) -> int:
    """The smallest budget in bytes for which a program is found.

    **Arguments:**

    - `held`: bytes that the device's memory holds in any case.
    - `whole`: bytes of all arguments and results.

    **Raises:** `BudgetError` if none is found, as when the host's memory is too small.
    """
    low, budget = held, held + FIRST
    while (error := _refusal(planned, budget)) is not None:
        if budget > MOST * max(whole, FIRST):
            raise error
        low, budget = budget, held + 2 * (budget - held)
    while budget > NEAR * max(low, 1):
        middle = (low + budget) // 2
        if _refusal(planned, middle) is None:
            budget = middle
        else:
            low = middle
    return budget


def _refusal(planned: Planned, budget: int) -> BudgetError | None:
    try:
        planned(budget)
    except BudgetError as error:
        return error
    return None


def worthwhile(
    planned: Planned, smallest: int, whole: int, count: int
) -> Iterator[tuple[int, StreamedProgram]]:
    """Budgets in bytes with their programs, each faster than those before.

    **Arguments:**

    - `smallest`, `whole`: the first budget and the last.
    - `count`: how many are tried, at equal ratios.
    """
    fastest = float("inf")
    for number in range(count):
        ratio = max(whole / smallest, 1.0) ** (number / max(count - 1, 1))
        budget = round(smallest * ratio)
        try:
            program = planned(budget)
        except BudgetError:
            continue  # Few programs are tried of each budget.
        if program.seconds < fastest:
            fastest = program.seconds
            yield budget, program
