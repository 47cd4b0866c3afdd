"""The common part: cases, their measurement, and their table."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax

import eqsat
from benchmarks.chunking import cpu_name
from eqsat.amounts import format_bytes, parse_budget
from eqsat.device_memory import free_host_bytes
from examples.comparison import in_double_precision
from examples.measure import difference, plain_peak, seconds_of, seconds_text

PLAIN = "plain JAX"
PLAIN_SHARE = 0.5
"""What needs more than this share of the free memory is not run."""


MOST_LOOPS = 4
"""So many are in the table; the JSON has all."""


@dataclass(frozen=True)
class Case:
    """A program, the budgets that it is to run in, and other ways to write it.

    **Attributes:**

    - `by_hand`: functions of the same arguments that give the same results, by name.
    - `reference`: what `part` of the result should be, from the arguments; by default the program in float64.
    - `rules`: files of rules beyond the shipped ones.
    """

    title: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    budgets: tuple[str, ...]
    by_hand: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    part: Callable[[Any], Any] = lambda result: result
    rules: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Row:
    """One way to compute a case.

    **Attributes:**

    - `peak`: bytes; certified, or of plain and hand-written programs, under options that count every buffer.
    - `seconds`, `ratio`: the median of some calls, and that of its time relative to plain JAX's, or if that
      was not run, to that of the first way that was; None if it was not run for want of memory.
    - `work_ratio`: the same for processor time, which other processes disturb less.
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
    """All ways to compute a case, timed in turns.

    Raises `eqsat.BudgetError` if nothing is found for a budget, and `AssertionError` if a peak is over one.
    """
    arguments = case.arguments()
    peaks = {PLAIN: plain_peak(case.function, arguments)}
    functions: dict[str, Callable[..., Any]] = {PLAIN: jax.jit(case.function)}
    loops: dict[str, list[str]] = {}
    for name, function in case.by_hand.items():
        peaks[name] = plain_peak(function, arguments)
        functions[name] = _compiled(function, arguments)
    for budget in case.budgets:
        optimized = eqsat.optimize(case.function, budget=budget, rules=case.rules)
        plan = optimized.plan(*arguments)
        assert plan.peak_bytes <= parse_budget(budget), "over budget: this is a bug, please report it"
        name = f"eqsat, {format_bytes(parse_budget(budget))}"
        peaks[name], functions[name] = plan.peak_bytes, optimized
        loops[name] = [str(loop) for loop in plan.loops]
    most = PLAIN_SHARE * free_host_bytes()
    run = {name: function for name, function in functions.items() if peaks[name] < most}
    if case.reference is None:
        truth = case.part(in_double_precision(case.function)(*arguments))
    else:
        truth = case.reference(*arguments)
    errors = {name: difference(case.part(function(*arguments)), truth) for name, function in run.items()}
    times = _timed(run, arguments, runs)
    first = next(iter(times.values()))
    rows = []
    for name, peak in peaks.items():
        figures: tuple[float | None, ...] = (None, None, None)
        if name in run:
            wall, work = (_ratio(first, times[name], clock) for clock in (0, 1))
            figures = (statistics.median(wall for wall, _ in times[name]), wall, work)
        rows.append(Row(case.title, name, peak, *figures, errors.get(name), loops.get(name, [])))
    return rows


def _compiled(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]:
    """Under XLA's options or eqsat's, whichever are faster: programs are compared, and not compilers."""
    ways = [jax.jit(function, compiler_options=options) for options in (None, eqsat.compiler_options())]
    for way in ways:
        jax.block_until_ready(way(*arguments))
    return min(ways, key=lambda way: seconds_of(way, arguments))


Times = list[tuple[float, float]]
"""Of several calls, each by the clock on the wall and by the processor's, in seconds."""


def _timed(
    functions: Mapping[str, Callable[..., Any]], arguments: Sequence[Any], runs: int
) -> dict[str, Times]:
    """In turns, so that a busy machine is busy for all."""
    times: dict[str, Times] = {name: [] for name in functions}
    for _ in range(runs):
        for name, function in functions.items():
            wall, work = time.perf_counter(), time.process_time()
            jax.block_until_ready(function(*arguments))
            times[name].append((time.perf_counter() - wall, time.process_time() - work))
    return times


def _ratio(base: Times, times: Times, clock: int) -> float:
    return statistics.median(b[clock] / a[clock] for a, b in zip(base, times, strict=True))


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| program | way | peak | time | ratio | work | error | loops |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.seconds is None:
            figures = ["not run", "–", "–", "–"]
        else:
            ratios = [f"{ratio:.2g}" for ratio in (row.ratio, row.work_ratio)]
            figures = [seconds_text(row.seconds), *ratios, f"{row.error:.1e}"]
        loops = row.loops[:MOST_LOOPS] + ["…"] * (len(row.loops) > MOST_LOOPS)
        cells = [row.case, row.way, format_bytes(row.peak), *figures, "; ".join(loops)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(name: str, description: str, cases: Sequence[Case], quick: Sequence[Case]) -> None:
    """The command line of a benchmark; without --quick it writes `benchmarks/results/beyond-NAME-CPU.*`."""
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
        path = Path(__file__).parent.parent / "results" / f"beyond-{name}-{cpu_name()}.json"
        record = {"jax": jax.__version__, "cpu": cpu_name(), "rows": [asdict(row) for row in rows]}
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        path.with_suffix(".md").write_text(table(rows) + "\n")
        print(f"written to {path.relative_to(Path.cwd())}, and .md")
