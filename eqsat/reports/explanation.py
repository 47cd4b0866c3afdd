"""An explanation: where a function uses memory, and the time that smaller budgets would cost."""

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
"""The number of the largest arrays that are listed."""


@dataclass(frozen=True)
class Explanation(ExplanationRecord, Report):
    """Where a function uses memory, its smallest budget, and the time that budgets would cost.

    `print(explanation)` shows a page of text. `explanation.show()` adds a curve of time against budget.
    `explanation.save("explanation.html")` writes both; `save` also writes .png, .svg, .pdf, .txt and .json.

    **Attributes:**

    - `title`: the name of the function.
    - `original_peak_bytes`, `original_seconds`: the certified peak and predicted time of the function as
      written.
    - `argument_bytes`, `result_bytes`: parts of that peak; the rest are temporaries.
    - `minimum_bytes`: the smallest budget for which there is a plan.
    - `prices`: the costs of budgets from the smallest to the peak as written, ascending.
    - `largest`: the largest arrays that the function makes as written.
    - `before`: its memory over time as written.
    - `floor_tensors`: the largest arrays at the peak of the smallest plan, and what stops them from being
      split.
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
        """By file name extension, a function that returns the text of a file."""
        return {**super().texts(), "json": partial(to_json, self)}

    def figure(self) -> Figure:
        """A matplotlib figure of predicted time against budget, and of memory over time as written."""
        return explanation_figure(self)
