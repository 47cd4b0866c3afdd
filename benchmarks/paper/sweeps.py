"""Measures programs at several sizes under one budget, beside plain JAX, and draws the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import eqsat
from benchmarks.records import markdown, ratio_text, time_text
from eqsat.support.units import format_bytes
from examples.comparison import compare
from examples.measure import difference, interleaved, plain_peak

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EQSAT = "eqsat"
RUNS = 5
BEFORE, AFTER = "#b5482a", "#2a6f97"


@dataclass(frozen=True)
class Row:
    """The results for one program at one size.

    **Attributes:**

    - `peak`: the certified peak in bytes, or None if nothing fits the budget.
    - `seconds`: the time of a call, the median of several in turns.
    - `plain_seconds`: the same for plain JAX, or None if it does not fit the machine.
    - `others`: the seconds of other ways to compute the same, timed in turns with eqsat.
    - `apart`: the largest difference from plain JAX's result, relative to that one's largest entry.
    """

    program: str
    size: int
    budget: int
    plain_peak: int
    peak: int | None
    plain_seconds: float | None = None
    seconds: float | None = None
    planning_seconds: float | None = None
    apart: float | None = None
    others: dict[str, float] = field(default_factory=dict)


def row(
    program: str,
    size: int,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    budget: int | str,
    others: Mapping[str, Callable[..., Any]] | None = None,
    part: Callable[[Any], Any] = lambda result: result,
) -> Row:
    """Measures a program at one size, and prints the results.

    **Arguments:**

    - `others`: other functions, by name, that compute the same from the same arguments.
    - `part`: the part of the results that is compared with plain JAX's.
    """
    try:
        found = compare(f"{program}, {size:,}", function, *arguments, budget=budget)
    except eqsat.BudgetError as error:
        print(error)
        allowed = eqsat.support.units.parse_budget(budget)
        return Row(program, size, allowed, plain_peak(function, arguments), None)
    seconds, apart = found.seconds, None
    if found.plain is not None:
        apart = difference(part(found.result), part(found.plain))
    in_turns: dict[str, float] = {}
    if others:
        times = interleaved({EQSAT: found.functions[EQSAT], **others}, arguments, RUNS)
        in_turns = {name: timing.seconds for name, timing in times.items()}
        seconds = in_turns.pop(EQSAT)
    return Row(
        program,
        size,
        found.budget,
        found.plain_peak,
        found.peak,
        found.plain_seconds,
        seconds,
        found.planning_seconds,
        apart,
        in_turns,
    )


def text(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Returns a table for each program.

    **Arguments:**

    - `columns`: for each program, the heading of the column of sizes.
    """
    return "\n".join(
        table(program, column, [row for row in rows if row.program == program])
        for program, column in columns.items()
    )


def table(program: str, column: str, rows: Sequence[Row]) -> str:
    """Returns one program's rows as a table in Markdown, with the ratios of eqsat's time to the others'."""
    others = sorted({name for row in rows for name in row.others})
    heading = [column, "plain peak", "budget", "eqsat peak", "plain time", "eqsat time", "eqsat / plain",
               *(f"eqsat / {name}" for name in others), "planning"]  # fmt: skip
    lines = []
    for row in rows:
        broken = " (over)" if row.plain_peak > row.budget else ""
        lines.append(
            [
                f"{row.size:,}",
                format_bytes(row.plain_peak) + broken,
                format_bytes(row.budget),
                "does not fit" if row.peak is None else format_bytes(row.peak),
                time_text(row.plain_seconds),
                time_text(row.seconds),
                ratio_text(row.seconds, row.plain_seconds),
                *(ratio_text(row.seconds, row.others.get(name)) for name in others),
                time_text(row.planning_seconds),
            ]
        )
    return f"## {program}\n\n{markdown(heading, lines)}"


def figure(rows: Sequence[Row], columns: Mapping[str, str]) -> Figure:
    """Draws peak and time against size, a column per program, with a cross where plain JAX is over budget."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(4.2 * len(columns), 6), layout="constrained")
    panels = drawn.subplots(2, len(columns), squeeze=False, sharex="col")
    for (peaks, times), (program, column) in zip(zip(*panels, strict=True), columns.items(), strict=True):
        some = [row for row in rows if row.program == program]
        sizes = [row.size for row in some]
        peaks.plot(sizes, [row.plain_peak / 1e6 for row in some], "o-", color=BEFORE, label="plain JAX")
        _line_of(peaks, sizes, [row.peak and row.peak / 1e6 for row in some], AFTER, "eqsat")
        peaks.axhline(some[0].budget / 1e6, color="black", linewidth=0.8, linestyle="--", label="budget")
        over = next((row for row in some if row.plain_peak > row.budget), None)
        if over is not None:
            peaks.plot([over.size], [over.plain_peak / 1e6], "x", color="black", markersize=11,
                       label="first size at which plain JAX is over it")  # fmt: skip
        _line_of(times, sizes, [row.plain_seconds for row in some], BEFORE, "plain JAX, without a budget")
        _line_of(times, sizes, [row.seconds for row in some], AFTER, "eqsat")
        for name in sorted({name for row in some for name in row.others}):
            _line_of(times, sizes, [row.others.get(name) for row in some], "gray", name)
        peaks.set(title=program, xscale="log", yscale="log", ylabel="peak, MB")
        times.set(xlabel=column, xscale="log", yscale="log", ylabel="time of a call, s")
        peaks.legend(fontsize=8)
        times.legend(fontsize=8)
        for axes in (peaks, times):
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
            axes.minorticks_off()
            axes.grid(color="0.9")
    return drawn


def _line_of(
    axes: Axes, sizes: Sequence[int], values: Sequence[float | None], colour: str, label: str
) -> None:
    known = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
    axes.plot([size for size, _ in known], [value for _, value in known], "o-", color=colour, label=label)
