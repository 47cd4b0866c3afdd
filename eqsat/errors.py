"""The errors that eqsat raises. Each message says what is wrong, where, and what to do about it."""

from __future__ import annotations

from eqsat.support.records import PeakTensor, SearchStep


class EqsatError(Exception):
    """The base class of the errors that eqsat raises on purpose."""


class BudgetError(EqsatError):
    """No program within the budget was found, or the budget itself is not valid.

    **Attributes:**

    - `smallest_peak`: the peak memory in bytes of the program that needs least, or None if none was compiled.
    - `tensors`: the largest arrays at that peak, each with its dtype, its axes, the line of the source that
      made it, and for every axis what stops it from being split.
    - `search`: the decisions of the search for a program, each with its outcome.
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
    """A `.rules` file does not parse. The message shows file:line:column, and the line with a caret."""


class RuleError(EqsatError):
    """A rule parses but is not valid, or is found to be wrong by test.

    For example, it uses a name that is not bound or a guard that does not exist, or an axis escapes from it.
    """
