"""An explanation: where the memory of a function goes, and what less of it would cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eqsat.reports.curve import explanation_figure
from eqsat.reports.page import barrier_lines, cut, tensor_lines
from eqsat.reports.records import ExplanationRecord
from eqsat.reports.showing import Report
from eqsat.support.serialisation import to_json
from eqsat.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TENSORS = 6
"""How many of the largest arrays are told."""


@dataclass(frozen=True)
class Explanation(ExplanationRecord, Report):
    """Where the memory of a function goes, what the smallest budget is, and what budgets would cost in time.

    `print(explanation)` is a page, `explanation.show()` adds a curve of time against budget; both are in what
    `explanation.save("explanation.html")` writes. `save` takes .png, .svg, .pdf, .txt and .json, too.

    **Attributes:**

    - `title`: what the function is called.
    - `original_peak_bytes`, `original_seconds`: of the function as written: certified, and predicted.
    - `argument_bytes`, `result_bytes`: parts of that peak; the rest are temporaries.
    - `minimum_bytes`: the smallest budget for which there is a plan.
    - `prices`: for budgets from the smallest to the peak as written, ascending.
    - `largest`: the largest arrays that the function as written makes.
    - `before`: its memory over time.
    - `floor_tensors`: what makes the peak of the smallest plan, and what stops it from being split.
    """

    def __str__(self) -> str:
        fixed = self.argument_bytes + self.result_bytes
        lines = [
            f"eqsat explanation of {self.title}",
            "",
            f"  as written       {format_bytes(self.original_peak_bytes)} at its peak:"
            f" arguments {format_bytes(self.argument_bytes)}, results {format_bytes(self.result_bytes)},"
            f" temporary arrays {format_bytes(max(self.original_peak_bytes - fixed, 0))}",
            f"  smallest budget  {format_bytes(self.minimum_bytes, enough=True)}",
        ]
        if self.largest:
            lines += ["", "The largest arrays as written, and the lines that make them"]
            lines += tensor_lines(self.largest, MOST_TENSORS)
        lines += ["", "What budgets would cost: peaks are certified by XLA, times are predicted"]
        lines += self._table()
        if self.floor_tensors:
            lines += ["", "The largest arrays at the smallest peak, and what stops them from being split"]
            lines += [line for tensor in self.floor_tensors for line in barrier_lines(tensor)]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        lines = [f"  {'budget':>9}  {'peak':>9}  {'time':>9}  {'times as long':>13}  loops over chunks"]
        for price in self.prices:
            ratio = price.seconds / max(self.original_seconds, 1e-12)
            loops = ", ".join(price.loops) or ("none" if price.changed else "as written")
            budget, peak = format_bytes(price.budget_bytes, enough=True), format_bytes(price.peak_bytes)
            figures = f"{budget:>9}  {peak:>9}  {format_seconds(price.seconds):>9}  {ratio:>13.3g}"
            lines.append(cut(f"  {figures}  {loops}"))
        return lines

    def texts(self) -> Mapping[str, Callable[[], str]]:
        """By the ending of a file's name, how to make its text."""
        return {**super().texts(), "json": partial(to_json, self)}

    def figure(self) -> Figure:
        """Predicted time against budget, and memory over time as written, by matplotlib."""
        return explanation_figure(self)
