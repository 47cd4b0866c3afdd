"""The errors eqsat raises. Each says what is wrong, where, and what to do about it."""

from __future__ import annotations

from eqsat.support.records import PeakTensor, SearchStep


class EqsatError(Exception):
    """Base of every error that eqsat raises on purpose."""


class BudgetError(EqsatError):
    """No program within the budget was found, or the budget itself makes no sense.

    Attributes:
        smallest_peak: bytes of the leanest program found, or `None` if none was compiled.
        tensors: the largest arrays at its peak, each with its dtype, its axes, the line of the source that
            made it, and for every axis what stops it from being split.
        search: the decisions of the search for a program, and what came of each.
    """

    def __init__(
        self,
        message: str,
        smallest_peak: int | None = None,
        tensors: tuple[PeakTensor, ...] = (),
        search: tuple[SearchStep, ...] = (),
    ) -> None:
        super().__init__(message)
        self.smallest_peak = smallest_peak
        self.tensors = tensors
        self.search = search


class RuleSyntaxError(EqsatError):
    """A `.rules` file does not parse. The message shows file:line:column, the line and a caret."""


class RuleError(EqsatError):
    """A rule parses but is not a sound rewrite (unbound name, escaping axis, unknown guard...)."""
