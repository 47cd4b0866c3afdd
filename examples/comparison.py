"""Compares a program in plain JAX with its optimised form, and prints peaks, times and errors."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import eqsat
from eqsat.support.units import format_bytes, parse_budget
from examples.measure import difference, has_room_for, interleaved, plain_peak, seconds_text

WIDTH = 100
LONG = 5.0
"""A function whose call takes longer than this, in seconds, is timed only once."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of one program with its optimised form.

    **Attributes:**

    - `budget`: the budget in bytes.
    - `peak`, `plain_peak`: the certified peaks in bytes.
    - `seconds`, `plain_seconds`: the median times of several calls. That of plain JAX is None if it was not
      run.
    - `error`, `plain_error`: the largest differences from the reference, relative to the largest entry of the
      array in question. They are None without a reference.
    - `result`, `plain`: the results of the optimised function and of plain JAX.
    - `functions`: the functions that were run, by name: `eqsat`, and `plain` if that was.
    """

    plan: eqsat.Plan
    budget: int
    plain_peak: int
    planning_seconds: float
    seconds: float
    plain_seconds: float | None
    error: float | None
    plain_error: float | None
    result: Any
    plain: Any
    functions: Mapping[str, Callable[..., Any]]

    @property
    def peak(self) -> int:
        return self.plan.peak_bytes


def compare(
    title: str,
    function: Callable[..., Any],
    *arguments: Any,
    budget: int | float | str,
    reference: Callable[..., Any] | None = None,
    part: Callable[[Any], Any] = lambda result: result,
    note: str = "float64, all of it",
    runs: int = 3,
    **options: Any,
) -> Comparison:
    """Optimises, runs and checks one program, and prints the comparison.

    **Arguments:**

    - `budget`: the budget, as for `eqsat.optimize`, or a float: a fraction of what plain JAX needs.
    - `reference`: computes from the arguments, in float64, what `part` of the result should be.
    - `note`: a description of the reference.
    - `options`: the other options of `eqsat.optimize`.

    **Raises:** `eqsat.BudgetError` if nothing fits, and `AssertionError` if a peak exceeds the budget.
    """
    print(f"{title}\n{'─' * WIDTH}", flush=True)
    allowed = (
        int(budget * plain_peak(function, arguments)) if isinstance(budget, float) else parse_budget(budget)
    )
    optimized = eqsat.optimize(function, budget=allowed, **options)
    started = time.perf_counter()
    plan = optimized.plan(*arguments)
    planning = time.perf_counter() - started
    assert plan.peak_bytes <= allowed, "over budget: this is a bug, please report it"
    # What the plan says is of one device of several.
    plain_bytes = plain_peak(function, arguments) if plan.devices else plan.original_peak_bytes
    _row("peak", f"plain {format_bytes(plain_bytes)}", f"budget {format_bytes(allowed)}",
         f"eqsat {format_bytes(plan.peak_bytes)}")  # fmt: skip
    fits = has_room_for(plain_bytes)
    functions = {"eqsat": optimized} | ({"plain": jax.jit(function)} if fits else {})
    timings = interleaved(functions, arguments, runs, LONG)
    ours, plain = timings["eqsat"], timings.get("plain")
    _row(
        "time",
        f"plain {seconds_text(plain.seconds)}" if plain else "plain does not fit",
        f"planning {seconds_text(planning)}",
        f"eqsat {seconds_text(ours.seconds)}",
    )
    errors: dict[str, float] = {}
    if reference is not None:
        truth = reference(*arguments)
        errors = {name: difference(part(timing.result), truth) for name, timing in timings.items()}
        plain_text = f"{errors['plain']:.1e}" if fits else "–"
        _row("error", f"plain {plain_text}", f"({note})", f"eqsat {errors['eqsat']:.1e}")
    _paragraph("loops", "; ".join(map(str, plan.loops)) or "none")
    fired = sorted(plan.rules_fired.items(), key=lambda item: -item[1])
    _paragraph("rules", ", ".join(f"{name} {count}" for name, count in fired) or "none")
    print(flush=True)
    return Comparison(
        plan=plan,
        budget=allowed,
        plain_peak=plain_bytes,
        planning_seconds=planning,
        seconds=ours.seconds,
        plain_seconds=plain and plain.seconds,
        error=errors.get("eqsat"),
        plain_error=errors.get("plain"),
        result=ours.result,
        plain=plain and plain.result,
        functions=functions,
    )


def in_double_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that runs the given one by plain JAX in float64, on the same numbers."""

    def widened(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return array.astype(np.float64) if jax.numpy.issubdtype(array.dtype, np.floating) else array

    def run(*arguments: Any) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, jax.jit(function)(*jax.tree.map(widened, arguments)))

    return run


def _row(label: str, *columns: str) -> None:
    print(f"  {label:<8}" + "".join(f"{column:<30}" for column in columns).rstrip(), flush=True)


def _paragraph(label: str, text: str) -> None:
    indent = " " * 10
    wrapped = textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    print(f"  {label:<8}{wrapped.lstrip()}", flush=True)
