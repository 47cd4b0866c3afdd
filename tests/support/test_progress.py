"""What is shown while planning, and while loops run."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend import chunk_bar
from eqsat.support import progress
from eqsat.support.progress import CLEAR, Progress
from tests.kernels import BUDGET, V, X, Y, close, kernel


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "INTERVAL", 0.01)


def shown(text: str) -> list[str]:
    """The states of a terminal's line."""
    return [line for line in text.split(CLEAR) if line]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# Planning.


def test_a_line_follows_the_steps_and_is_gone_at_the_end() -> None:
    terminal = Terminal()
    with Progress("planning f", None, terminal) as work:
        for step in ("applying rules", "choosing"):
            work.say(step)
            until(lambda step=step: f" s): {step}…" in terminal.getvalue())  # type: ignore[misc]
    assert terminal.getvalue().endswith(CLEAR)
    assert re.fullmatch(r"eqsat: planning f \(\d+ s\): applying rules…", shown(terminal.getvalue())[0])


def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    terminal = Terminal()
    with Progress("planning f", None, terminal) as work:
        work.say("applying rules")
    assert terminal.getvalue() == ""


def test_the_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 5)))
    terminal = Terminal()
    with Progress("planning f", True, terminal):
        until(lambda: bool(shown(terminal.getvalue())))
    assert {len(line) for line in shown(terminal.getvalue())} == {19}


@pytest.mark.parametrize("wanted", [None, False])
def test_who_does_not_look_is_told_nothing(wanted: bool | None) -> None:
    file = io.StringIO()
    with Progress("planning f", wanted, file) as work:
        work.say("applying rules")
        time.sleep(0.1)
    assert file.getvalue() == ""


def test_false_is_never() -> None:
    terminal = Terminal()
    with Progress("planning f", False, terminal) as work:
        work.say("applying rules")
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_who_wants_it_in_a_file_gets_a_line_for_each_step() -> None:
    file = io.StringIO()
    with Progress("planning f", True, file) as work:
        for step in ("a", "a", "b"):
            work.say(step)
    assert file.getvalue() == "eqsat: planning f: a…\neqsat: planning f: b…\n"


def test_one_thread_at_a_time_has_the_line() -> None:
    terminal = Terminal()
    with Progress("planning f", True, terminal):
        until(lambda: "planning f" in terminal.getvalue())
        with Progress("planning g", True, terminal):
            time.sleep(0.05)
    assert "planning g" not in terminal.getvalue()
    with Progress("planning g", True, terminal):
        until(lambda: "planning g" in terminal.getvalue())


