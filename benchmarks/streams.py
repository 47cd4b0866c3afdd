"""Functions of a file that is larger than memory, beside loops by hand in NumPy, dask and scikit-learn.

python -m benchmarks.streams FOLDER                   # makes a file of 10 GB in the folder
python -m benchmarks.streams FOLDER --gigabytes 1 --only moments median

Each way runs in a process of its own, which says how long it took and by how much it grew. The file is
dropped from the system's cache before. The records keep what earlier runs measured of other functions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import eqsat
from benchmarks import records
from benchmarks.fresh import settle, status
from benchmarks.stream_programs import (
    CENTRES,
    COLUMNS,
    QUERIES,
    TAPS,
    WEIGHTS,
    WINDOW,
    filtered,
    gradient,
    highest,
    histogram,
    kernel,
    largest,
    lloyd,
    median,
    moments,
    nearest,
    principal,
)
from eqsat.support.units import format_bytes
from examples.measure import seconds_text

CHUNK = 2_000_000
"""Rows of a chunk of the loops by hand: 64 MB."""

BUDGET = "500MB"
HOST_BUDGET = "500MB"


# By hand


def chunks(x: Any) -> Any:
    for start in range(0, len(x), CHUNK):
        yield np.array(x[start : start + CHUNK])
        x._mmap.madvise(4)  # its pages go


def moments_by_hand(x: Any) -> Any:
    total = sum(chunk.sum(0, dtype=np.float64) for chunk in chunks(x))
    mean = (total / len(x)).astype(np.float32)
    return mean, sum(((chunk - mean) ** 2).sum(0, dtype=np.float64) for chunk in chunks(x)) / len(x)


def principal_by_hand(x: Any) -> Any:
    mean = (sum(chunk.sum(0, dtype=np.float64) for chunk in chunks(x)) / len(x)).astype(np.float32)
    return np.linalg.eigh(sum((chunk - mean).T @ (chunk - mean) for chunk in chunks(x)) / len(x))


def distances_by_hand(x: Any, y: Any) -> Any:
    return (x * x).sum(1)[:, None] - 2 * (x @ y.T) + (y * y).sum(1)[None]


def kernel_by_hand(x: Any) -> Any:
    return np.concatenate(
        [
            np.exp(-0.5 * distances_by_hand(part, CENTRES)) @ WEIGHTS
            for chunk in chunks(x)
            for part in pieces(chunk)
        ]
    )


def pieces(chunk: Any) -> Any:
    """Parts of a chunk whose distances fit a cache."""
    return np.array_split(chunk, max(len(chunk) // 20_000, 1))


def lloyd_by_hand(x: Any) -> Any:
    totals, counts = np.zeros((64, COLUMNS)), np.zeros(64)
    for chunk in chunks(x):
        labels = np.concatenate([distances_by_hand(part, CENTRES).argmin(1) for part in pieces(chunk)])
        counts += np.bincount(labels, minlength=64)
        for column in range(COLUMNS):
            totals[:, column] += np.bincount(labels, chunk[:, column], 64)
    return totals / np.maximum(counts, 1)[:, None]


def nearest_by_hand(x: Any) -> Any:
    best: Any = np.full((len(QUERIES), 5), np.inf, np.float32)
    for chunk in chunks(x):
        for part in pieces(chunk):
            found = np.concatenate([best, distances_by_hand(QUERIES, part)], 1)
            best = np.partition(found, 5, axis=1)[:, :5]
    return np.sort(best, 1)


def overlapping(x: Any, more: int) -> Any:
    """Chunks, each with so many rows of the one before it."""
    before: Any = np.zeros((0, COLUMNS), np.float32)
    for chunk in chunks(x):
        joined = np.concatenate([before, chunk])
        yield joined
        before = joined[-more:]


def filtered_by_hand(x: Any) -> Any:
    total = np.zeros(COLUMNS)
    for chunk in overlapping(x, len(TAPS) - 1):
        for column in range(COLUMNS):
            y = np.convolve(chunk[:, column], TAPS, "valid")
            total[column] += (y**2).sum(dtype=np.float64)
    return total / (len(x) - len(TAPS) + 1)


def highest_by_hand(x: Any) -> Any:
    total = np.zeros(COLUMNS)
    for chunk in overlapping(x, WINDOW - 1):
        view = np.lib.stride_tricks.sliding_window_view(chunk, WINDOW, axis=0)
        for part in np.array_split(view, max(len(view) // 20_000, 1)):
            total += part.max(-1).sum(0, dtype=np.float64)
    return total / (len(x) - WINDOW + 1)


def histogram_by_hand(x: Any) -> Any:
    return sum(np.histogram(chunk[:, 0], 50, (-5.0, 5.0))[0] for chunk in chunks(x))


def largest_by_hand(x: Any) -> Any:
    best = np.zeros(0, np.float32)
    for chunk in chunks(x):
        scores = np.concatenate([best, chunk @ CENTRES[0]])
        best = np.partition(scores, len(scores) - 100)[-100:]
    return np.sort(best)[::-1]


# dask and scikit-learn


def of_dask(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        import dask
        import dask.array as da

        with dask.config.set(scheduler="threads"):
            return function(da, da.from_array(x, chunks=(CHUNK, COLUMNS)))

    return run


def moments_of_dask(da: Any, x: Any) -> Any:
    return da.compute(x.mean(0), x.var(0))


def principal_of_dask(da: Any, x: Any) -> Any:
    centred = x - x.mean(0)
    return np.linalg.eigh((centred.T @ centred / len(x)).compute())


def histogram_of_dask(da: Any, x: Any) -> Any:
    return da.histogram(x[:, 0], bins=50, range=(-5.0, 5.0))[0].compute()


def largest_of_dask(da: Any, x: Any) -> Any:
    return da.topk(x @ CENTRES[0], 100).compute()


def moments_of_sklearn(x: Any) -> Any:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    for chunk in chunks(x):
        scaler.partial_fit(chunk)
    return scaler.mean_, scaler.var_


def principal_of_sklearn(x: Any) -> Any:
    from sklearn.decomposition import IncrementalPCA

    model = IncrementalPCA()
    for chunk in chunks(x):
        model.partial_fit(chunk)
    return model.explained_variance_


@dataclass(frozen=True)
class Case:
    """A function of a share of the rows of a file, with other ways to compute it."""

    function: Callable[[Any], Any]
    others: dict[str, Callable[[Any], Any]]
    accuracy: str = "reassociates"
    share: float = 1.0


CASES = {
    "moments": Case(
        moments,
        {"numpy": moments_by_hand, "dask": of_dask(moments_of_dask), "scikit-learn": moments_of_sklearn},
        "rescales",
    ),
    "principal components": Case(
        principal,
        {
            "numpy": principal_by_hand,
            "dask": of_dask(principal_of_dask),
            "scikit-learn": principal_of_sklearn,
        },
    ),
    "histogram": Case(histogram, {"numpy": histogram_by_hand, "dask": of_dask(histogram_of_dask)}),
    "median": Case(median, {}),
    "100 largest": Case(largest, {"numpy": largest_by_hand, "dask": of_dask(largest_of_dask)}),
    "filter of 16 rows": Case(filtered, {"numpy": filtered_by_hand}, share=0.1),
    "highest of 32 rows": Case(highest, {"numpy": highest_by_hand}, share=0.1),
    "kernel, 64 centres": Case(kernel, {"numpy": kernel_by_hand}, "cancels", 0.3),
    "k-means step, 64 centres": Case(lloyd, {"numpy": lloyd_by_hand}, "cancels"),
    "5 nearest of 200": Case(nearest, {"numpy": nearest_by_hand}, "cancels", 0.3),
    "sparse GP and its gradient, 100": Case(gradient, {}, share=0.3),
}


class Counted:
    """An array that counts how many of its rows are read."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype, self.rows = array, array.shape, array.dtype, 0

    def __getitem__(self, where: Any) -> Any:
        found = self.array[where]
        self.rows += len(found)
        return found


