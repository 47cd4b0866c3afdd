"""`Observer`: who wants to know which programs are planned, and has a say in what becomes of the others."""

from __future__ import annotations

from typing import Protocol

from eqsat.errors import EqsatError
from eqsat.reports.plan import Plan


class Observer(Protocol):
    """Is told of every program that is planned under its settings, also of those that derivatives are."""

    def planned(self, title: str, plan: Plan) -> None:
        """There is a plan for the program of that title."""

    def refused(self, title: str, error: EqsatError) -> bool:
        """There is none within the budget. Is the leanest program that was found to be used instead?"""
