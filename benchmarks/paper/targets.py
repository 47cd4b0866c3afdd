"""Plans the paper's programs at the paper's sizes for GPUs, by shapes alone: nothing is run.

    python -m benchmarks.paper.targets [--target v100 a100 h100] [--only NAME] [--seconds 120] [--limit 600]

The programs are a kernel matrix times vectors, the ten nearest neighbours of 10,000 queries, a training
step of sparse GP regression, a transformer's forward pass and chains of matrices. Each is compiled as it is,
planned for what JAX lets programs have of the device's memory, and, if it fits as it is, planned within a
tenth of its temporaries. Each has a process of its own, so that a crash or a run beyond the limit ends one
program only, and is on record. Writes `benchmarks/results/paper-targets-<cpu>.json` and `.md` after every
program, where earlier rows of other targets and programs are kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import eqsat
from benchmarks.fresh import ROOT
from benchmarks.records import RESULTS, cpu_name, markdown, write
from eqsat.backend.certificate import certify
from eqsat.reports.plan import Plan
from eqsat.support.units import format_bytes, format_seconds
from eqsat.targets.catalogue import find_target

NAME = "paper-targets"
TARGETS = ("v100", "a100", "h100")
SHARE = 0.1
"""The share of plain's temporaries that the tighter of the two budgets leaves."""

QUERIES = 10_000
BATCH, WIDTH, HEADS, BLOCKS, VOCABULARY = 64, 512, 8, 4, 1_000
LONGEST = 5_000
"""The largest side of the matrices of a chain."""

DATASETS = {"3droad": (434_874, 3), "houseelectric": (2_049_280, 11)}
"""The points and dimensions of the data sets of sparse GPs."""

TRAINING = (2, 3)
"""The share of these points that a training takes, as a fraction."""

NEIGHBOURS = (
    *(("random", metric, n, d) for metric in ("L2", "L1", "cosine")
      for n in (10_000, 1_000_000, 10_000_000) for d in (3, 10, 100)),
    *(("(Fashion-)MNIST", metric, 60_000, 784) for metric in ("L2", "L1", "cosine")),
    *(("GloVe", metric, 1_180_000, d) for metric in ("L2", "L1", "cosine") for d in (50, 100, 200)),
)  # fmt: skip

HEADING = """## The paper's programs at the paper's sizes: compiled for, not run on, {targets}

Peaks are arguments, results and temporaries by XLA's buffer assignment for the device, with the workspaces
of libraries. "In the device" is planned for what JAX lets programs have of its memory (budget None), "in a
tenth" for arguments, results and a tenth of plain's temporaries, where plain fits. Times are predicted by
eqsat's machine model, except those of planning.

"""

