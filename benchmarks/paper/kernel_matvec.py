"""A kernel matrix times a vector against the number of points, under several budgets: figure 2 of the paper.

    python -m benchmarks.paper.kernel_matvec [--full] [--quick]

Computes exp(-(x_i - y_j)²/2) v in float64, with x, y and v of shape [n, 1], for n from 1,000 to 100,000, or
with `--full` to a million. A million points are 10¹² exponentials for each budget, which takes an hour or
more on few cores. Writes `benchmarks/results/paper-kernel-matvec-<cpu>` as `.json`, `.md` and `.png`: the
certified peak and the time of a call, and the n from which plain JAX exceeds each budget. Nothing is
extrapolated.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import eqsat
from benchmarks.records import RESULTS, markdown, ratio_text, time_text, write
from eqsat.support.units import format_bytes, parse_budget
from examples.comparison import LONG
from examples.measure import difference, has_room_for, interleaved, seconds_text
from examples.programs import kernel_matvec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = (1_000, 3_000, 10_000, 30_000, 100_000)
FULL = (*POINTS, 300_000, 1_000_000)
BUDGETS = ("100MB", "300MB", "1GB")
PLAIN = "plain"
RUNS = 5


@dataclass(frozen=True)
class Row:
    """The results for one n under one budget.

    **Attributes:**

    - `peak`, `plain_peak`: the certified peaks in bytes.
    - `seconds`, `processor_seconds`: the wall-clock time of a call, and the processor time over all
      cores. Each is the median of several calls in turns, unless these are long. Budgets that lead to the
      same program share them.
    - `plain_seconds`, `plain_processor_seconds`: the times of plain JAX, or None if it does not fit the
      machine.
    - `apart`: the largest difference from plain JAX's result, relative to the largest entry, or None.
    """

    n: int
    budget: int
    peak: int
    plain_peak: int
    seconds: float
    processor_seconds: float
    plain_seconds: float | None
    plain_processor_seconds: float | None
    apart: float | None


def rows_of(n: int, budgets: Sequence[str]) -> list[Row]:
    """Measures one n under each budget, and prints the results."""
    x, y, v = np.random.default_rng(0).normal(size=(3, n, 1))
    with jax.enable_x64(True):
        functions: dict[str, Callable[..., Any]] = {
            budget: eqsat.optimize(kernel_matvec, budget=budget) for budget in budgets
        }
        plans = {budget: function.plan(x, y, v) for budget, function in functions.items()}
        plain_peak = max(plan.original_peak_bytes for plan in plans.values())
        if has_room_for(plain_peak):
            functions[PLAIN] = jax.jit(kernel_matvec)
        # Budgets that lead to the same program share its time.
        alike = {name: plans[name].source if name in plans else name for name in functions}
        distinct = {alike[name]: function for name, function in functions.items()}
        found = interleaved(distinct, (x, y, v), RUNS, LONG)
        timings = {name: found[alike[name]] for name in functions}
    plain = timings.get(PLAIN)
    rows = [
        Row(
            n,
            parse_budget(budget),
            plans[budget].peak_bytes,
            plain_peak,
            timings[budget].seconds,
            timings[budget].processor_seconds,
            plain and plain.seconds,
            plain and plain.processor_seconds,
            plain and difference(timings[budget].result, plain.result),
        )
        for budget in budgets
    ]
    for row in rows:
        print(
            f"n = {n:>9,}  budget {format_bytes(row.budget):>7}  peak {format_bytes(row.peak):>8}"
            f"  {seconds_text(row.seconds):>8}  plain {format_bytes(plain_peak):>8}"
            f"  {time_text(row.plain_seconds):>8}",
            flush=True,
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a table in Markdown."""
    heading = ["n", "budget", "eqsat peak", "plain peak", "eqsat time", "plain time", "eqsat / plain",
               "of processor time"]  # fmt: skip
    lines = []
    for row in rows:
        over = " (over)" if row.plain_peak > row.budget else ""
        lines.append(
            [
                f"{row.n:,}",
                format_bytes(row.budget),
                format_bytes(row.peak),
                format_bytes(row.plain_peak) + over,
                seconds_text(row.seconds),
                time_text(row.plain_seconds),
                ratio_text(row.seconds, row.plain_seconds),
                ratio_text(row.processor_seconds, row.plain_processor_seconds),
            ]
        )
    return markdown(heading, lines)


def figure(rows: Sequence[Row]) -> Figure:
    """Draws peak and time against n, a line per budget, with a cross where plain JAX first exceeds it."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9, 4), layout="constrained")
    peaks, times = drawn.subplots(1, 2)
    first = [row for row in rows if row.budget == rows[0].budget]
    points = [row.n for row in first]
    peaks.plot(points, [row.plain_peak / 1e6 for row in first], "s-", color="#b5482a", label="plain JAX")
    ran = [(row.n, row.plain_processor_seconds) for row in first if row.plain_seconds is not None]
    times.plot(*zip(*ran, strict=True), "s-", color="#b5482a", label="plain JAX, without a budget")
    # The largest budget comes first and has the thickest line, so that lines over one another all show.
    looks = (("#012a4a", 6), ("#2a6f97", 3.5), ("#8ecae6", 1.5))
    for (shade, width), budget in zip(
        looks, sorted({row.budget for row in rows}, reverse=True), strict=False
    ):
        some = [row for row in rows if row.budget == budget]
        style = {"color": shade, "linewidth": width, "markersize": width + 3}
        label = f"eqsat in {format_bytes(budget)}"
        peaks.plot(points, [row.peak / 1e6 for row in some], "o-", label=label, **style)
        times.plot(points, [row.processor_seconds for row in some], "o-", label=label, **style)
        peaks.axhline(budget / 1e6, color=shade, linewidth=0.8, linestyle="--")
        over = next((row for row in some if row.plain_peak > row.budget), None)
        if over is not None:
            peaks.plot([over.n], [over.plain_peak / 1e6], "x", color="black", markersize=11)
    peaks.plot([], [], "x", color="black", label="plain JAX exceeds a budget first")
    end = rows[-1]
    times.plot(
        points, [end.processor_seconds * (n / end.n) ** 2 for n in points], ":", color="gray", label="∝ n²"
    )
    peaks.set(ylabel="peak, MB (budgets dashed)")
    times.set(ylabel="processor time of a call, s")
    for axes in (peaks, times):
        axes.set(xlabel="n", xscale="log", yscale="log")
        axes.grid(color="0.9")
        axes.legend(fontsize=8)
    return drawn


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.kernel_matvec")
    parser.add_argument("--full", action="store_true", help="to a million points")
    parser.add_argument("--quick", action="store_true", help="at the size of a test")
    options = parser.parse_args(args)
    points = (300, 1_000, 2_000) if options.quick else FULL if options.full else POINTS
    budgets = ("2MB", "4MB") if options.quick else BUDGETS
    rows = [row for n in points for row in rows_of(n, budgets)]
    text = "## Kernel matrix times vector, float64\n\n" + table(rows)
    write("paper-kernel-matvec", rows, text, figure(rows), folder)
    return rows


if __name__ == "__main__":
    main()
