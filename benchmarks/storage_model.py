"""Compares predicted with assigned temporaries on targets that need not be present.

    python -m benchmarks.storage_model [--targets h100 tpu-v5e] [--share 0.1]

Each program is planned as it is, and within its arguments, its results and a share of its temporaries. The
assigned temporaries are those of the target's compiler, with the scratch that is counted beside them. Prints
a table and writes `benchmarks/results/storage-model-<cpu>.json` and `.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import eqsat
from benchmarks.memory_programs import PROGRAMS
from benchmarks.planning import CASES
from benchmarks.records import markdown, write
from eqsat.reports.plan import Plan

CLOSE = 0.15
"""A prediction is close if it is off by less than this share of the assigned temporaries..."""

SLIGHT = 1_000_000
"""...or by less than this number of bytes."""

LONG = ("random",)
"""Programs whose plan within a tenth takes minutes."""


@dataclass(frozen=True)
class Row:
    """The figures of one program on one target, in bytes.

    **Attributes:**

    - `form`: "plain" or "planned".
    - `refused`: why there is no plan; "" if there is one.
    """

    target: str
    program: str
    form: str
    predicted: int = 0
    assigned: int = 0
    loops: int = 0
    refused: str = ""

    @property
    def close(self) -> bool:
        """Whether the prediction is close."""
        return abs(self.predicted - self.assigned) <= max(CLOSE * self.assigned, SLIGHT)


def programs() -> Iterator[tuple[str, Callable[..., Any], Sequence[Any]]]:
    """Yields names, functions and types of arguments."""
    for name, program in PROGRAMS.items():
        yield name, program.function, [jax.ShapeDtypeStruct(s, jnp.float32) for s in program.shapes]
    for name, (function, arguments, _) in CASES.items():
        if name not in LONG:
            yield f"{name} (large)", function, arguments


def rows_of(
    target: str, name: str, function: Callable[..., Any], arguments: Sequence[Any], share: float
) -> Iterator[Row]:
    """Yields the figures of a program as it is, and within a share of its temporaries."""
    whole = eqsat.optimize(function, target=target, max_slowdown=None).plan(*arguments)
    fixed = whole.argument_bytes + whole.result_bytes
    yield Row(target, name, "plain", whole.before.peak_bytes - fixed, whole.original_peak_bytes - fixed)
    budget = fixed + int(share * max(whole.original_peak_bytes - fixed, 0))
    try:
        plan = eqsat.optimize(function, budget=budget, target=target, max_slowdown=None).plan(*arguments)
    except eqsat.BudgetError as error:
        yield Row(target, name, "planned", refused=str(error).splitlines()[0])
        return
    if plan.changed:
        yield Row(target, name, "planned", *_temporaries(plan, fixed), len(plan.loops))


def _temporaries(plan: Plan, fixed: int) -> tuple[int, int]:
    return plan.predicted_peak_bytes - fixed, plan.peak_bytes - fixed


def table(rows: Sequence[Row]) -> str:
    """Returns a table of the figures, in MB, as Markdown, and the share of close predictions by target."""
    heading = ["target", "program", "form", "predicted", "assigned", "loops", "close"]
    lines = [
        [r.target, r.program, r.form, "–", "–", "–", r.refused]
        if r.refused
        else [
            r.target,
            r.program,
            r.form,
            f"{r.predicted / 1e6:,.1f}",
            f"{r.assigned / 1e6:,.1f}",
            str(r.loops),
            "yes" if r.close else "no",
        ]
        for r in rows
    ]
    found = []
    for target in dict.fromkeys(row.target for row in rows):
        known = [row for row in rows if row.target == target and not row.refused]
        refused = sum(row.target == target and bool(row.refused) for row in rows)
        close = sum(row.close for row in known)
        found.append(f"{target}: {close} of {len(known)} predictions are close; {refused} refused.")
    return markdown(heading, lines) + "\n" + "\n".join(found) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", default=["h100", "tpu-v5e"])
    parser.add_argument("--share", type=float, default=0.1, help="of the temporaries (default: %(default)s)")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for target in arguments.targets:
        for name, function, shapes in programs():
            for row in rows_of(target, name, function, shapes, arguments.share):
                print(row, flush=True)
                rows.append(row)
    print(table(rows))
    write("storage-model", rows, table(rows))


if __name__ == "__main__":
    main()
