"""The programs of the examples: their run time beside plain JAX's, and their planning time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from benchmarks.fresh import ROOT
from benchmarks.loops import Function
from benchmarks.speed.case import SLACK, Case, Measurable, Row
from eqsat.support.cache_folder import VARIABLE
from examples import programs as basic
from examples.data import images, regression
from examples.measure import plain_peak, seconds_of

GROUP, PLANNING = "programs", "planning"
COMPILED, FIRST, COLD, WARM = "XLA's compilation", "planning, rules unread", "planning", "from the disk"
SHARE = 0.1
"""The budget, as a share of what plain JAX needs."""

Program = tuple[Function, tuple[Any, ...]]


def wide_network(gradient: bool) -> Program:
    from examples.wide_mlp import initial, loss

    found = regression(None, "kin40k", 5_000)
    arguments = (initial(found.x.shape[1], 5_000), found.x, found.y)
    return jax.value_and_grad(loss) if gradient else loss, arguments


def language_model_head(gradient: bool) -> Program:
    from examples.lm_head import loss

    rng = np.random.default_rng(0)
    embedding, hidden = (rng.normal(size=(n, 64)).astype(np.float32) / 8 for n in (20_000, 1_000))
    arguments = (embedding, hidden, rng.integers(len(embedding), size=len(hidden)))
    return jax.value_and_grad(loss, (0, 1)) if gradient else loss, arguments


def encoder(step: bool) -> Program:
    from examples.encoder import programs

    function, arguments = programs(1_024, 64, 2, 1, vocabulary=500)[step]
    return function, arguments


def ridge_regression() -> Program:
    from examples.kernel_ridge import weights

    found = regression(None, "kin40k", 3_000)
    return weights, (found.x, found.y)


def transport() -> Program:
    from examples.sinkhorn import divergence

    x, y, _, _ = regression(None, "kin40k", 4_000)
    return divergence, (x[y < 0][:1_000], x[y >= 0][:1_000])


def two_samples() -> Program:
    from examples.mmd import discrepancy

    return discrepancy, images(None, 500, 500, 100)


def sparse_gp(gradient: bool) -> Program:
    function = basic.sparse_gp if gradient else basic.sparse_gp_bound
    return function, basic.sparse_gp_data(10_000, 200)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "kernel matrix times vector": lambda: (basic.kernel_matvec, basic.kernel_data(10_000)),
    "nearest neighbours": lambda: (
        basic.nearest_neighbours,
        images(None, 50_000, 500, 20),
    ),
    "attention": lambda: (basic.attention, basic.attention_data(4_096)),
    "matrix chain": lambda: (basic.chain, basic.chain_data(5_000, 500)),
    "sparse GP": partial(sparse_gp, False),
    "sparse GP, gradient": partial(sparse_gp, True),
    "wide network": partial(wide_network, False),
    "wide network, gradient": partial(wide_network, True),
    "language-model head": partial(language_model_head, False),
    "language-model head, gradient": partial(language_model_head, True),
    "kernel ridge by lineax": ridge_regression,
    "discrepancy by coreax": two_samples,
    "transport by ott": transport,
    "encoder of flax": partial(encoder, False),
    "encoder of flax, training step": partial(encoder, True),
}

QUICK = ("kernel matrix times vector", "language-model head, gradient")


@dataclass(frozen=True)
class Running:
    """The run time of a program, beside plain JAX's."""

    title: str
    group: str = GROUP

    def measure(self, runs: int) -> list[Row]:
        function, arguments = PROGRAMS[self.title]()
        return Case(GROUP, self.title, function, lambda: arguments, tight=SHARE).measure(runs)


@dataclass(frozen=True)
class Planning:
    """The planning time of a program, in fresh processes.

    It is measured with nothing on the disk, with the shipped rules on the disk, as after the first plan
    of any program, and with the program's own plan on the disk.
    """

    title: str
    group: str = PLANNING

    def measure(self, runs: int) -> list[Row]:
        """Measures each once, since a process can't repeat what it does for the first time."""
        compiled = self._alone(COMPILED, 0, "")
        return self._rows(compiled, int(SHARE * compiled["peak"]))

    def _rows(self, compiled: dict[str, float], budget: int) -> list[Row]:
        with tempfile.TemporaryDirectory() as folder:
            first = self._alone(FIRST, budget, folder)
            if "smallest" in first:
                # Nothing fits, so the program is planned for little more than the leanest one needs.
                return self._rows(compiled, int(SLACK * first["smallest"]))
            # With another budget, the stored plan is not found.
            cold = self._alone(COLD, budget + 1, folder)
            warm = self._alone(WARM, budget, folder)
        ratio = compiled["seconds"] / cold["seconds"]
        return [
            Row(PLANNING, self.title, FIRST, first["seconds"], calls=1, budget=budget),
            Row(PLANNING, self.title, COLD, cold["seconds"], calls=1, budget=budget + 1),
            Row(PLANNING, self.title, WARM, warm["seconds"], calls=1, budget=budget),
            Row(PLANNING, self.title, COMPILED, compiled["seconds"], calls=1, base=COLD, ratio=ratio),
        ]

    def _alone(self, way: str, budget: int, folder: str) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.speed.programs", self.title, way, str(budget)]
        surroundings = {**os.environ, VARIABLE: folder}
        done = subprocess.run(
            command, cwd=ROOT, env=surroundings, stdout=subprocess.PIPE, text=True, check=True
        )
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def alone(title: str, way: str, budget: int) -> dict[str, float]:
    """Returns the seconds of compiling or planning a traced program in this process, which should be fresh.

    If there is no plan, it returns the bytes of the leanest program instead.
    """
    function, arguments = PROGRAMS[title]()
    traced = jax.jit(function).trace(*jax.tree.map(jnp.asarray, arguments))
    if way == COMPILED:
        lowered = traced.lower()
        seconds = seconds_of(lambda: lowered.compile() and None, ())
        return {"seconds": seconds, "peak": plain_peak(function, arguments)}
    optimized = eqsat.optimize(function, budget=budget)
    try:
        return {"seconds": seconds_of(lambda: optimized.plan(*arguments) and None, ())}
    except eqsat.BudgetError as error:
        if error.smallest_peak is None:
            raise
        return {"smallest": error.smallest_peak}


def cases(quick: bool) -> Iterator[Measurable]:
    yield from map(Running, QUICK if quick else PROGRAMS)


def planning_cases(quick: bool) -> Iterator[Measurable]:
    yield from map(Planning, QUICK if quick else PROGRAMS)


if __name__ == "__main__":
    _, title, way, budget = sys.argv
    print(json.dumps(alone(title, way, int(budget))))
