"""Principal components, k-means and a kernel machine on a file of 10 GB, which it makes, in 1 GB of memory.

    python -m examples.larger_than_memory [FOLDER] [--gigabytes 10] [--small]

The functions are written as for arrays in memory. The file goes in the end, unless there is a FOLDER to keep
it in. What it prints, on two cores that other work had first:

    312,500,000 rows of 8 columns: 10 GB
    principal axes
      reads   x 2 ×: 20 GB in 42.1 s
      memory  133 MB of the device, 125 MB beside; grew by 215 MB
    k-means, iteration 1
      reads   x 1 ×: 10 GB in 1.96 min
      memory  148 MB of the device, 125 MB beside; grew by 252 MB
    k-means, iteration 2
      reads   x 1 ×: 10 GB in 1.4 min
      memory  148 MB of the device, 125 MB beside; grew by 190 MB
    k-means, iteration 3
      reads   x 1 ×: 10 GB in 1.05 min
      memory  148 MB of the device, 125 MB beside; grew by 190 MB
    a kernel machine
      reads   x 1 ×: 10 GB in 36.8 s
      memory  123 MB of the device, 106 MB beside; grew by 172 MB
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from eqsat.support.units import format_bytes, format_seconds

COLUMNS = 8
BLOCK = 1_000_000
"""Rows that are made at a time."""


def principal(x: Any) -> Any:
    """Variances along the principal axes, and these axes."""
    centred = x - jnp.mean(x, axis=0)
    return jnp.linalg.eigh(centred.T @ centred / x.shape[0])


def lloyd(centres: Any, x: Any) -> Any:
    """One iteration of k-means, and the mean squared distance to the nearest centre before it."""
    distances = jnp.sum((x[:, None] - centres[None]) ** 2, axis=-1)
    labels, count = jnp.argmin(distances, axis=1), len(centres)
    totals = jax.ops.segment_sum(x, labels, count)
    sizes = jax.ops.segment_sum(jnp.ones(x.shape[0]), labels, count)
    return totals / jnp.maximum(sizes, 1.0)[:, None], jnp.mean(jnp.min(distances, axis=1))


def predictions(x: Any, centres: Any, weights: Any) -> Any:
    """A kernel machine for every row."""
    return jnp.exp(-0.5 * jnp.sum((x[:, None] - centres[None]) ** 2, axis=-1)) @ weights


@dataclass(frozen=True)
class Outcome:
    """What a function of the file took.

    **Attributes:**

    - `grown`: bytes by which the process grew while it ran.
    """

    name: str
    plan: eqsat.StreamPlan
    seconds: float
    grown: int
    result: Any


def resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def measured(name: str, run: Callable[..., Any], *args: Any) -> Outcome:
    plan: eqsat.StreamPlan = run.plan(*args)  # type: ignore[attr-defined]
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest resident memory so far
    before, began = resident("VmRSS"), time.perf_counter()
    result = jax.block_until_ready(run(*args))
    outcome = Outcome(name, plan, time.perf_counter() - began, resident("VmHWM") - before, result)
    passes = ", ".join(f"{each} {times:g} ×" for each, times in plan.read.items())
    print(f"{name}")
    print(f"  reads   {passes}: {format_bytes(plan.read_bytes)} in {format_seconds(outcome.seconds)}")
    device, host = format_bytes(plan.peak_bytes), format_bytes(plan.host_bytes)
    print(f"  memory  {device} of the device, {host} beside; grew by {format_bytes(max(outcome.grown, 0))}")
    return outcome


def made(path: Path, rows: int) -> np.ndarray[Any, Any]:
    """A file of rows around eight centres, opened."""
    random = np.random.default_rng(0)
    centres = 3 * random.standard_normal((8, COLUMNS)).astype(np.float32)
    file = np.lib.format.open_memmap(path, "w+", np.float32, (rows, COLUMNS))
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        noise = random.standard_normal((count, COLUMNS), dtype=np.float32)
        file[start : start + count] = noise + centres[random.integers(8, size=count)]
    file.flush()
    del file
    return np.load(path, mmap_mode="r")


def run(arguments: Sequence[str] | None = None) -> list[Outcome]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--small", action="store_true", help="at the size of a test: 10 MB in 1 MB")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        rows = int((0.01 if options.small else options.gigabytes) * 1e9) // (4 * COLUMNS)
        budget, host = ("600kB", "400kB") if options.small else ("600MB", "400MB")
        x = made(folder / "rows.npy", rows)
        print(f"{rows:,} rows of {COLUMNS} columns: {format_bytes(x.nbytes)}")
        found = [measured("principal axes", eqsat.optimize(principal, budget=budget, host_budget=host), x)]
        step = eqsat.optimize(lloyd, budget=budget, host_budget=host)
        centres: Any = jnp.asarray(x[:8])
        for iteration in range(3):
            found.append(measured(f"k-means, iteration {iteration + 1}", step, centres, x))
            centres = found[-1].result[0]
        kernel = eqsat.optimize(
            predictions,
            budget=budget,
            host_budget=host,
            out=folder / "predictions.npy",
            checkpoint=folder / "run",
        )
        found.append(measured("a kernel machine", kernel, x, centres, jnp.ones(8)))
        return found


if __name__ == "__main__":
    run()
