"""Runs programs on a GPU or a TPU: as written, as planned and with a loop by hand, in turns.

    python -m benchmarks.accelerators --make PLANS --target h100    # where there is no device: plans alone
    python -m benchmarks.accelerators [--plans PLANS]               # on the device

Budgets are arguments, results and a share of the temporaries that XLA gives the program as written. Plans
from files are compiled and certified again on the device; without files, programs are planned there. Each
program has a process of its own, and each plan one more that runs nothing else, for the peak by the
allocator's own statistics. Errors are relative to the largest entry, of a reference whose products have full
precision. Writes `benchmarks/results/accelerators-<device>.json` and `.md` after every program.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax

import eqsat
from benchmarks.accelerators.programs import PROGRAMS, Program
from benchmarks.accelerators.table import Row, table
from benchmarks.fresh import ROOT
from benchmarks.records import device_name, write
from benchmarks.zoo import difference
from eqsat.backend.certificate import certify
from eqsat.targets.calibration import default_target
from eqsat.targets.catalogue import find_target
from eqsat.targets.target import Target

SHARES = (0.1, 0.01)
RUNS = 9
OWN_OPTIONS = "plan, XLA's options"

LONG = 2.0
"""Seconds of calls after which a form is not called again, if it has been called three times."""

DIVISORS = (1, 4)
"""Loops by hand have chunks of a budget's share of the axis, or of a quarter of it if these do not fit."""

MOST_AT_ONCE = 8
"""Processes that look at the allocator's peak at the same time."""

POOLS = 0.8
"""The share of the device's memory that they have together."""

WITHOUT_TUNING = "--xla_gpu_autotune_level=0"
"""XLA's flag against trying out kernels, which takes memory of its own."""


@dataclass
class Runnable:
    row: Row
    call: Callable[[], Any]


def _stem(number: int, share: float) -> str:
    return f"{number:02d}-{share}"


def _plain_peak(program: Program, small: bool, target: Target) -> tuple[int, int]:
    """Bytes as written: of arguments and results, and of the temporaries."""
    plain = certify(
        lambda *leaves: jax.tree.leaves(program.function(*leaves)), program.shapes(small), target=target
    )
    return plain.fixed, plain.peak - plain.fixed


def make(folder: Path, name: str, numbers: Sequence[int], small: bool) -> None:
    """Plans programs for a target, and writes the plans to files."""
    folder.mkdir(exist_ok=True)
    target = find_target(name)
    for number in numbers:
        program = PROGRAMS[number]
        fixed, temporaries = _plain_peak(program, small, target)
        for share in SHARES:
            budget = fixed + int(share * temporaries)
            began = time.perf_counter()
            try:
                plan = eqsat.optimize(program.function, budget=budget, target=name).plan(
                    *program.shapes(small)
                )
            except eqsat.BudgetError as error:
                print(f"{program.name}: {str(error).splitlines()[0]}", flush=True)
                (folder / f"{_stem(number, share)}.refused").write_text(str(error))
                continue
            plan.save(folder / f"{_stem(number, share)}.plan")
            print(
                f"{program.name}: {plan.peak_bytes:,} of {budget:,}, {len(plan.loops)} loops, estimated"
                f" {plan.predicted_seconds * 1e3:.2f} ms, as written {plan.original_seconds * 1e3:.2f} ms;"
                f" planned in {time.perf_counter() - began:.1f} s",
                flush=True,
            )


def measured(number: int, plans: Path | None, small: bool) -> list[Row]:
    """Runs a program in all forms, in turns."""
    program = PROGRAMS[number]
    arguments = jax.device_put(program.arguments(small))
    forms = [_as_written(program, arguments, default_target())]
    fixed, temporaries = _fixed_and_temporaries(forms[0].row, arguments, program)
    refused: list[Row] = []

    def planned(share: float) -> list[Runnable]:
        budget = fixed + int(share * temporaries)
        try:
            return _planned(program, arguments, share, budget, number, plans)
        except Exception as error:
            refused.append(Row(program.name, "plan", share, budget, note=_said(error)))
            return []

    def by_hand(share: float) -> Runnable | None:
        return _by_hand(program, arguments, share, fixed + int(share * temporaries), small)

    # Loops by hand are compiled meanwhile; plans are made or loaded one after another.
    with ThreadPoolExecutor(len(SHARES)) as pool:
        rivals = [pool.submit(by_hand, share) for share in SHARES] if program.by_hand else []
        forms += [form for share in SHARES for form in planned(share)]
        forms += filter(None, (rival.result() for rival in rivals))
    return [*_timed(forms, _reference(program, arguments, small)), *refused]