Array = Any
Shapes = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A program at one size.

    **Attributes:**

    - `made`: makes the function and the shapes of its arguments.
    - `double`: whether it is in float64.
    """

    program: str
    size: str
    made: Callable[[], tuple[Callable[..., Any], Shapes]]
    double: bool = False

    @property
    def title(self) -> str:
        return f"{self.program}, {self.size}"


@dataclass(frozen=True)
class Planning:
    """What a planning within a budget came to.

    **Attributes:**

    - `peak`: the certified peak in bytes, or None if there is no plan.
    - `changed`: whether the program was rewritten.
    - `loops`: the loops over chunks, as text.
    - `before`, `after`: the predicted seconds of a call as written and as planned.
    - `seconds`: the time that planning took.
    - `stopped`: why the search for a program ended.
    - `warned`: the warnings of planning: that it failed, but the program fits as it is.
    - `refused`: why there is no plan; "" if there is one.
    """

    budget: int | None
    peak: int | None = None
    changed: bool = False
    loops: list[str] = field(default_factory=list)
    before: float | None = None
    after: float | None = None
    seconds: float | None = None
    stopped: str = ""
    warned: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Row:
    """The results for one program at one size on one target, in bytes.

    **Attributes:**

    - `device`: what programs may have of the device's memory.
    - `fixed`: the arguments and the results.
    - `plain`: the peak of the program as it is, or None if it was not compiled.
    - `whole`, `tenth`: what planning came to for the device, and within a tenth of plain's temporaries.
    - `crash`: how the program's process ended, if not well.
    """

    target: str
    program: str
    size: str
    device: int
    fixed: int | None = None
    plain: int | None = None
    whole: Planning | None = None
    tenth: Planning | None = None
    crash: str = ""

    @property
    def plain_fits(self) -> bool | None:
        return None if self.plain is None else self.plain <= self.device

    @property
    def plan_fits(self) -> bool:
        peak = self.whole and self.whole.peak
        return peak is not None and peak <= self.device


# Programs.


def cases() -> list[Case]:
    """Returns all programs at all sizes."""
    return [*_kernels(), *_chains(), *_gaussian_processes(), *_transformers(), *_neighbours()]


def _kernels() -> Iterator[Case]:
    """Yields the paper's product with one vector, which XLA for GPUs fuses, and that with eight."""
    for columns, sizes in (
        (1, (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)),
        (8, (10_000, 100_000, 1_000_000)),
    ):
        for n in sizes:

            def made(n: int = n, columns: int = columns) -> tuple[Callable[..., Any], Shapes]:
                from examples.programs import kernel_matvec

                sides = ((n, 1), (n, 1), (n, columns))
                return kernel_matvec, tuple(jax.ShapeDtypeStruct(side, np.float64) for side in sides)

            program = "Kernel matvec" if columns == 1 else f"Kernel times {columns} vectors"
            yield Case(f"{program}, float64", f"n = {n:,}", made, double=True)


def _chains() -> Iterator[Case]:
    for count in (4, 8, 16, 36, 72):

        def made(count: int = count) -> tuple[Callable[..., Any], Shapes]:
            from benchmarks.paper.chains import chain

            sides = np.random.default_rng(count).integers(1, LONGEST, size=count + 1, endpoint=True).tolist()
            pairs = itertools.pairwise(sides)
            return chain, tuple(jax.ShapeDtypeStruct(pair, np.float32) for pair in pairs)

        yield Case("Matrix chain", f"{count} matrices", made)


def _neighbours() -> Iterator[Case]:
    for data, metric, n, d in NEIGHBOURS:

        def made(metric: str = metric, n: int = n, d: int = d) -> tuple[Callable[..., Any], Shapes]:
            from benchmarks.paper.knn_methods import FUNCTIONS

            sides = ((QUERIES, d), (n, d))
            return FUNCTIONS[metric], tuple(jax.ShapeDtypeStruct(side, np.float32) for side in sides)

        yield Case(f"Nearest neighbours, {metric}", f"{data} {n:,} × {d}", made)


def _transformers() -> Iterator[Case]:
    for length in (250, 500, 1_000, 2_000, 3_000, 5_000, 7_000):

        def made(length: int = length) -> tuple[Callable[..., Any], Shapes]:
            from examples.encoder import programs

            # The batch is that of the tokens, which the function takes whatever it is.
            (forward, (parameters, _)), _ = programs(8, WIDTH, HEADS, BLOCKS, VOCABULARY)
            return forward, (shapes_of(parameters), jax.ShapeDtypeStruct((BATCH, length), np.int32))

        yield Case(f"Transformer of {BLOCKS} blocks, forward", f"{BATCH} × {length:,} tokens", made)


def _gaussian_processes() -> Iterator[Case]:
    for name, (n, d) in DATASETS.items():
        points = n * TRAINING[0] // TRAINING[1]
        for inducing in (1_000, 2_000, 4_000, 10_000):

            def made(
                n: int = points, d: int = d, inducing: int = inducing
            ) -> tuple[Callable[..., Any], Shapes]:
                from benchmarks.paper.gp_model import model

                found = model("Matérn-3/2", np.zeros((inducing, d)))
                data = (jax.ShapeDtypeStruct(side, np.float64) for side in ((n, d), (n,)))
                return found.value_and_gradient, (shapes_of(found.parameters), *data)

            size = f"{name} {points:,} × {d}, M = {inducing:,}"
            yield Case("Sparse GP training step, float64", size, made, double=True)


