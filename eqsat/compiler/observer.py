"""`Observer`: is notified of plans, and decides what happens to programs that do not fit."""

from __future__ import annotations

from typing import Protocol

from eqsat.errors import EqsatError
from eqsat.reports.plan import Plan
from eqsat.reports.stream_plan import StreamPlan


class Observer(Protocol):
    """Is notified of every program that is planned under its settings, derivatives included."""

    def planned(self, title: str, plan: Plan | StreamPlan) -> None:
        """The program of this title has a plan."""

    def refused(self, title: str, error: EqsatError) -> bool:
        """No plan fits the budget: whether to use the program that needs least memory instead."""
