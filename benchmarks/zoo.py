"""Plans a folder of programs for a device that need not be present, each in a process of its own.

    python -m benchmarks.zoo FOLDER [--target h100] [--scale small] [--share 0.1] [--only NAME …] [--keep]

Each file of the folder has a function `build(scale)`, which returns a function and its arguments, and a
dictionary `META`, whose "scales" are a small and a big one. The budget holds arguments, results, and a share
of the temporaries that the target's compiler gives the function as written. The source of each plan is
compiled once more by itself. On a device that is present, both programs run, and their results are compared;
if they differ, both are compared with those in double precision.
Writes `benchmarks/results/zoo-<scale>-<target>-<cpu>.json` and `.md` after every program.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import eqsat
from benchmarks.fairness import are_fair
from benchmarks.fresh import ROOT
from benchmarks.records import markdown, read, write
from eqsat.backend.certificate import Certified, certify
from eqsat.reports.plan import Plan
from eqsat.support import cache_folder
from eqsat.targets.catalogue import find_target
from eqsat.targets.target import Target

SCALES = ("small", "big")

RUNS = 3
"""How often a program runs for the median of its time."""

LARGEST = 6_000_000_000
"""Bytes. Functions that need more as written are not run."""

TOLERANCE = 2e-3
"""Results differ above this relative difference, beside the largest entry."""


@dataclass
class Row:
    """The figures of one program. Peaks are in bytes; times of planning and compiling are of the processor.

    **Attributes:**

    - `outcome`: "planned", "as written" (it is left as it is, and fits), "refused", or how it failed.
    - `fixed`: arguments and results.
    - `plain`: the peak as written; `peak`: of the plan; `source`: of its source, compiled by itself.
    - `predicted_plain`, `predicted`: the peaks that planning predicted of the first two.
    - `loops`: the number of loops over chunks.
    - `compiling`, `planning`: seconds to compile the function as written, and to plan it.
    - `plain_run`, `run`: seconds of a call on the device, if it is present.
    - `error`: the largest difference of the results, relative to the largest entry.
    - `fair`: where that is above the tolerance, whether ours are about as near to the results in double
      precision as those of the function as written.
    """

    name: str
    outcome: str
    fixed: int = 0
    plain: int = 0
    budget: int = 0
    peak: int | None = None
    source: int | None = None
    predicted_plain: int | None = None
    predicted: int | None = None
    loops: int = 0
    compiling: float = 0.0
    planning: float = 0.0
    plain_run: float | None = None
    run: float | None = None
    error: float | None = None
    fair: bool | None = None
    message: str = ""

    @property
    def fits(self) -> bool:
        """Whether a program within the budget was found, by both figures."""
        return self.peak is not None and max(self.peak, self.source or 0) <= self.budget

    @property
    def agrees(self) -> bool:
        return self.error is None or self.error <= TOLERANCE or bool(self.fair)


def measured(file: Path, target: Target, scale: str, share: float) -> Row:
    """Plans the program of a file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function, arguments = module.build(module.META["scales"][SCALES.index(scale)])
    leaves, tree = jax.tree.flatten(tuple(arguments))
    leaves = [jax.numpy.asarray(leaf) for leaf in leaves]
    avals = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]

    def flat(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves)))

    row = Row(file.stem, "refused")
    began = time.process_time()
    plain = certify(flat, avals, target=target)
    row.compiling = time.process_time() - began
    row.fixed, row.plain = plain.fixed, plain.peak
    row.budget = plain.fixed + int(share * (plain.peak - plain.fixed))
    optimized = eqsat.optimize(function, budget=row.budget, target=target.name)
    began = time.process_time()
    try:
        plan = optimized.plan(*arguments)
    except eqsat.BudgetError as error:
        row.message = str(error).splitlines()[0]
        return row
    finally:
        row.planning = time.process_time() - began
    row.outcome = "planned" if plan.changed else "as written"
    row.peak, row.loops = plan.peak_bytes, len(plan.loops)
    row.predicted = plan.predicted_peak_bytes
    row.predicted_plain = plan.before.peak_bytes
    if plan.changed:
        try:
            row.source = _alone(plan, avals, target).peak
        except NameError as error:  # Text can't contain a callback.
            row.message = f"the source needs an object: {error}"
    if target.absent is None:
        ours = jax.tree.unflatten(tree, leaves)
        written = jax.jit(flat) if plain.peak <= LARGEST else None
        _run(row, lambda: optimized(*ours), written, flat, leaves)
    return row


def _alone(plan: Plan, avals: Sequence[Any], target: Target) -> Certified:
    """The source of a plan, compiled by itself."""
    scope: dict[str, Any] = {}
    exec(compile(plan.source, plan.title, "exec"), scope)
    constants = [jax.ShapeDtypeStruct(np.shape(value), value.dtype) for value in plan.constants]
    return certify(scope["optimized"], [*avals, *constants], target=target, options=plan.options)