def shapes_of(tree: Any) -> Any:
    """Returns the shapes and dtypes of the arrays of a pytree."""
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), tree)


# Planning.


def alone(target: str, case: Case, seconds: float) -> Iterator[Row]:
    """Yields what is known of a program as soon as it is: as it is, planned, and planned within a tenth."""
    with jax.enable_x64(case.double):
        function, arguments = case.made()
        found = find_target(target)
        row = Row(target, case.program, case.size, found.usable_memory or 0)
        leaves, structure = jax.tree.flatten(arguments)

        def flat(*values: Array) -> list[Array]:
            return jax.tree.leaves(function(*structure.unflatten(values)))

        try:
            plain = certify(flat, leaves, draft=True, target=found)
            row = replace(row, fixed=plain.fixed, plain=plain.peak)
        except Exception as error:
            row = replace(row, crash=f"compiling as it is: {described(error)}")
        yield row
        row = replace(row, whole=planned(function, arguments, target, None, seconds))
        yield row
        if row.plain_fits and row.plain is not None and row.fixed is not None:
            budget = row.fixed + int(SHARE * (row.plain - row.fixed))
            yield replace(row, tenth=planned(function, arguments, target, budget, seconds))


def planned(
    function: Callable[..., Any], arguments: Shapes, target: str, budget: int | None, seconds: float
) -> Planning:
    """Returns what planning came to, be it a refusal or a crash."""
    began = time.perf_counter()
    optimized = eqsat.optimize(function, budget=budget, target=target, planning_seconds=seconds)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            plan: Plan = optimized.plan(*arguments)
    except Exception as error:
        return Planning(budget, seconds=time.perf_counter() - began, refused=described(error))
    said = {str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)}
    return Planning(
        plan.budget_bytes,
        plan.peak_bytes,
        plan.changed,
        [str(loop) for loop in plan.loops],
        plan.original_seconds,
        plan.predicted_seconds,
        time.perf_counter() - began,
        plan.stop_reason,
        "; ".join(sorted(said)),
    )


