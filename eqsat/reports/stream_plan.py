"""The plan of a function of arrays that are not in memory: which passes it makes over them, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat.reports.plan import Plan
from eqsat.reports.showing import Report
from eqsat.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MUCH_MORE = 1.5
"""What reading touches is said if it is so many times what is read."""


@dataclass(frozen=True)
class PassRecord:
    """A loop over chunks that runs in Python.

    **Attributes:**

    - `axis`: its label; `size`, `length`: how long the axis and its chunks are.
    - `depth`: how many such loops are around it; `times`: how often it runs, because of these.
    - `reads`: the names of what is read for each chunk; `chunk_bytes`: its size.
    - `results`: how chunks are combined: "sum", "concatenation".
    - `peak_bytes`: of the device's memory while it runs.
    - `share`: how much of the length of a chunk each device of a mesh receives: all of it on one device.
    """

    axis: str
    size: int
    length: int
    depth: int
    times: int
    reads: tuple[str, ...]
    chunk_bytes: int
    results: tuple[str, ...]
    peak_bytes: int
    share: int


@dataclass(frozen=True)
class StreamPlan(Report):
    """How a function of arrays that are not in memory is computed within a budget.

    `print(plan)` shows it; `plan.save("plan.txt")`, .html and .png save it, and "plan.py" the source of the
    compiled steps.

    **Attributes:**

    - `title`: the name of the function.
    - `budget_bytes`, `peak_bytes`: of the device's memory; the peak is certified for every compiled step,
      with all that is held beside it.
    - `host_budget_bytes`, `host_bytes`: of the host's memory for what is read and written, and for results in
      arrays of NumPy.
    - `passes`: the loops over chunks, outer before inner.
    - `read_bytes`: what is read in all; `touched_bytes`: what that touches where it lies, which is by pages
      of files, and by chunks of datasets; `read`: by name of an argument, how often it is read.
    - `assumed_iterations`: how often loops around passes are assumed to run that end by a condition; None if
      there are none.
    - `picked`: by name of an argument, bytes of its entries that indices pick.
    - `rate`: bytes per second at which a slice was read when the plan was asked for, or the target's.
    - `predicted_seconds`: the time of the whole, by the machine model.
    - `steps`: the plans of the compiled steps.
    - `rules_fired`: the rules that made the passes and their steps, with the number of ops that each made.
    - `planning_seconds`: the time that planning took.
    """

    title: str
    budget_bytes: int
    peak_bytes: int
    host_budget_bytes: int
    host_bytes: int
    passes: tuple[PassRecord, ...]
    read_bytes: int
    touched_bytes: int
    read: Mapping[str, float]
    assumed_iterations: int | None
    picked: Mapping[str, int]
    rate: float
    predicted_seconds: float
    steps: tuple[Plan, ...]
    rules_fired: Mapping[str, int]
    planning_seconds: float

    @property
    def heading(self) -> str:
        return f"eqsat plan for {self.title}: passes over what is not in memory"

    @property
    def _reading(self) -> str:
        """How long reading takes, in words, and what it touches if that is more."""
        reading = f"{format_seconds(self.touched_bytes / self.rate)} at {format_bytes(self.rate)}/s"
        if self.touched_bytes <= MUCH_MORE * self.read_bytes:
            return reading
        return f"{reading}, since {format_bytes(self.touched_bytes)} lie in the same pages or chunks"

    @property
    def source(self) -> str:
        """The compiled steps as JAX source text."""
        texts = dict.fromkeys(step.source for step in self.steps if step.source)
        return "\n\n".join(f"# Step {number}\n{text}" for number, text in enumerate(texts, 1))

    def __str__(self) -> str:
        lines = [self.heading, ""]
        budget, host = format_bytes(self.budget_bytes), format_bytes(self.host_budget_bytes)
        lines.append(f"  {'on the device':<16}{format_bytes(self.peak_bytes)}, certified; budget {budget}")
        beside = f"{format_bytes(self.host_bytes)} for reading, writing and results; budget {host}"
        lines.append(f"  {'on the host':<16}{beside}")
        lines.append(f"  {'reads':<16}{format_bytes(self.read_bytes)}; {self._reading}")
        for name, times in self.read.items():
            lines.append(f"  {'':<16}{name} {times_text(times)}")
        for name, count in self.picked.items():
            lines.append(f"  {'':<16}{format_bytes(count)} of {name}, by indices")
        if self.assumed_iterations is not None:
            lines.append(f"  {'':<16}if loops that end by a condition run {self.assumed_iterations} times")
        lines.append(f"  {'time of a call':<16}{format_seconds(self.predicted_seconds)} (predicted)")
        lines += ["", "Passes: loops over chunks that are read"]
        for one in self.passes:
            indent = "  " * (one.depth + 1)
            share = f", {one.share:,} for each device" if one.share < one.length else ""
            lines.append(
                f"{indent}over {one.axis}: {one.size:,} in chunks of {one.length:,}{share}{_often(one)}"
            )
            reads = ", ".join(one.reads) or "nothing"
            results = ", ".join(dict.fromkeys(one.results)) or "for the loops inside"
            lines.append(f"{indent}  reads {reads} ({format_bytes(one.chunk_bytes)} a chunk); {results}")
        if not self.passes:
            lines.append("  none: all fits on the device")
        lines.append("")
        lines.append(f"planned in {format_seconds(self.planning_seconds)}; {len(self.steps)} compiled steps")
        return "\n".join(lines)

    def sections(self) -> Mapping[str, str]:
        """The source, for the HTML page."""
        return {"The compiled steps": self.source} if self.source else {}

    def texts(self) -> Mapping[str, Callable[[], str]]:
        """By file name extension, a function that returns the text of a file."""
        return {**super().texts(), "py": lambda: self.source}

    def figure(self) -> Figure:
        """The memory of each pass, beside the budgets, as a matplotlib figure.

        **Raises:** `EqsatError` without matplotlib.
        """
        from eqsat.reports.pictures import stream_figure

        return stream_figure(self)


def times_text(times: float) -> str:
    """How often something is read, in words."""
    return "once" if times == 1 else "twice" if times == 2 else f"{times:,.4g} times"


def _often(one: PassRecord) -> str:
    return f", {one.times:,} times" if one.times > 1 else ""
