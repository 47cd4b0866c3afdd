"""What the benchmarks of this folder share: cases, their measurement, and their table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

import eqsat
from benchmarks.loops import fastest
from benchmarks.records import RESULTS, markdown, write
from eqsat.support.units import format_bytes, parse_budget
from examples.comparison import in_double_precision
from examples.measure import difference, has_room_for, interleaved, plain_peak, seconds_text

PLAIN = "plain JAX"
MOST_LOOPS = 4
"""At most this many loops of a plan are in the table. The JSON has all of them."""


@dataclass(frozen=True)
class Case:
    """A program, the budgets that it is to run in, and other ways to write it.

    **Attributes:**

    - `by_hand`: other functions, by name, that compute the same results from the same arguments.
    - `reference`: computes from the arguments what `part` of the result should be. By default, it is the
      program in float64.
    - `rules`: files of rules beyond the shipped ones.
    - `accuracy`: the accuracy class, as for `eqsat.optimize`.
    """

    title: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    budgets: tuple[str, ...]
    by_hand: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    part: Callable[[Any], Any] = lambda result: result
    rules: tuple[Path, ...] = ()
    accuracy: str = "reassociates"


@dataclass(frozen=True)
class Row:
    """The results for one way to compute a case.

    **Attributes:**

    - `peak`: the peak in bytes. It is certified; for plain and hand-written programs, it is that under
      options that count every buffer.
    - `seconds`: the median time of several calls, or None if there is too little memory to run it.
    - `ratio`: the median of its time relative to plain JAX's, or if that was not run, to that of the
      first way that was.
    - `work_ratio`: the same ratio of processor times, which other processes disturb less.
    - `error`: the largest difference from the reference, relative to the largest entry.
    """

    case: str
    way: str
    peak: int
    seconds: float | None
    ratio: float | None
    work_ratio: float | None
    error: float | None
    loops: list[str]


def measure(case: Case, runs: int) -> list[Row]:
    """Measures all ways to compute a case, timed in turns.

    **Raises:** `eqsat.BudgetError` if nothing fits a budget, and `AssertionError` if a peak exceeds one.
    """
    arguments = case.arguments()
    peaks = {PLAIN: plain_peak(case.function, arguments)}
    functions: dict[str, Callable[..., Any]] = {PLAIN: jax.jit(case.function)}
    loops: dict[str, list[str]] = {}
    for name, function in case.by_hand.items():
        peaks[name] = plain_peak(function, arguments)
        functions[name] = fastest({name: function}, arguments).compiled
    for budget in case.budgets:
        optimized = eqsat.optimize(case.function, budget=budget, rules=case.rules, accuracy=case.accuracy)
        plan = optimized.plan(*arguments)
        assert plan.peak_bytes <= parse_budget(budget), "over budget: this is a bug, please report it"
        name = f"eqsat, {format_bytes(parse_budget(budget))}"
        peaks[name], functions[name] = plan.peak_bytes, optimized
        loops[name] = [str(loop) for loop in plan.loops]
    run = {name: function for name, function in functions.items() if has_room_for(peaks[name])}
    if case.reference is None:
        truth = case.part(in_double_precision(case.function)(*arguments))
    else:
        truth = case.reference(*arguments)
    timings = interleaved(run, arguments, runs)
    first = next(iter(timings.values()))
    rows = []
    for name, peak in peaks.items():
        figures: tuple[float | None, ...] = (None, None, None, None)
        if name in run:
            timing = timings[name]
            figures = (
                timing.seconds,
                timing.relative_to(first),
                timing.processor_relative_to(first),
                difference(case.part(timing.result), truth),
            )
        rows.append(Row(case.title, name, peak, *figures, loops.get(name, [])))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a table in Markdown."""
    lines = []
    for row in rows:
        if row.seconds is None:
            figures = ["not run", "–", "–", "–"]
        else:
            ratios = [f"{ratio:.2g}" for ratio in (row.ratio, row.work_ratio)]
            figures = [seconds_text(row.seconds), *ratios, f"{row.error:.1e}"]
        loops = row.loops[:MOST_LOOPS] + ["…"] * (len(row.loops) > MOST_LOOPS)
        lines.append([row.case, row.way, format_bytes(row.peak), *figures, "; ".join(loops)])
    return markdown(["program", "way", "peak", "time", "ratio", "work", "error", "loops"], lines)


def main(name: str, description: str, cases: Sequence[Case], quick: Sequence[Case]) -> None:
    """Runs a benchmark's command line; without --quick, it writes `benchmarks/results/beyond-NAME-CPU.*`."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.beyond.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="small cases; writes nothing")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each (default 5)")
    options = parser.parse_args()
    rows: list[Row] = []
    for case in quick if options.quick else cases:
        found = measure(case, options.runs)
        print(table(found), flush=True)
        rows += found
    if not options.quick:
        write(f"beyond-{name}", rows, table(rows))
        print(f"written to {RESULTS}")