def _said(error: Exception) -> str:
    traceback.print_exc()
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _reference(program: Program, arguments: Any, small: bool) -> Any:
    """The results with full precision in products, as written or, if that does not fit, by hand."""
    with jax.default_matmul_precision("highest"):
        try:
            return jax.device_get(jax.jit(program.function)(*arguments))
        except jax.errors.JaxRuntimeError:
            if program.by_hand is None:
                raise
            return jax.device_get(jax.jit(program.by_hand(program.length(small) // 100))(*arguments))


def _timed(forms: Sequence[Runnable], expected: Any) -> list[Row]:
    """Compares the results of all forms, and times those that run."""
    working = []
    for form in forms:
        try:
            form.row.error = difference(expected, jax.device_get(form.call()))
            working.append(form)
        except Exception as error:
            form.row.note += _said(error)
    times: list[list[float]] = [[] for _ in working]
    for _ in range(RUNS):
        for form, found in zip(working, times, strict=True):
            if sum(found) > LONG and len(found) > 2:
                continue
            began = time.perf_counter()
            jax.block_until_ready(form.call())
            found.append(time.perf_counter() - began)
    for form, found in zip(working, times, strict=True):
        form.row.seconds, form.row.fastest = statistics.median(found), min(found)
    return [form.row for form in forms]


def _fixed_and_temporaries(row: Row, arguments: Any, program: Program) -> tuple[int, int]:
    fixed = sum(leaf.nbytes for leaf in jax.tree.leaves(arguments))
    results = jax.eval_shape(program.function, *arguments)
    fixed += sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(results))
    assert row.peak is not None
    return fixed, row.peak - fixed


def _peak(compiled: Any) -> int:
    found = compiled.memory_analysis()
    return int(
        found.argument_size_in_bytes
        + found.output_size_in_bytes
        + found.temp_size_in_bytes
        - found.alias_size_in_bytes
    )


def _as_written(program: Program, arguments: Any, target: Target) -> Runnable:
    """As JAX compiles it, with XLA's own options; the peak is under options that count every buffer."""
    compiled = jax.jit(program.function).lower(*arguments).compile()
    plain = certify(
        lambda *leaves: jax.tree.leaves(program.function(*leaves)),
        [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in arguments],
        draft=True,
        target=target,
    )
    row = Row(program.name, "as written", peak=plain.peak, stated=_peak(compiled), estimate=plain.seconds)
    return Runnable(row, lambda: compiled(*arguments))


def _planned(
    program: Program, arguments: Any, share: float, budget: int, number: int, plans: Path | None
) -> list[Runnable]:
    """The plan as it is run, and its source as XLA compiles it with options of its own."""
    began = time.perf_counter()
    run: Any
    if plans is not None:
        file = plans / f"{_stem(number, share)}.plan"
        if not file.exists():
            raise eqsat.EqsatError("it was not planned")
        run = eqsat.load(file, program.function)
        plan = run.plan
        stated = eqsat.Plan.from_json(json.dumps(json.loads(file.read_text())["plan"])).peak_bytes
        row = Row(program.name, "plan", share, plan.budget_bytes, run.peak_bytes, stated)
        row.note = "planned again" if run.replanned else ""
        row.estimate = run.seconds
    else:
        run = eqsat.optimize(program.function, budget=budget)
        plan = run.plan(*arguments)
        row = Row(program.name, "plan", share, budget, plan.peak_bytes)
    row.planning = time.perf_counter() - began
    if row.estimate is None and plan.estimated:
        row.estimate = plan.predicted_seconds
    row.loops = len(plan.loops)
    scope: dict[str, Any] = {}
    exec(compile(plan.source, plan.title, "exec"), scope)
    inputs = [*jax.tree.leaves(arguments), *plan.constants]
    compiled = jax.jit(scope["optimized"]).lower(*inputs).compile()
    other = Row(program.name, OWN_OPTIONS, share, row.budget, _peak(compiled), loops=row.loops)
    return [Runnable(row, lambda: run(*arguments)), Runnable(other, lambda: compiled(*inputs))]


def _by_hand(program: Program, arguments: Any, share: float, budget: int, small: bool) -> Runnable | None:
    """The loop by hand with the longest of a few lengths of chunks that fits."""
    assert program.by_hand is not None
    for divisor in DIVISORS:
        chunk = max(int(share * program.length(small)) // divisor, 1)
        compiled = jax.jit(program.by_hand(chunk)).lower(*arguments).compile()
        peak = _peak(compiled)
        if peak <= budget or divisor == DIVISORS[-1]:
            row = Row(program.name, "by hand", share, budget, peak, loops=chunk)
            row.note = "" if peak <= budget else "exceeds the budget"
            return Runnable(row, partial(compiled, *arguments))
    return None


def used(number: int, share: float, plans: Path, small: bool) -> int:
    """The allocator's peak while a plan runs, and nothing else."""
    arguments = jax.device_put(PROGRAMS[number].arguments(small))
    jax.block_until_ready(arguments)
    run = eqsat.load(plans / f"{_stem(number, share)}.plan")
    jax.block_until_ready(run(*arguments))
    return int((jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0))


def _child(arguments: Sequence[str], seconds: float, **environment: str) -> tuple[str, str]:
    """The last line that a run of this module prints, or why there is none."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.accelerators", *arguments],
            cwd=ROOT,
            env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"given up after {seconds:.0f} s"
    sys.stderr.write(done.stderr[-3000:] if done.returncode else "")
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return "", f"failed with {done.returncode}: {done.stderr[-200:]}"
    return lines[-1], ""


def peaks_used(
    folder: Path, numbers: Sequence[int], same: Sequence[str], seconds: float
) -> dict[tuple[str, float], int]:
    """By program and share, the allocator's peak of the plans in a folder."""
    jobs = [(n, share) for n in numbers for share in SHARES if (folder / f"{_stem(n, share)}.plan").exists()]
    flags = os.environ.get("XLA_FLAGS", "") + (f" {WITHOUT_TUNING}" if jax.default_backend() == "gpu" else "")

    # A pool of memory taken at the start is divided exactly; one that grows hands out up to twice as much.
    workers = min(max((os.cpu_count() or 2) // 2, 1), MOST_AT_ONCE)
    environment = {
        "XLA_FLAGS": flags.strip(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{POOLS / workers:.2f}",
    }

    def peak(job: tuple[int, float]) -> str:
        given = ["--only", str(job[0]), "--used", str(job[1]), *same]
        return _child(given, seconds, **environment)[0]

    with ThreadPoolExecutor(workers) as pool:
        found = zip(jobs, pool.map(peak, jobs), strict=True)
        return {(PROGRAMS[number].name, share): int(peak) for (number, share), peak in found if peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", type=Path, metavar="PLANS", help="write plans to this folder, run nothing")
    parser.add_argument("--target", default="h100", help="what to make plans for (default: %(default)s)")
    parser.add_argument("--plans", type=Path, help="run the plans of this folder")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of programs")
    parser.add_argument("--small", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--seconds", type=float, default=120, help="for a program (default: %(default)s)")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--used", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    numbers = options.only or list(range(len(PROGRAMS)))
    warnings.simplefilter("ignore")
    # Several processes share the device.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if options.make:
        make(options.make, options.target, numbers, options.small)
        return
    if options.used is not None:
        print(used(numbers[0], options.used, options.plans, options.small))
        return
    if options.alone:
        print(json.dumps([asdict(row) for row in measured(numbers[0], options.plans, options.small)]))
        return
    same = ["--small"] if options.small else []
    peaks: dict[tuple[str, float], int] = {}
    if options.plans:
        same += ["--plans", str(options.plans)]
        peaks = peaks_used(options.plans, numbers, same, options.seconds)
    rows: list[Row] = []
    device = device_name()
    for number in numbers:
        line, why = _child(["--alone", "--only", str(number), *same], options.seconds)
        name = PROGRAMS[number].name
        found = [Row(**row) for row in json.loads(line)] if line else [Row(name, "plan", note=why)]
        for row in found:
            known = peaks.get((name, row.share)) if row.form == "plan" and row.share else None
            rows.append(replace(row, used=known))
            print(rows[-1], flush=True)
        write("accelerators", rows, table(rows), machine=device)
    print(table(rows))


if __name__ == "__main__":
    main()
