"""A training step of a sparse GP, beside plain JAX's: 2,000 inducing points on kin40k in 500 MB.

    python -m benchmarks.paper.sparse_gp_step [--data DIR] [--inducing M] [--budget BYTES] [--double]
                                              [--steps N] [--quick]

A step computes GPJax's collapsed bound and its gradient with respect to all parameters, inducing inputs
included, with a Matérn-3/2 or an RBF kernel. eqsat and plain JAX take the same steps of Adam, in turns. Plain
JAX needs 5 to 11 GB for a step. Writes `benchmarks/results/paper-sparse-gp-step-<cpu>` as `.json` and `.md`:
peaks, wall-clock and processor seconds, and the differences of the bounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import eqsat
from benchmarks.paper.gp_model import KERNELS, model
from benchmarks.records import RESULTS, markdown, write
from eqsat.support.units import format_bytes, parse_budget
from examples.data import regression
from examples.measure import seconds_text


@dataclass(frozen=True)
class Row:
    """The results of training with one kernel.

    **Attributes:**

    - `seconds`, `plain_seconds`: the median time of a step.
    - `processor_seconds`, `plain_processor_seconds`: the processor time of a step over all threads, which
      other jobs disturb less.
    - `bounds`, `plain_bounds`: the bound per point before each step.
    """

    kernel: str
    dtype: str
    points: int
    inducing: int
    budget: int
    peak: int
    plain_peak: int
    planning_seconds: float
    seconds: float
    plain_seconds: float
    processor_seconds: float
    plain_processor_seconds: float
    bounds: list[float]
    plain_bounds: list[float]

    @property
    def apart(self) -> float:
        """The largest relative difference of the bounds."""
        pairs = zip(self.bounds, self.plain_bounds, strict=True)
        return max(abs(bound - plain) / abs(plain) for bound, plain in pairs)


class Training:
    """A training by Adam with one way to compute the value and the gradient."""

    def __init__(self, evaluate: Callable[..., Any], parameters: Any) -> None:
        self._evaluate, self._parameters = evaluate, parameters
        self._optimizer = optax.adam(0.01)
        self._state = self._optimizer.init(parameters)
        self.bounds: list[float] = []
        self.seconds: list[float] = []
        self.processor_seconds: list[float] = []

    def step(self, x: np.ndarray, y: np.ndarray) -> None:
        began, processor_began = time.perf_counter(), time.process_time()
        value, gradient = jax.block_until_ready(self._evaluate(self._parameters, x, y))
        updates, self._state = self._optimizer.update(gradient, self._state)
        self._parameters = jax.block_until_ready(optax.apply_updates(self._parameters, updates))
        self.seconds.append(time.perf_counter() - began)
        self.processor_seconds.append(time.process_time() - processor_began)
        self.bounds.append(-float(value))


def row_of(kernel: str, x: np.ndarray, y: np.ndarray, inducing: int, budget: str, steps: int) -> Row:
    """Trains by eqsat and by plain JAX, in turns."""
    order = np.random.default_rng(1).permutation(len(x))
    made = model(kernel, x[order[:inducing]])
    evaluate = eqsat.optimize(made.value_and_gradient, budget=budget)
    began = time.perf_counter()
    plan = evaluate.plan(made.parameters, x, y)
    planning = time.perf_counter() - began
    plain = jax.jit(made.value_and_gradient).lower(made.parameters, x, y).compile()
    ours, theirs = Training(evaluate, made.parameters), Training(plain, made.parameters)
    for _ in range(steps):
        ours.step(x, y)
        theirs.step(x, y)
    assert evaluate.plan(*(made.parameters, x, y)) is plan, "planned again"
    return Row(
        kernel,
        str(x.dtype),
        len(x),
        inducing,
        parse_budget(budget),
        plan.peak_bytes,
        plan.original_peak_bytes,
        planning,
        statistics.median(ours.seconds),
        statistics.median(theirs.seconds),
        statistics.median(ours.processor_seconds),
        statistics.median(theirs.processor_seconds),
        ours.bounds,
        theirs.bounds,
    )


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a table in Markdown."""
    heading = ["kernel", "dtype", "points", "M", "budget", "eqsat peak", "plain peak", "eqsat step",
               "plain step", "eqsat / plain", "of processor time", "bounds apart", "planning"]  # fmt: skip
    lines = []
    for row in rows:
        lines.append(
            [
                row.kernel,
                row.dtype,
                f"{row.points:,}",
                f"{row.inducing:,}",
                format_bytes(row.budget),
                format_bytes(row.peak),
                format_bytes(row.plain_peak),
                seconds_text(row.seconds),
                seconds_text(row.plain_seconds),
                f"{row.seconds / row.plain_seconds:.2f}",
                f"{row.processor_seconds / row.plain_processor_seconds:.2f}",
                f"{row.apart:.0e}",
                seconds_text(row.planning_seconds),
            ]
        )
    return markdown(heading, lines)


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.sparse_gp_step")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with real data (examples/data.py)")
    parser.add_argument("--inducing", type=int, default=2_000, metavar="M")
    parser.add_argument("--budget", default="500MB", metavar="BYTES")
    parser.add_argument("--double", action="store_true", help="in float64")
    parser.add_argument("--steps", type=int, default=5, metavar="N")
    parser.add_argument("--kernel", choices=KERNELS, metavar="NAME", help=" or ".join(KERNELS))
    parser.add_argument("--quick", action="store_true", help="at the size of a test")
    options = parser.parse_args(args)
    n, inducing, budget, steps = 36_000, options.inducing, options.budget, options.steps
    if options.quick:
        n, inducing, budget, steps = 4_000, 40, "2MB", 3
        options.kernel = "RBF"
    with jax.enable_x64(options.double):
        dtype = np.float64 if options.double else np.float32
        data = regression(options.data, "kin40k", n, dtype=dtype)
        rows = []
        for kernel in (options.kernel,) if options.kernel else KERNELS:
            rows.append(row_of(kernel, data.x, data.y, inducing, budget, steps))
            print(table(rows[-1:]), flush=True)
            text = "## A training step of a sparse GP\n\n" + table(rows)
            write("paper-sparse-gp-step", rows, text, folder=folder)
    return rows


if __name__ == "__main__":
    main()
