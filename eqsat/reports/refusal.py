"""What is said when no program fits a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable

from eqsat.amounts import format_bytes
from eqsat.errors import BudgetError
from eqsat.records import PeakTensor
from eqsat.reports.page import barrier_lines


def refusal(
    budget: int,
    reached: int,
    original: int,
    fixed: int,
    tensors: tuple[PeakTensor, ...],
    banned: Iterable[str] = (),
    cut_short: float = math.inf,
) -> BudgetError:
    """The error for a program that can't be made to fit, in bytes.

    **Arguments:**

    - `reached`, `original`: the smallest peak found, and that of the program as written.
    - `fixed`: arguments and results.
    - `tensors`: what makes the smallest peak.
    - `banned`: rules that were stopped.
    - `cut_short`: the seconds that planning was limited to, if it ran into the limit.
    """
    lines = [
        f"no program within the budget of {format_bytes(budget)} was found. The smallest peak reached is"
        f" {format_bytes(reached)} (as written: {format_bytes(original)}), of which arguments and results are"
        f" {format_bytes(fixed)}."
    ]
    # What is larger than the whole peak is fused by XLA, though the simulation does not know.
    tensors = tuple(peak for peak in tensors if peak.tensor.bytes <= reached)
    if tensors:
        lines.append("The largest other arrays at that peak, and what stops their axes from being split:")
        lines += [line for tensor in tensors for line in barrier_lines(tensor)]
    names = ", ".join(banned)
    if names:
        lines.append(f"These rules were stopped, as they made too many terms: {names}.")
    enough = format_bytes(reached, enough=True)
    if math.isfinite(cut_short):
        lines.append(
            f"Planning was cut short after planning_seconds={cut_short:g}; there may be"
            f" programs that fit. Raise planning_seconds, or the budget to {enough} or more."
        )
    else:
        lines.append(f"Raise the budget to {enough} or more, or allow more rewrites with accuracy=.")
    return BudgetError("\n".join(lines), reached, tensors)
