"""Sparse GP regression against the number of inducing points, under one budget: figure 3 of the paper.

    python -m benchmarks.paper.sparse_gp [--data DIR] [--only NAME] [--inducing M M M]
                                         [--budget BYTES] [--evaluations N] [--quick]

The objective is GPJax's collapsed bound with a Matérn-3/2 kernel, which has a length scale for each
dimension, in float64. The data are kin40k, protein and keggundirected, or without `--data`, generated
points. Each number of inducing points starts from the parameters that the one before found, with further
training points added. L-BFGS trains all parameters, inducing inputs included, for N (by default 100)
evaluations of the bound and its gradient; the evaluations decrease as the inducing points increase. A
tenth of the points is for testing. Writes `benchmarks/results/paper-sparse-gp-<cpu>` as `.json`, `.md`
and `.png`: the root mean square error and the negative log predictive density of the test points, and the
number of inducing points from which plain JAX exceeds the budget. Plain JAX is compiled but not run.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import eqsat
from benchmarks.paper.gp_model import Model, model, with_inducing
from benchmarks.records import RESULTS, markdown, write
from eqsat.support.units import format_bytes, parse_budget
from examples.data import Regression, regression
from examples.measure import seconds_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = ("kin40k", "protein", "keggundirected")
INDUCING = (250, 500, 1_000, 2_000, 4_000)
BUDGET = "2GB"
EVALUATIONS = 100


@dataclass(frozen=True)
class Row:
    """The results for one number of inducing points on one data set.

    **Attributes:**

    - `evaluations`: the number of evaluations of the bound and its gradient in this training.
    - `peak`, `plain_peak`: the certified peaks of an evaluation, in bytes.
    - `seconds`: the median time of an evaluation.
    - `bound`: the collapsed bound for each training point, after training.
    - `rmse`, `nlpd`: on the test points, in units of the targets' standard deviation.
    """

    dataset: str
    points: int
    inducing: int
    evaluations: int
    budget: int
    peak: int
    plain_peak: int
    planning_seconds: float
    seconds: float
    bound: float
    rmse: float
    nlpd: float


def rows_of(dataset: str, data: Regression, sizes: Sequence[int], evaluations: int, budget: str) -> list[Row]:
    """Trains with each number of inducing points, and prints the results."""
    order = np.random.default_rng(1).permutation(len(data.x))
    initial = model("Matérn-3/2", data.x[order[: sizes[0]]])
    parameters, rows = initial.parameters, []
    for size in sizes:
        known = np.asarray(parameters.inducing_inputs.value)
        added = data.x[order[len(known) : size]]
        parameters = with_inducing(parameters, np.concatenate([known, added]))
        most = max(2, round(evaluations * sizes[0] / size))
        row, parameters = _trained(dataset, data, initial, parameters, most, budget)
        rows.append(row)
        print(
            f"{dataset:<15} M = {row.inducing:>5,}  {row.evaluations:>3} evaluations of"
            f" {seconds_text(row.seconds):>7}  peak {format_bytes(row.peak)}, plain"
            f" {format_bytes(row.plain_peak)}  bound {row.bound:.4f}  RMSE {row.rmse:.4f}"
            f"  NLPD {row.nlpd:.4f}",
            flush=True,
        )
    return rows


def _trained(
    dataset: str, data: Regression, initial: Model, parameters: Any, most: int, budget: str
) -> tuple[Row, Any]:
    """Returns the row and the parameters after a training of about `most` evaluations."""
    evaluate = eqsat.optimize(initial.value_and_gradient, budget=budget)
    began = time.perf_counter()
    plan = evaluate.plan(parameters, data.x, data.y)
    planning = time.perf_counter() - began
    start, unravel = ravel_pytree(parameters)
    seconds: list[float] = []
    best = (math.inf, parameters)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        began = time.perf_counter()
        value, gradient = evaluate(unravel(flat), data.x, data.y)
        result = float(value), np.asarray(ravel_pytree(gradient)[0])
        seconds.append(time.perf_counter() - began)
        best = min(best, (result[0], unravel(flat)), key=lambda pair: pair[0])
        return result

    # L-BFGS finishes its last iteration, so it may evaluate a few times more.
    minimize(objective, np.asarray(start), jac=True, method="L-BFGS-B", options={"maxfun": most})
    value, parameters = best
    predict = eqsat.optimize(initial.predict, budget=budget)
    mean, variance = map(np.asarray, predict(parameters, data.x, data.y, data.x_test))
    errors = data.y_test - mean
    row = Row(
        dataset,
        len(data.x),
        len(parameters.inducing_inputs.value),
        len(seconds),
        parse_budget(budget),
        plan.peak_bytes,
        plan.original_peak_bytes,
        planning,
        float(np.median(seconds)),
        -value,
        float(np.sqrt(np.mean(errors**2))),
        float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * errors**2 / variance)),
    )
    return row, parameters


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a table in Markdown."""
    heading = ["data", "points", "M", "RMSE", "NLPD", "bound per point", "evaluations", "time of one",
               "eqsat peak", "plain peak", "planning"]  # fmt: skip
    lines = []
    for row in rows:
        over = " (over)" if row.plain_peak > row.budget else ""
        lines.append(
            [
                row.dataset,
                f"{row.points:,}",
                f"{row.inducing:,}",
                f"{row.rmse:.4f}",
                f"{row.nlpd:.4f}",
                f"{row.bound:.4f}",
                str(row.evaluations),
                seconds_text(row.seconds),
                format_bytes(row.peak),
                format_bytes(row.plain_peak) + over,
                seconds_text(row.planning_seconds),
            ]
        )
    return markdown(heading, lines)


