"""Plans and calls one case of the speed benchmark, as `benchmarks.revisions` requests over standard input.

It also runs in checkouts of other revisions, so it uses only what their benchmarks have, too.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

import eqsat
from benchmarks.speed.__main__ import GROUPS
from benchmarks.speed.case import Case
from benchmarks.speed.programs import PROGRAMS, Running
from eqsat.targets.compiler_profile import OWN
from examples.measure import REST, plain_peak


def case_named(group: str, title: str) -> Case:
    """Returns the case of a group and a title.

    **Raises:** `StopIteration` if this revision has no such case.
    """
    found: Any = next(case for case in GROUPS[group](False) if case.title == title)
    if isinstance(found, Running):
        function, arguments = PROGRAMS[title]()
        return Case(group, title, function, lambda: arguments)
    assert isinstance(found, Case)
    return found


class Worker:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.arguments: tuple[Any, ...] = jax.tree.map(jnp.asarray, case.arguments())

    def needed(self, own: bool) -> dict[str, Any]:
        """Returns the peak of plain JAX in bytes, under options that count every buffer.

        With `own`, it is the peak under XLA's own options if that is larger.
        """
        plain = plain_peak(self.case.function, self.arguments)
        return {"needed": max(plain, plain_peak(self.case.function, self.arguments, OWN)) if own else plain}

    def plan(self, budget: int) -> dict[str, Any]:
        began = time.perf_counter()
        self.optimized = eqsat.optimize(self.case.function, budget=budget, accuracy=self.case.accuracy)
        try:
            plan = self.optimized.plan(*self.arguments)
        except eqsat.BudgetError as error:
            if error.smallest_peak is None:
                raise
            return {"smallest": error.smallest_peak}
        seconds = time.perf_counter() - began
        jax.block_until_ready(self.optimized(*self.arguments))
        return {"seconds": seconds, "peak": plan.peak_bytes, "source": plan.source}

    def call(self) -> dict[str, Any]:
        time.sleep(REST)
        wall, processor = time.perf_counter(), time.process_time()
        jax.block_until_ready(self.optimized(*self.arguments))
        return {
            "seconds": time.perf_counter() - wall,
            "processor_seconds": time.process_time() - processor,
        }


def main(group: str, title: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    case = case_named(group, title)
    with jax.enable_x64(case.double):
        worker = Worker(case)
        with contextlib.suppress(BrokenPipeError):
            for line in sys.stdin:
                request = json.loads(line)
                try:
                    answer = getattr(worker, request.pop("what"))(**request)
                except Exception as error:  # the other process receives the error, and goes on
                    answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
                print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