def described(error: Exception) -> str:
    """Returns the type of an error and its message in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def in_own_process(target: str, number: int, seconds: float, limit: float) -> Row:
    """Returns what a process of its own found out about a program before it ended."""
    case = cases()[number]
    command = [sys.executable, "-m", "benchmarks.paper.targets", "--alone", target, str(number)]
    command += ["--seconds", str(seconds)]
    crash = ""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit)
        output = done.stdout
        if done.returncode:
            words = (done.stderr.strip().splitlines() or [""])[-1]
            crash = f"the process ended with {done.returncode}: {words[:300]}"
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout.decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
        crash = f"killed after {limit:g} s"
    lines = [line for line in output.splitlines() if line.startswith("{") and line.endswith("}")]
    if not lines:
        return Row(target, case.program, case.size, find_target(target).usable_memory or 0, crash=crash)
    row = row_from(json.loads(lines[-1]))
    return replace(row, crash="; ".join(filter(None, (row.crash, crash))))


def row_from(record: dict[str, Any]) -> Row:
    """Returns a row from what JSON has of it."""
    plans = {name: record[name] and Planning(**record[name]) for name in ("whole", "tenth")}
    return Row(**{**record, **plans})


def earlier(folder: Path) -> list[Row]:
    """Returns the rows that were written before, if any."""
    path = folder / f"{NAME}-{cpu_name()}.json"
    return [row_from(record) for record in json.loads(path.read_text())["rows"]] if path.exists() else []


# The table.


def text_of(rows: Sequence[Row]) -> str:
    """Returns a table for each target and one of what was refused, in Markdown."""
    targets = list(dict.fromkeys(row.target for row in rows))
    parts = [HEADING.format(targets=", ".join(targets))]
    for target in targets:
        some = [row for row in rows if row.target == target]
        fit = (sum(bool(row.plain_fits) for row in some), sum(row.plan_fits for row in some))
        parts += [
            f"### {target}: {format_bytes(some[0].device)} for programs\n\n",
            table(some),
            f"\nOf {len(some)}, {fit[0]} fit as they are, and {fit[1]} as planned.\n\n",
        ]
    refused = [line for row in rows for line in _refusals(row)]
    if refused:
        heading = ["target", "program", "size", "within", "message"]
        parts += ["### Refusals and crashes\n\n", markdown(heading, refused)]
    return "".join(parts)


def table(rows: Sequence[Row]) -> str:
    """Returns the rows of one target as a table in Markdown."""
    heading = ["program", "size", "plain peak", "peak in the device", "loops", "time before", "time after",
               "planning", "peak in a tenth", "its loops", "its time", "its planning"]  # fmt: skip
    lines = []
    for row in rows:
        whole, tenth = row.whole, row.tenth
        over = " (over)" if row.plain_fits is False else ""
        plain = "–" if row.plain is None else format_bytes(row.plain) + over
        before = whole and whole.before
        lines.append(
            [row.program, row.size, plain, _peak(whole), _loops(whole), _time(before),
             _time(whole and whole.after), _time(whole and whole.seconds),
             _peak(tenth), _loops(tenth), _time(tenth and tenth.after),
             _time(tenth and tenth.seconds)]
        )  # fmt: skip
    return markdown(heading, lines)


def _peak(planning: Planning | None) -> str:
    if planning is None:
        return "–"
    if planning.peak is None:
        return "refused" if planning.refused.startswith(eqsat.BudgetError.__name__) else "crashed"
    return format_bytes(planning.peak) + ("" if planning.changed else " (as it is)")


def _loops(planning: Planning | None) -> str:
    return "–" if planning is None or planning.peak is None else str(len(planning.loops))


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else format_seconds(seconds)


def _refusals(row: Row) -> Iterator[list[str]]:
    plannings = (("the device", row.whole), ("a tenth", row.tenth))
    messages = [(within, found.refused or found.warned) for within, found in plannings if found]
    for within, message in [*messages, ("–", row.crash)]:
        if message:
            yield [row.target, row.program, row.size, within, message.replace("|", "\\|")[:1_000]]


def line_of(row: Row) -> str:
    """Returns a row as a line of text."""
    plain = "–" if row.plain is None else format_bytes(row.plain)
    found = f"{row.target:<5} {row.program}, {row.size}: plain {plain}"
    for name, planning in (("device", row.whole), ("tenth", row.tenth)):
        if planning is not None:
            found += f"; {name} {_peak(planning)}, {_loops(planning)} loops,"
            found += f" {_time(planning.before)} -> {_time(planning.after)},"
            found += f" planned in {_time(planning.seconds)} {planning.refused[:200]}"
    return f"{found} {row.crash}".rstrip()


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.targets")
    parser.add_argument("--target", nargs="+", default=TARGETS, metavar="NAME")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs and sizes that contain this")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="of each planning (default: %(default)s)"
    )
    parser.add_argument("--limit", type=float, default=600.0, help="of each process (default: %(default)s)")
    parser.add_argument("--alone", nargs=2, metavar=("TARGET", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    known = cases()
    if options.alone:
        for row in alone(options.alone[0], known[int(options.alone[1])], options.seconds):
            print(json.dumps(asdict(row)), flush=True)
        return []
    for target in options.target:
        for number, case in enumerate(known):
            if options.only in case.title:
                row = in_own_process(target, number, options.seconds, options.limit)
                print(line_of(row), flush=True)
                rows = merged(earlier(folder), row, known)
                write(NAME, rows, text_of(rows), folder=folder)
    rows = earlier(folder)
    print(text_of(rows))
    return rows


def merged(rows: Sequence[Row], found: Row, known: Sequence[Case]) -> list[Row]:
    """Returns rows with a new one, by target, and then in the order of the programs."""
    places = {(case.program, case.size): place for place, case in enumerate(known)}
    by_name = {(row.target, row.program, row.size): row for row in [*rows, found]}
    some = [row for row in by_name.values() if (row.program, row.size) in places]
    targets = list(dict.fromkeys([*TARGETS, *(row.target for row in some)]))
    return sorted(some, key=lambda row: (targets.index(row.target), places[row.program, row.size]))


if __name__ == "__main__":
    main()
