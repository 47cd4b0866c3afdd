"""Ten nearest neighbours: tables 1 and 3 of the paper, side by side with what people use.

    python -m benchmarks.paper.knn [--data DIR] [--quick] [--runs N]

The data are random points, MNIST and word vectors, or without `--data`, generated ones of the same
shapes. The methods are plain JAX, eqsat, a loop by hand, KeOps, scikit-learn's brute force and faiss's
flat index. Measures queries per second and peak memory. Times are medians of calls in turns, in one
process. The peaks of the first three methods are certified. The peak of a library is the growth of a
process of its own, with the points and the queries. Writes `benchmarks/results/paper-knn-<cpu>.json` and
`.md`. A method that is not installed (the extra `peers`) or does not fit the machine has no figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import eqsat
from benchmarks.fresh import ROOT, settle, status
from benchmarks.paper.knn_methods import FUNCTIONS, METHODS, PEERS, Search, chunked, distances
from benchmarks.records import RESULTS, markdown, write
from eqsat.support.units import format_bytes
from examples.data import images, word_vectors
from examples.measure import has_room_for, interleaved, plain_peak

PATIENCE = 30.0
"""A method that takes longer than this, in seconds, is timed only once."""

CHECKED = 20
"""The number of queries whose neighbours are checked."""

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """A set of points and queries.

    **Attributes:**

    - `data`: "random", "images" or "words".
    """

    data: str
    metric: str
    n: int
    d: int
    queries: int
    budget: str

    def arrays(self, folder: Path | None) -> tuple[Array, Array]:
        """Returns the points [n, d] and the queries [m, d] in float32."""
        if self.data == "images":
            return images(folder, self.n, self.queries, self.d)
        if self.data == "words":
            return word_vectors(folder, self.n, self.queries, self.d)
        rng = np.random.default_rng(0)
        both = rng.standard_normal((self.n + self.queries, self.d), np.float32)
        return both[: self.n].copy(), both[self.n :].copy()


CASES = (
    *(Case("random", "L2", n, d, 1_000, "100MB") for n in (10_000, 100_000) for d in (3, 10, 100)),
    *(Case("random", "L2", 1_000_000, d, 1_000, budget) for d, budget in ((3, "100MB"), (10, "100MB"))),
    Case("random", "L2", 1_000_000, 100, 1_000, "600MB"),
    Case("images", "L2", 60_000, 784, 1_000, "300MB"),
    Case("images", "L1", 60_000, 784, 50, "300MB"),
    Case("words", "cosine", 140_000, 100, 1_000, "200MB"),
)

QUICK = (Case("random", "L2", 20_000, 3, 200, "5MB"), Case("words", "cosine", 5_000, 20, 100, "5MB"))


@dataclass(frozen=True)
class Row:
    """The results of one method on one case.

    **Attributes:**

    - `seconds`: the time of a call, or None if the method was not run.
    - `peak`: the peak in bytes, arguments included, or None if it is not known.
    - `error`: the excess of the found distances over those of the nearest points, relative to the latter.
    """

    case: Case
    method: str
    seconds: float | None
    peak: int | None
    error: float | None

    @property
    def per_second(self) -> float | None:
        return None if self.seconds is None else self.case.queries / self.seconds


def rows_of(case: Case, folder: Path | None, runs: int) -> list[Row]:
    """Runs all methods on one case, in turns."""
    points, queries = case.arrays(folder)
    listed, case = case, replace(case, n=len(points), queries=len(queries))
    peaks = jax_peaks(case, points, queries)
    searches: dict[str, Search] = {}
    for name, make in METHODS.items():
        if name == "plain" and not has_room_for(peaks[name]):
            continue
        try:
            searches[name] = make(case.metric, points, case.budget)
        except ImportError:
            print(f"{name} is not installed: pip install 'eqsat[peers]'")
    timings = interleaved(searches, (queries,), runs, PATIENCE)
    each = {
        name: distances(case.metric, queries[:CHECKED], points, np.asarray(timing.result)[:CHECKED])
        for name, timing in timings.items()
    }
    nearest = np.min(list(each.values()), axis=0)
    rows = []
    for name in METHODS:
        error = None
        if name in each:
            error = float(np.max((each[name] - nearest) / np.maximum(nearest, np.finfo(np.float32).tiny)))
        peak = peaks.get(name)
        if name in PEERS and name in searches:
            peak = points.nbytes + queries.nbytes + growth_in_fresh_process(listed, name, folder)
        seconds = timings[name].seconds if name in timings else None
        rows.append(Row(case, name, seconds, peak, error))
    return rows


def jax_peaks(case: Case, points: Array, queries: Array) -> dict[str, int]:
    """Returns the certified peaks of the methods that XLA compiles, in bytes."""
    function = FUNCTIONS[case.metric]
    plan = eqsat.optimize(function, budget=case.budget).plan(queries, points)
    return {
        "plain": plain_peak(function, (queries, points)),
        "eqsat": plan.peak_bytes,
        "by hand": plain_peak(chunked(case.metric, points), (queries, points)),
    }


def growth_in_fresh_process(case: Case, method: str, folder: Path | None) -> int:
    """Returns the bytes by which a fresh process grows when it prepares a search and runs it once."""
    number = (*CASES, *QUICK).index(case)
    command = [sys.executable, "-m", "benchmarks.paper.knn", "--alone", method, str(number)]
    command += ["--data", str(folder)] if folder else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


def alone(method: str, number: int, folder: Path | None) -> int:
    """Returns the bytes by which this process, which should be fresh, grows when it searches.

    A small search before that loads the library's code.
    """
    case = (*CASES, *QUICK)[number]
    points, queries = case.arrays(folder)
    METHODS[method](case.metric, points[:100].copy(), case.budget)(queries[:10].copy())
    settle()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    METHODS[method](case.metric, points, case.budget)(queries)
    return max(status("VmHWM") - before, 0)


def table(rows: Sequence[Row]) -> str:
    """Returns a table of speeds and one of peaks, with a line for each case, in Markdown.

    Speeds are queries per second, with the ratio of eqsat's to those of each other method.
    """
    speeds, peaks = [], []
    for case in dict.fromkeys(row.case for row in rows):
        of = {row.method: row for row in rows if row.case == case}
        label = [case.data, case.metric, f"{case.n:,}", str(case.d), f"{case.queries:,}"]
        speeds.append([*label, *(_speed(of[name], of["eqsat"]) for name in METHODS)])
        peaks.append([*label, case.budget, *(_amount(of[name].peak) for name in METHODS)])
    heading = ["data", "metric", "n", "d", "queries"]
    return (
        "Queries per second; in brackets, eqsat's relative to those.\n\n"
        + markdown([*heading, *METHODS], speeds)
        + "\nPeak memory, arguments included: certified, or of a fresh process for the libraries.\n\n"
        + markdown([*heading, "budget", *METHODS], peaks)
    )


def _speed(row: Row, ours: Row) -> str:
    if row.seconds is None or row.per_second is None or ours.seconds is None:
        return "–"
    ratio = "" if row is ours else f" ({row.seconds / ours.seconds:.2g}×)"
    return f"{row.per_second:,.0f}{ratio}"


def _amount(peak: int | None) -> str:
    return "–" if peak is None else format_bytes(peak)


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.knn")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with real data (examples/data.py)")
    parser.add_argument("--quick", action="store_true", help="two small cases")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--alone", nargs=2, metavar=("METHOD", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    if options.alone:
        print(alone(options.alone[0], int(options.alone[1]), options.data))
        return []
    rows: list[Row] = []
    for case in QUICK if options.quick else CASES:
        rows += rows_of(case, options.data, options.runs)
        print(table([row for row in rows if row.case == rows[-1].case]), flush=True)
        write("paper-knn", rows, "## Ten nearest neighbours, float32\n\n" + table(rows), folder=folder)
    return rows


if __name__ == "__main__":
    main()