def test_errors_leave_no_line_and_no_thread() -> None:
    terminal = Terminal()
    with pytest.raises(ZeroDivisionError), Progress("planning f", True, terminal):
        until(lambda: bool(terminal.getvalue()) and 1 // 0)
    assert terminal.getvalue().endswith(CLEAR)
    assert not any(thread.name == "eqsat-progress" for thread in threading.enumerate())


def test_a_closed_file_is_no_reason_not_to_plan() -> None:
    file = io.StringIO()
    file.close()
    with Progress("planning f", True, file) as work:
        work.say("applying rules")
    broken = Terminal()
    broken.write = lambda text: os.write(-1, b"")  # type: ignore[method-assign]
    with Progress("planning f", True, broken):
        time.sleep(0.02)


def test_optimize_says_what_planning_is_at(capsys: pytest.CaptureFixture[str]) -> None:
    eqsat.optimize(kernel, budget=BUDGET).plan(X, Y, V)
    assert capsys.readouterr().err == ""
    eqsat.optimize(kernel, budget=BUDGET, progress=True).plan(X, Y, V)
    lines = capsys.readouterr().err.splitlines()
    assert "eqsat: planning kernel: applying rules…" in lines
    (compiling,) = (line for line in lines if "compiling candidate" in line)
    assert compiling.startswith("eqsat: planning kernel: compiling candidate 1 (")
    assert compiling.endswith(" of 60 kB)…")
    assert lines[-1] == "eqsat: planning kernel: stop, since a program that fits was found"


# Loops.


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs tell five times where they are, however quick they are."""
    monkeypatch.setattr("eqsat.compiler.candidate_compiler.updates", lambda seconds: 5)


def best(x: Any, y: Any, v: Any) -> Any:
    return jax.lax.top_k(jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1)), 3)


def two(x: Any, y: Any, v: Any) -> Any:
    """Two loops, one after the other."""
    return kernel(x, y, kernel(y, y, v))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fn", [kernel, best, two])
@pytest.mark.usefixtures("often")
def test_loops_that_tell_compute_the_same_in_the_same_memory(fn: Callable[..., Any]) -> None:
    silent, telling = (eqsat.optimize(fn, budget=BUDGET, progress=wanted) for wanted in (False, True))
    jax.tree.map(np.testing.assert_array_equal, telling(X, Y, V), silent(X, Y, V))
    plan, other = telling.plan(X, Y, V), silent.plan(X, Y, V)
    assert plan.loops == other.loops
    assert plan.peak_bytes <= other.peak_bytes + 1000
    count = sum(1 for line in plan.source.splitlines() if " = bar(" in line)
    assert count == len(plan.loops) > 0
    assert "bar(" not in other.source
    namespace: dict[str, Any] = {}
    exec(plan.source, namespace)  # without eqsat
    close(namespace["optimized"](X, Y, V), tuple(jax.tree.leaves(fn(X, Y, V))))


@pytest.mark.usefixtures("often")
def test_loops_tell_inside_jit_and_grad_too() -> None:
    telling = eqsat.optimize(kernel, budget=BUDGET, progress=True)
    close(jax.jit(telling)(X, Y, V), kernel(X, Y, V))
    assert "callback" in jax.jit(telling).lower(X, Y, V).as_text()
    gradient, plain = (jax.grad(lambda v, f=f: jnp.sum(f(X, Y, v))) for f in (telling, kernel))
    assert "callback" in jax.jit(gradient).lower(V).as_text()
    close(gradient(V), plain(V))


def test_quick_programs_have_no_bars() -> None:
    assert "bar(" not in eqsat.optimize(kernel, budget=BUDGET, progress=True).plan(X, Y, V).source


class Clock:
    """Time that goes by as it is told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def run(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, seconds: float, times: int = 1) -> str:
    """What the emitted bar shows of a loop over 1000 in 20 chunks that take so long each."""
    clock = Clock()
    monkeypatch.setattr(sys, "stderr", stderr)

    def callback(function: Callable[[], None]) -> None:
        jax.debug.callback(function)

    namespace: dict[str, Any] = {"sys": sys, "time": clock, "jnp": jnp, "lax": jax.lax, "jax": jax}
    exec(chunk_bar.FUNCTION, namespace)
    tell = eval(chunk_bar.bar_text(1, 2, "a", 1000, 50, most_updates=10), namespace)
    for _ in range(times):
        for start in range(0, 1000, 50):
            tell(start)
            jax.effects_barrier()
            clock.now += seconds
    return stderr.getvalue()


def test_a_bar_fills_and_is_gone_when_the_last_chunk_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(monkeypatch, Terminal(), seconds=1.0, times=2)
    states = [state.removesuffix("\x1b[K") for state in text.split("\r") if state]
    assert len(states) == 2 * (9 + 1)
    assert states[0] == "eqsat: loop 1 of 2 over a [" + "###".ljust(30) + "]  10%, 18 s left"
    assert states[8].endswith("]  90%, 2 s left")
    assert states[9] == ""


def test_a_quick_loop_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Terminal(), seconds=0.04) == ""


def test_a_file_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run(monkeypatch, io.StringIO(), seconds=2.0).splitlines()
    assert [line.split("]")[1] for line in lines] == [
        "  30%, 28 s left",
        "  60%, 16 s left",
        "  90%, 4 s left",
    ]
    assert not any("\r" in line for line in lines)
