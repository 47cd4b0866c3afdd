"""Planning cut short, by its time limit or by Ctrl-C, gives what there is and leaves nothing broken."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.support import deadline
from tests.stages import normal

X, Y, V = normal(400, 3), normal(500, 3), normal(500)


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1) / 2) @ v


def test_a_program_that_fits_is_used_when_there_is_no_time() -> None:
    plan = eqsat.optimize(kernel, budget="1GB", planning_seconds=1e-9).plan(X, Y, V)
    assert not plan.changed
    assert plan.stop_reason == "planning time limit of 1e-09 s"
    assert "dot" in plan.source


def test_when_nothing_fits_in_time_the_error_says_what_to_raise() -> None:
    with pytest.raises(
        eqsat.BudgetError, match=r"(?s)cut short after planning_seconds=1e-09.*budget to [\d.]+ .B"
    ):
        eqsat.optimize(kernel, budget="100kB", planning_seconds=1e-9).plan(X, Y, V)


def test_without_a_limit_nobody_speaks_of_one() -> None:
    with pytest.raises(eqsat.BudgetError) as error:
        eqsat.optimize(kernel, budget="14.5kB").plan(X, Y, V)
    assert "planning_seconds" not in str(error.value)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_limit_is_a_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="above 0, or None"):
        eqsat.optimize(kernel, budget="1GB", planning_seconds=seconds)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("checks", [1, 3, 10, 30, 90, 200, 400, 100_000])
def test_wherever_the_time_runs_out_there_is_a_plan_that_fits_or_an_error(
    checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that advances by a second whenever it is looked at."""
    clock = itertools.count()
    monkeypatch.setattr(deadline.time, "monotonic", lambda: float(next(clock)))
    small = eqsat.optimize(kernel, budget="100kB", planning_seconds=checks)
    found, message = None, ""
    try:
        found = small.plan(X, Y, V)
    except eqsat.BudgetError as error:
        message = str(error)
    if found is None:
        assert checks < 100_000
        assert f"planning_seconds={checks:g}" in message
    else:
        assert found.peak_bytes <= 100_000
        np.testing.assert_allclose(small(X, Y, V), kernel(X, Y, V), rtol=1e-4)


INTERRUPTED = """
import signal, sys, time
import jax, jax.numpy as jnp
import eqsat

def kernel(x, y, v):
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1) / 2) @ v

def interrupt(signal, frame):
    raise KeyboardInterrupt

shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in [(400, 3), (500, 3), (500,)]]
began = time.perf_counter()
expected = eqsat.optimize(kernel, budget="100kB").plan(*shapes).source
whole = time.perf_counter() - began
signal.signal(signal.SIGALRM, interrupt)
small = eqsat.optimize(kernel, budget="100kB")
for part in (0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9):
    signal.setitimer(signal.ITIMER_REAL, part * whole)
    began = time.perf_counter()
    try:
        small.plan(*shapes)
        print("finished", end=" ")
    except KeyboardInterrupt:
        print("interrupted", end=" ")
        late = time.perf_counter() - began - part * whole
        assert late < 5, f"{late} s late"
    signal.setitimer(signal.ITIMER_REAL, 0)
    again = eqsat.optimize(kernel, budget="100kB").plan(*shapes).source
    assert again == expected, part
    small = eqsat.optimize(kernel, budget="100kB")
assert small.plan(*shapes).source == expected
"""


@pytest.mark.nightly
def test_after_ctrl_c_the_next_plan_is_as_ever() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stdout
