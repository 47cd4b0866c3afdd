"""Measures the memory of one program in a process of its own, or runs it under a hard limit.

python -m benchmarks.fresh "kernel matvec"           # certified and measured bytes, as JSON
python -m benchmarks.fresh "kernel matvec" --limited # the same under a hard limit, then plain JAX under it
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

import eqsat
from benchmarks.memory_programs import PROGRAMS, Program

SLACK = 20_000_000
"""The bytes that a process may take beyond what is certified: stacks, code, and what libraries allocate."""

ROOT = Path(__file__).parent.parent


def status(key: str) -> int:
    """Returns a figure of this process in bytes, by its name in `/proc/self/status`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def settle() -> None:
    """Returns free memory to the operating system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def measured(program: Program) -> dict[str, Any]:
    """Returns the certified memory of a program, and the growth of this process when it runs, in bytes.

    The arguments are in memory before the run, so neither figure includes them.
    """
    arguments = [jax.block_until_ready(argument) for argument in program.arguments()]
    optimized = eqsat.optimize(program.function, budget=program.budget)
    plan = optimized.plan(*arguments)
    warm_up()
    settle()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest resident memory so far
    before = status("VmRSS")
    began = time.perf_counter()
    jax.block_until_ready(optimized(*arguments))
    return {
        "budget": plan.budget_bytes,
        "certified": plan.peak_bytes - plan.argument_bytes,
        "scratch": plan.scratch_bytes,
        "measured": status("VmHWM") - before,
        "plain": plan.original_peak_bytes - plan.argument_bytes,
        "arguments": plan.argument_bytes,
        "options": plan.options,
        "seconds": time.perf_counter() - began,
    }


def limited(program: Program) -> None:
    """Runs a program under a limit just above what is certified, and then plain JAX, which should fail.

    It prints a line of JSON after each run that finishes.
    """
    arguments = [jax.block_until_ready(argument) for argument in program.arguments()]
    optimized = eqsat.optimize(program.function, budget=program.budget)
    plan = optimized.plan(*arguments)
    plain = jax.jit(program.function).lower(*arguments).compile()
    warm_up()
    settle()
    room = plan.peak_bytes - plan.argument_bytes + SLACK
    limit = status("VmData") + room
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    jax.block_until_ready(optimized(*arguments))
    print(json.dumps({"finished": True, "room": room}), flush=True)
    jax.block_until_ready(plain(*arguments))
    print(json.dumps({"finished": True, "plain": True}), flush=True)


def warm_up() -> None:
    """Calls some operations, so that libraries load what they load on first use."""
    x = jax.numpy.eye(4)
    jax.block_until_ready([jax.numpy.linalg.cholesky(x), x @ x.T, jax.numpy.sort(x)])


def in_fresh_process(name: str, *options: str, timeout: float = 300) -> tuple[int, list[dict[str, Any]], str]:
    """Runs this module for one program; returns the exit code, the JSON lines that it printed, and stderr."""
    command = [sys.executable, "-m", "benchmarks.fresh", name, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, lines, done.stderr


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="One program in a process of its own.")
    parser.add_argument("name", choices=list(PROGRAMS))
    parser.add_argument("--limited", action="store_true", help="under a hard limit, then plain JAX under it")
    options = parser.parse_args(args)
    program = PROGRAMS[options.name]
    if options.limited:
        limited(program)
    else:
        print(json.dumps(measured(program)), flush=True)


if __name__ == "__main__":
    main()