def _run(
    row: Row,
    planned: Callable[[], Any],
    written: Callable[..., Any] | None,
    function: Callable[..., Any],
    leaves: Sequence[Any],
) -> None:
    """Runs a program as planned and, if it is not too large, as written, and compares the results.

    **Arguments:**

    - `function`: the function as written, of the leaves of its arguments; `written`: the same, compiled.
    """
    found, row.run = _timed(planned)
    if written is not None:
        expected, row.plain_run = _timed(lambda: written(*leaves))
        row.error = difference(expected, found)
        if row.error > TOLERANCE:
            row.fair = are_fair(function, written, leaves, jax.tree.leaves(found))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    result = jax.block_until_ready(call())
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return result, statistics.median(times)


def difference(expected: Any, found: Any) -> float:
    """The largest difference between arrays, relative to the largest entry of each.

    Of entries that are not finite, and of integers, the share that differs counts.
    """
    worst = 0.0
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        floating = jax.numpy.issubdtype(a.dtype, jax.numpy.inexact)
        kind = complex if jax.numpy.iscomplexobj(a) else float
        x, y = np.asarray(a).astype(kind), np.asarray(b).astype(kind)
        finite = np.isfinite(x) & np.isfinite(y) & floating
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return float("inf")
        if finite.any():
            top = np.abs(x[finite]).max()
            off = np.abs(x[finite] - y[finite]).max()
            worst = max(worst, float(off / top if top else off))
        elif x.size:
            worst = max(worst, float(np.mean((x != y) & ~(np.isnan(x) & np.isnan(y)))))
    return worst


def table(rows: Sequence[Row]) -> str:
    """The figures as Markdown, peaks in MB, and the counts."""
    heading = [
        "program",
        "outcome",
        "as written",
        "budget",
        "plan",
        "predicted",
        "loops",
        "compile, s",
        "plan, s",
        "speed",
        "error",
    ]

    def size(value: int | None) -> str:
        return "–" if value is None else f"{value / 1e6:,.1f}"

    lines = [
        [
            row.name,
            row.outcome + (f": {row.message}" if row.message else ""),
            size(row.plain),
            size(row.budget),
            size(row.peak),
            size(row.predicted),
            str(row.loops),
            f"{row.compiling:.1f}",
            f"{row.planning:.1f}",
            "–" if row.run is None or row.plain_run is None else f"{row.plain_run / row.run:.2f}",
            "–" if row.error is None else f"{row.error:.0e}" + (" (fair)" if row.fair else ""),
        ]
        for row in rows
    ]
    ratios = [row.planning / row.compiling for row in rows if row.compiling]
    speeds = [row.plain_run / row.run for row in rows if row.run and row.plain_run]
    counts = [
        f"{sum(row.fits and row.agrees for row in rows)} of {len(rows)} programs fit"
        + (" and agree" if speeds else ""),
    ]
    if ratios:
        counts.append(f"planning takes {statistics.median(ratios):.1f} × the time to compile, in the median")
    if speeds:
        counts.append(f"the geometric mean of the speeds is {statistics.geometric_mean(speeds):.2f}")
    return markdown(heading, lines) + "\n" + "; ".join(counts) + ".\n"


def cold() -> dict[str, str]:
    """The environment of a process that keeps no plans, and compiles modules once, as anywhere else."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, cache_folder.VARIABLE: ""}


def in_own_process(file: Path, target: str, scale: str, share: float, timeout: float) -> Row:
    """The figures of a program, by a process of its own that finds no plans, but compiled modules."""
    command = [sys.executable, "-m", "benchmarks.zoo", str(file), "--target", target, "--scale", scale]
    command += ["--share", str(share)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=cold(), capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return Row(file.stem, "timed out", message=f"after {timeout:.0f} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
    if not lines:
        return Row(file.stem, "died", message=done.stderr[-300:].replace("\n", " "))
    return Row(**json.loads(lines[-1]))


def alone(file: Path, target: str, scale: str, share: float) -> Row:
    """The figures of a program, by this process; what goes wrong is on record."""
    try:
        return measured(file, find_target(target), scale, share)
    except Exception as error:
        traceback.print_exc()
        return Row(file.stem, type(error).__name__, message=str(error).splitlines()[0] if str(error) else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=Path, help="a folder of programs, or one file")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--share", type=float, default=0.1, help="of the temporaries (default: %(default)s)")
    parser.add_argument("--only", nargs="+", help="names of programs")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a program (default: 600)")
    parser.add_argument("--keep", action="store_true", help="keep what is recorded of all other programs")
    options = parser.parse_args()
    if options.programs.is_file():
        warnings.simplefilter("ignore")
        row = alone(options.programs, options.target, options.scale, options.share)
        print(json.dumps(asdict(row)), flush=True)
        return
    name = f"zoo-{options.scale}-{options.target}"
    rows = {row["name"]: Row(**row) for row in read(name)} if options.keep else {}
    for file in sorted(options.programs.glob("*.py")):
        if options.only and file.stem not in options.only:
            continue
        row = in_own_process(file, options.target, options.scale, options.share, options.timeout)
        print(row, flush=True)
        rows[file.stem] = row
        listed = [rows[key] for key in sorted(rows)]
        write(name, listed, table(listed))
    print(table([rows[key] for key in sorted(rows)]))


if __name__ == "__main__":
    main()