def figure(rows: Sequence[Row]) -> Figure:
    """Draws errors against M, a column for each data set, and shades where plain JAX exceeds the budget."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.dataset for row in rows))
    drawn = Figure(figsize=(3.6 * len(names) + 1, 5.4), layout="constrained")
    panels = drawn.subplots(2, len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        some = [row for row in rows if row.dataset == name]
        sizes = [row.inducing for row in some]
        over = [row.inducing for row in some if row.plain_peak > row.budget]
        for axes, label in zip(panels[:, column], ("RMSE", "NLPD"), strict=True):
            values = [row.rmse if label == "RMSE" else row.nlpd for row in some]
            axes.plot(sizes, values, "o-", color="#2a6f97", label=f"eqsat in {format_bytes(some[0].budget)}")
            if over:
                axes.axvspan(over[0] / 1.15, sizes[-1] * 1.15, color="#b5482a", alpha=0.12,
                             label="plain JAX exceeds that")  # fmt: skip
            axes.set(ylabel=label, xscale="log")
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axes.minorticks_off()
            axes.grid(color="0.9")
        panels[0, column].set_title(f"{name}, n = {some[0].points:,}")
        panels[1, column].set_xlabel("inducing points")
    panels[0, 0].legend(fontsize=8)
    return drawn


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.sparse_gp")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with real data (examples/data.py)")
    parser.add_argument("--only", choices=DATASETS, metavar="NAME", help="one data set")
    parser.add_argument("--inducing", type=int, nargs="+", default=INDUCING, metavar="M", help="ascending")
    parser.add_argument("--budget", default=BUDGET, metavar="BYTES")
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS, metavar="N")
    parser.add_argument("--quick", action="store_true", help="at the size of a test, on generated points")
    options = parser.parse_args(args)
    sizes, n, budget, evaluations = options.inducing, 100_000, options.budget, options.evaluations
    if options.quick:
        sizes, n, budget, evaluations = [10, 40], 4_000, "4MB", 15
    names = ("generated",) if options.data is None or options.quick else DATASETS
    with jax.enable_x64(True):
        rows = []
        for name in (options.only,) if options.only else names:
            folder_of_data = None if name == "generated" else options.data
            n_generated = min(n, 20_000) if folder_of_data is None else n
            data = regression(folder_of_data, name, n_generated, dtype=np.float64)
            rows += rows_of(name, data, sizes, evaluations, budget)
    title = f"## Sparse GP regression in {format_bytes(rows[0].budget)}, float64\n\n"
    write("paper-sparse-gp", rows, title + table(rows), figure(rows), folder)
    return rows


if __name__ == "__main__":
    main()
