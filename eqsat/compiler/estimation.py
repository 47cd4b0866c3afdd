"""Estimation: the best few programs that fit are compared by what their compiled text says.

A compiler decides what it fuses and stores after planning has predicted it. On a device that is absent,
nothing can be timed, but the kernels of a compiled program and the bytes that they move are known
(`backend/module_time.py`). Each comparison costs a compilation, so a program that should be no slower than
the function as written is taken as it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from eqsat.compiler.contenders import CLEARLY, Contenders
from eqsat.compiler.planned import Planned
from eqsat.support.records import SearchStep
from eqsat.support.units import format_seconds

MOST = 6
"""The number of programs compared at most, including the one predicted to be fastest."""


class Estimator(Contenders):
    """A planner that chooses among its best few programs by the times that their compiled text says."""

    longer = (2.0, 4.0)

    def planned(self) -> Planned:
        """The fastest of the programs that are certified to fit.

        **Raises:** `BudgetError` if there is none.
        """
        first, chosen = super().planned(), self.chosen
        plain = None if self.obstacle is not None else self.baseline.within(self.budget).seconds
        if plain is None or first.certified.seconds is None:
            return first
        if first.plan.changed and first.certified.seconds <= plain:
            took = format_seconds(first.certified.seconds)
            return _noted(
                first, f"it should take {took}, the function as written {format_seconds(plain)}", 0.0
            )
        began = time.perf_counter()
        try:
            programs = [first, *islice(self.others(first, chosen), MOST - 1)]
        except Exception as error:
            # Any function survives: there is a plan without comparing anything.
            return _noted(first, f"nothing was compared: {error!r}", time.perf_counter() - began)
        best = fastest([program.certified.seconds for program in programs])
        told = ", ".join(format_seconds(program.certified.seconds or 0.0) for program in programs)
        outcome = f"{told}: number {best + 1} is taken"
        self.stopwatch.progress.tell(outcome)
        return _noted(programs[best], outcome, time.perf_counter() - began)


def _noted(planned: Planned, outcome: str, seconds: float) -> Planned:
    """A plan whose search ends with what came of the comparison."""
    step = SearchStep("compare compiled programs", outcome, seconds)
    return replace(planned, plan=replace(planned.plan, search=(*planned.plan.search, step)))


def fastest(seconds: Sequence[float | None]) -> int:
    """The number of the shortest time, or 0 if none is clearly shorter than the first one.

    >>> fastest([1.0, 0.5, 0.6]), fastest([1.0, 0.98])
    (1, 0)
    """
    known = {number: each for number, each in enumerate(seconds) if each is not None}
    best = min(known, key=lambda number: known[number])
    return best if known[best] < CLEARLY * known[0] else 0