def opened(path: Path, share: float) -> Any:
    x = np.load(path, mmap_mode="r")
    return x[: int(len(x) * share)]


def drop_from_cache(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def worker(case: Case, way: str, path: Path) -> dict[str, float]:
    """Seconds of one way, and by how many bytes the process grew."""
    x = opened(path, case.share)
    run: Callable[[Any], Any]
    if way == "eqsat":
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            out = None if case.function is not kernel else f"{folder}/out.npy"
            run = eqsat.optimize(
                case.function, budget=BUDGET, host_budget=HOST_BUDGET, accuracy=case.accuracy, out=out
            )
            counted = Counted(x)
            began = time.perf_counter()
            run.plan(counted)  # type: ignore[attr-defined]
            planning = time.perf_counter() - began
            counted.rows = 0
            found = timed(lambda: run(counted), path)
            return found | {"planning": planning, "passes": counted.rows / len(x)}
    if way == "in memory":
        # A part of the rows that fits, and the time for all at its rate.
        part = jax.device_put(np.array(x[: min(len(x), 10 * CHUNK)]))
        run = eqsat.optimize(case.function, budget="4GB", accuracy=case.accuracy)
        jax.block_until_ready(run(part))
        found = timed(lambda: run(part), path)
        return found | {"seconds": found["seconds"] * len(x) / len(part)}
    if way == "disk":
        return timed(lambda: sum(chunk.nbytes for chunk in chunks(x)), path)
    return timed(lambda: case.others[way](x), path)


def timed(run: Callable[[], Any], path: Path) -> dict[str, float]:
    settle()
    drop_from_cache(path)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest resident memory so far
    before = status("VmRSS")
    began = time.perf_counter()
    jax.block_until_ready(run())
    return {"seconds": time.perf_counter() - began, "grown": status("VmHWM") - before}


def measured(name: str, way: str, path: Path, runs: int) -> dict[str, float]:
    """The medians of some runs, each in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.streams", str(path.parent), "--worker", name, way]
    found = []
    for _ in range(runs):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def make(path: Path, gigabytes: float) -> None:
    """Writes rows of normally distributed numbers, of which the scale grows along the file."""
    rows = int(gigabytes * 1e9) // (4 * COLUMNS)
    if path.exists() and np.load(path, mmap_mode="r").shape == (rows, COLUMNS):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    blocks = [random.standard_normal((CHUNK, COLUMNS), dtype=np.float32) for _ in range(4)]
    np.lib.format.open_memmap(path, "w+", np.float32, (rows, COLUMNS)).flush()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - rows * 4 * COLUMNS)
        for number, start in enumerate(range(0, rows, CHUNK)):
            block = blocks[number % len(blocks)] * np.float32(1 + number * CHUNK / rows)
            file.write(block[: rows - start].tobytes())


def table(rows: Sequence[dict[str, Any]]) -> str:
    """What was measured; the passes of a row are missing if they were not counted."""
    heading = ["function", "rows", "passes", "eqsat", "reading alone", "in memory", "others", "grew by"]
    lines = []
    for row in rows:
        ours = row["eqsat"]["seconds"]
        others = ", ".join(
            f"{way} {seconds_text(each['seconds'])} ({each['seconds'] / ours:.2f} ×)"
            for way, each in row.items()
            if isinstance(each, dict) and way not in ("eqsat", "in memory", "disk")
        )
        lines.append(
            [
                row["name"],
                f"{row['rows']:,}",
                f"{passes:.3g}" if (passes := row["eqsat"].get("passes")) else "–",
                seconds_text(ours),
                seconds_text(row["disk"]["seconds"]),
                seconds_text(row["in memory"]["seconds"]),
                others,
                format_bytes(row["eqsat"]["grown"]),
            ]
        )
    return records.markdown(heading, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--alone", action="store_true", help="without the ways of other libraries")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    path = arguments.folder / "rows.npy"
    # Several processes share a device.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if arguments.worker:
        name, way = arguments.worker
        print(json.dumps(worker(CASES[name], way, path)))
        return
    make(path, arguments.gigabytes)
    machine = records.device_name()
    rows = []
    for name in arguments.only:
        case = CASES[name]
        x = opened(path, case.share)
        row: dict[str, Any] = {"name": name, "rows": len(x), "bytes": x.nbytes}
        for way in ("disk", "eqsat", "in memory", *([] if arguments.alone else case.others)):
            row[way] = measured(name, way, path, arguments.runs)
            print(name, way, {key: round(value, 3) for key, value in row[way].items()}, flush=True)
        rows.append(row)
    others = [row for row in records.read("streams", machine=machine) if row["name"] not in arguments.only]
    rows = sorted([*others, *rows], key=lambda row: list(CASES).index(row["name"]))
    text = table(rows)
    print(text)
    records.write("streams", rows, text, machine=machine)


if __name__ == "__main__":
    main()
