"""What eqsat does: five programs under budgets that plain JAX breaks.

    python -m examples.demo [--data DIR]

Takes a minute or two. Prints for each program what plain JAX needs, the budget, what the optimised
program needs, how long both take, how far the results are from a float64 reference, and what was done.
"""

from __future__ import annotations

import argparse
import os
import statistics
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import eqsat
from eqsat.amounts import format_bytes
from examples.measure import difference, plain_peak, seconds_of, seconds_text
from examples.programs import Example, demo_examples

WIDTH = 100
PLAIN_SHARE = 0.5
"""Plain JAX is run where it needs at most this share of the memory that is free."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="a folder with MNIST (*-images*idx3-ubyte.gz)"
    )
    options = parser.parse_args()
    started = time.perf_counter()
    for example in demo_examples(options.data):
        show(example)
    print(f"All within budget, {time.perf_counter() - started:.0f} s in all.")


def show(example: Example) -> None:
    """Optimise, run and check one program, and print how that went."""
    print(f"{example.title}\n{'─' * WIDTH}", flush=True)
    arguments = example.arguments()
    budget = example.budget
    if isinstance(budget, float):
        budget = int(budget * plain_peak(example.function, arguments))
    optimized = eqsat.optimize(example.function, budget=budget)
    started = time.perf_counter()
    plan = optimized.plan(*arguments)
    planning = time.perf_counter() - started
    row("peak", f"plain {format_bytes(plan.original_peak_bytes)}", f"budget {format_bytes(budget)}",
        f"eqsat {format_bytes(plan.peak_bytes)}")  # fmt: skip
    result, seconds = timed(optimized, arguments)
    plain, plain_seconds = None, "does not fit"
    if plan.original_peak_bytes < PLAIN_SHARE * free_memory():
        plain, measured = timed(jax.jit(example.function), arguments)
        plain_seconds = seconds_text(measured)
    row(
        "time",
        f"plain {plain_seconds}",
        f"planning {seconds_text(planning)}",
        f"eqsat {seconds_text(seconds)}",
    )
    reference = example.reference(*arguments)
    error = f"{difference(example.part(result), reference):.1e}"
    plain_error = "–" if plain is None else f"{difference(example.part(plain), reference):.1e}"
    row("error", f"plain {plain_error}", f"({example.reference_note})", f"eqsat {error}")
    paragraph("loops", "; ".join(map(str, plan.loops)) or "none")
    fired = sorted(plan.rules_fired.items(), key=lambda item: -item[1])
    paragraph("rules", ", ".join(f"{name} {count}" for name, count in fired) or "none")
    print(flush=True)
    if plan.peak_bytes > budget:
        raise SystemExit("over budget: this is a bug, please report it")


def timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, float]:
    """The result of a call, and the seconds of one: the median of three after a first, if it is short."""
    started = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    first = time.perf_counter() - started
    if first > 5:
        return result, first
    return result, statistics.median(seconds_of(function, arguments) for _ in range(3))


def free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def row(label: str, *columns: str) -> None:
    print(f"  {label:<8}" + "".join(f"{column:<30}" for column in columns).rstrip(), flush=True)


def paragraph(label: str, text: str) -> None:
    indent = " " * 10
    wrapped = textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    print(f"  {label:<8}{wrapped.lstrip()}", flush=True)


if __name__ == "__main__":
    main()
