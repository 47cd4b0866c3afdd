"""What budgets cost of a function of arrays that are not in memory, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat.reports.showing import Report
from eqsat.reports.stream_plan import StreamPlan, times_text
from eqsat.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StreamExplanation(Report):
    """The smallest budget of a function of arrays that are not in memory, and the time of others.

    `print(explanation)` shows a page of text; `.save("explanation.html")`, .png and .txt save it.

    **Attributes:**

    - `title`: the name of the function.
    - `argument_bytes`, `result_bytes`: of its arguments and its results, wherever they are.
    - `minimum_bytes`: the smallest budget of the device's memory for which a plan was found.
    - `plans`: those of budgets from the smallest to what holds all arguments and results at once, ascending,
      and each faster than those before.
    """

    title: str
    argument_bytes: int
    result_bytes: int
    minimum_bytes: int
    plans: tuple[StreamPlan, ...]

    @property
    def heading(self) -> str:
        return f"eqsat explanation of {self.title}: passes over what is not in memory"

    def __str__(self) -> str:
        lines = [
            self.heading,
            "",
            f"  in memory        arguments would take {format_bytes(self.argument_bytes)},"
            f" results {format_bytes(self.result_bytes)}",
            f"  smallest budget  {format_bytes(self.minimum_bytes, enough=True)}",
            "",
            "What budgets of the device's memory would cost: peaks are certified by XLA, times are predicted",
            f"  {'budget':>9}  {'peak':>9}  {'on the host':>11}  {'time':>9}  what is read",
        ]
        for plan in self.plans:
            budget, peak = format_bytes(plan.budget_bytes, enough=True), format_bytes(plan.peak_bytes)
            beside, time = format_bytes(plan.host_bytes), format_seconds(plan.predicted_seconds)
            read = ", ".join(f"{name} {times_text(times)}" for name, times in plan.read.items())
            lines.append(f"  {budget:>9}  {peak:>9}  {beside:>11}  {time:>9}  {read}")
        return "\n".join(lines)

    def figure(self) -> Figure:
        """Predicted time against budget, as a matplotlib figure.

        **Raises:** `EqsatError` without matplotlib.
        """
        from eqsat.reports.curve import stream_curve

        return stream_curve(self)
