"""A comparison of accuracy classes: the time that each would save within the same budget."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.reports.page import cut
from eqsat.support.units import format_bytes, format_seconds

GAIN = 0.95
"""A predicted time above this part of another is no gain: predictions are not accurate enough."""


@dataclass(frozen=True, slots=True)
class ClassPrice:
    """The cost of a function with the rules of one accuracy class.

    **Attributes:**

    - `accuracy`, `meaning`: the class, and the effect that its rules may have on results.
    - `peak_bytes`: the certified peak of its plan; None if there is no plan within the budget.
    - `seconds`: the predicted time; None if there is no plan.
    - `rules`: the rules that its plan uses and that the requested class does not allow.
    """

    accuracy: str
    meaning: str
    peak_bytes: int | None = None
    seconds: float | None = None
    rules: tuple[str, ...] = ()

    def is_better_than(self, other: ClassPrice) -> bool:
        """Whether this class is clearly faster, or has a plan and the other has none."""
        if self.seconds is None or other.seconds is None:
            return self.seconds is not None and other.seconds is None
        return self.seconds < GAIN * other.seconds


@dataclass(frozen=True)
class AccuracyComparison:
    """The gains of wider accuracy classes; `print(comparison)` shows a table.

    **Attributes:**

    - `title`: the name of the function.
    - `budget_bytes`: the budget of all plans; None if none was given and there is no plan.
    - `prices`: the prices of the requested class, and of each wider class that is better than those before.
    """

    title: str
    budget_bytes: int | None
    prices: tuple[ClassPrice, ...]

    def __str__(self) -> str:
        own, *wider = self.prices
        within = "" if self.budget_bytes is None else f" within {format_bytes(self.budget_bytes)}"
        heading = f"What wider accuracy classes would gain for {self.title}{within}"
        if not wider:
            return f"{heading}: nothing, compared with {own.accuracy!r}"
        lines = [heading, f"  {'accuracy':<12}  {'time':>9}  {'times as long':>13}  {'peak':>9}  by rules"]
        for price in self.prices:
            if price.seconds is None or price.peak_bytes is None:
                lines.append(f"  {price.accuracy:<12}  no plan")
                continue
            ratio = "" if own.seconds is None else f"{price.seconds / max(own.seconds, 1e-12):.3g}"
            figures = f"{format_seconds(price.seconds):>9}  {ratio:>13}  {format_bytes(price.peak_bytes):>9}"
            lines.append(cut(f"  {price.accuracy:<12}  {figures}  {', '.join(price.rules)}".rstrip()))
        lines += [f"A rule that is {price.accuracy!r}: {price.meaning}." for price in wider]
        return "\n".join(lines)
