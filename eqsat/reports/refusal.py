"""Refusals: the messages for functions with no program that fits a budget, or none that is fast enough."""

from __future__ import annotations

import math
from collections.abc import Iterable

from eqsat.errors import BudgetError
from eqsat.reports.page import barrier_lines
from eqsat.support.records import PeakTensor, SearchStep
from eqsat.support.units import format_bytes, format_seconds


class Refusal(Exception):
    """Raised if there is no plan, before it is known which budget would be enough.

    **Attributes:**

    - `reasons`: the lines of the explanation.
    - `reached`: bytes that may be enough if they exceed the budget; None if that must be found out.
    - `otherwise`: a remedy other than a larger budget: "allow more rewrites with accuracy=".
    - `tensors`: the largest arrays at the smallest peak.
    """

    def __init__(
        self,
        reasons: Iterable[str],
        reached: int | None,
        otherwise: str = "",
        tensors: tuple[PeakTensor, ...] = (),
    ) -> None:
        self.reasons = tuple(reasons)
        super().__init__("\n".join(self.reasons))
        self.reached = reached
        self.otherwise = otherwise
        self.tensors = tensors

    def error(self, enough: int, search: tuple[SearchStep, ...] = ()) -> BudgetError:
        """The error to raise, given a budget in bytes that has a plan, and the decisions of the search."""
        advice = f"Raise the budget to {format_bytes(enough, enough=True)} or more"
        if self.otherwise:
            advice += f", or {self.otherwise}"
        return BudgetError("\n".join([*self.reasons, f"{advice}."]), enough, self.tensors, search)


def fixed_too_big(budget: int, arguments: int, results: int) -> Refusal:
    """The refusal for arguments and results that exceed the budget by themselves; all sizes are in bytes."""
    return Refusal(
        [
            f"the arguments ({format_bytes(arguments)}) and results ({format_bytes(results)}) alone exceed"
            f" the budget of {format_bytes(budget)}: no rewriting can help."
        ],
        None,
    )


def too_big(
    budget: int,
    reached: int,
    original: int,
    fixed: int,
    tensors: tuple[PeakTensor, ...],
    banned: Iterable[str] = (),
    cut_short: float = math.inf,
) -> Refusal:
    """The refusal for a function with no program that fits; all sizes are in bytes.

    **Arguments:**

    - `reached`, `original`: the smallest peak found, and that of the program as written.
    - `fixed`: the size of arguments and results.
    - `tensors`: the largest arrays at the smallest peak.
    - `banned`: rules that were stopped.
    - `cut_short`: the limit on planning time in seconds, if planning reached it.
    """
    lines = [
        f"no program within the budget of {format_bytes(budget)} was found. The smallest peak reached is"
        f" {format_bytes(reached)} (as written: {format_bytes(original)}), of which arguments and results are"
        f" {format_bytes(fixed)}."
    ]
    # An array larger than the whole peak must have been fused by XLA, which the simulation does not know.
    tensors = tuple(peak for peak in tensors if peak.tensor.bytes <= reached)
    if tensors:
        lines.append("The largest other arrays at that peak, and what stops their axes from being split:")
        lines += [line for tensor in tensors for line in barrier_lines(tensor)]
    names = ", ".join(banned)
    if names:
        lines.append(f"These rules were stopped, as they made too many terms: {names}.")
    otherwise = "allow more rewrites with accuracy="
    if math.isfinite(cut_short):
        lines.append(
            f"Planning was cut short after planning_seconds={cut_short:g}; there may be programs that fit."
        )
        otherwise = "raise planning_seconds"
    return Refusal(lines, reached, otherwise, tensors)


def too_slow(
    budget: int, peak: int, seconds: float, longest: float, original: float, max_slowdown: float
) -> Refusal:
    """The refusal for a function whose programs that fit take far longer than the function as written.

    **Arguments:**

    - `peak`, `seconds`: the peak and predicted time of the fastest program that fits.
    - `longest`, `original`: the longest time allowed, and the time of the function as written.
    """
    reason = (
        f"no program within the budget of {format_bytes(budget)} was found that is predicted to take"
        f" {format_seconds(longest)} or less (max_slowdown={max_slowdown:g}; as written:"
        f" {format_seconds(original)}). The fastest one that was found needs {format_bytes(peak)} and is"
        f" predicted to take {format_seconds(seconds)}."
    )
    return Refusal([reason], budget, "allow slower programs with max_slowdown=")
