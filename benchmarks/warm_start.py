"""Measures how long a process takes to start if its plan is on disk, stage by stage, beside plain JAX.

    python -m benchmarks.warm_start [PROGRAM...] [--starts N]

The stages are: importing eqsat after JAX; tracing; finding the plan (computing its name, lowering, reading,
emitting) and compiling it; and the excess of the first call over later ones. For plain JAX they are tracing,
lowering and compiling, and the excess of the first call. Every figure is the processor time of a fresh
process, the least of several, since other jobs only add to it. Writes
`benchmarks/results/warm-start-<cpu>.json` and `.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.records import markdown, write
from examples import programs

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Program:
    """A function, its arguments, and a budget."""

    function: Callable[..., Any]
    arguments: Callable[[], Sequence[Any]]
    budget: str


@dataclass(frozen=True)
class Start:
    """The stages of one start, in milliseconds of processor time.

    **Attributes:**

    - `importing`: importing eqsat when JAX is imported already.
    - `tracing`, `plain_tracing`: tracing by eqsat and by `jax.jit`.
    - `finding`: finding the plan on disk and compiling it.
    - `first`, `plain_first`: the excess of the first call over the fastest of the later ones.
    - `plain_compiling`: lowering and compiling by `jax.jit`.
    """

    importing: float = 0.0
    tracing: float = 0.0
    finding: float = 0.0
    first: float = 0.0
    plain_tracing: float = 0.0
    plain_compiling: float = 0.0
    plain_first: float = 0.0

    @property
    def besides_tracing(self) -> float:
        """The sum of eqsat's stages without tracing."""
        return self.importing + self.finding + self.first


def network_step(weights: Any, x: Any, y: Any) -> Any:
    """Takes a step of gradient descent for a network with one hidden layer."""

    def loss(weights: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1] - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, gradient)


def kernel_gradient(x: Any, y: Any, v: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(programs.kernel_matvec(x, y, v) ** 2))(x)


def matrix_solve(x: Any, v: Any) -> Any:
    distances = (x[:, None] - x[None]) ** 2
    return jnp.linalg.solve(jnp.exp(-distances) + jnp.eye(len(x)), v)


def recurrence(weights: Any, x: Any) -> Any:
    """Returns for every state of a recurrent network its largest product with any of the states."""

    def step(state: Any, value: Any) -> Any:
        state = jnp.tanh(state @ weights + value)
        return state, state

    _, states = jax.lax.scan(step, jnp.zeros(len(weights)), x)
    return jnp.max(states @ states.T, axis=1)


def numbers(*shapes: tuple[int, ...]) -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


PROGRAMS: Mapping[str, Program] = {
    "nothing to plan": Program(jnp.sin, lambda: numbers((1000,)), "1MB"),
    "kernel matvec": Program(programs.kernel_matvec, lambda: programs.kernel_data(2000), "4MB"),
    "its gradient": Program(kernel_gradient, lambda: programs.kernel_data(2000), "4MB"),
    "nearest neighbours": Program(programs.nearest_neighbours, lambda: numbers((20_000, 8), (100, 8)), "3MB"),
    "attention": Program(programs.attention, lambda: programs.attention_data(2000), "6MB"),
    "network step": Program(
        network_step,
        lambda: [numbers((50, 1000), (1000, 3)), *numbers((1000, 50), (1000, 3))],
        "3MB",
    ),
    "recurrence": Program(recurrence, lambda: numbers((30, 30), (2000, 30)), "3MB"),
    "solve (LAPACK)": Program(matrix_solve, lambda: numbers((500,), (500,)), "3MB"),
    "sparse GP and gradient (LAPACK)": Program(
        programs.sparse_gp, lambda: programs.sparse_gp_data(3000, 50), "2MB"
    ),
}


# In a process of its own.


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the milliseconds of processor time, over all threads, that an action takes, and its result."""
    began = time.process_time()
    result = jax.block_until_ready(action())
    return 1e3 * (time.process_time() - began), result


def excess(function: Callable[..., Any], arguments: Sequence[Any]) -> float:
    """Returns by how many milliseconds the first call is longer than the fastest of the next five."""
    first, *others = (timed(lambda: function(*arguments))[0] for _ in range(6))
    return max(first - min(others), 0.0)


def one_start(program: Program, plain: bool) -> Start:
    """Measures the stages of this process's start, once the program's arguments are in memory."""
    arguments = jax.block_until_ready(jax.tree.map(jnp.asarray, list(program.arguments())))
    if plain:
        tracing, traced = timed(lambda: jax.jit(program.function).trace(*arguments))
        compiling, compiled = timed(lambda: traced.lower().compile())
        return Start(
            plain_tracing=tracing, plain_compiling=compiling, plain_first=excess(compiled, arguments)
        )

    def imported() -> Any:
        import eqsat

        return eqsat.optimize

    importing, optimize = timed(imported)
    optimized = optimize(program.function, budget=program.budget)
    tracing, _ = timed(lambda: optimized.program(*arguments))
    finding, plan = timed(lambda: optimized.plan(*arguments))
    if "reading" not in plan.planning_seconds:
        raise SystemExit(3)
    return Start(importing, tracing, finding, excess(optimized, arguments))


# In the main process.


def start(name: str, folder: str, plain: bool = False) -> Start | None:
    """Measures one start in a fresh process; returns None if that process had to plan."""
    command = [sys.executable, "-m", "benchmarks.warm_start", "--one", name, *(["--plain"] if plain else [])]
    environment = {**os.environ, "EQSAT_CACHE_DIR": folder}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode == 3:
        return None
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return Start(**json.loads(done.stdout))


def measured(name: str, starts: int) -> Start:
    """Returns the least time of each stage over several starts, after one that plans and stores the plan.

    eqsat and plain JAX start in turns.
    """
    with tempfile.TemporaryDirectory() as folder:
        if start(name, folder) is not None:
            raise SystemExit(f"{name} was planned before: where from?")
        found: list[dict[str, float]] = []
        for _ in range(starts):
            ours, plain = start(name, folder), start(name, folder, plain=True)
            if ours is None or plain is None:
                raise SystemExit(f"{name} is planned in every process")
            rest = {key: value for key, value in asdict(plain).items() if key.startswith("plain_")}
            found.append({**asdict(ours), **rest})
    return Start(**{key: min(each[key] for each in found) for key in found[0]})


def table(rows: Mapping[str, Start]) -> str:
    heading = ["program", "import", "trace", "find and compile", "first call", "besides tracing",
               "plain: trace", "lower and compile", "first call"]  # fmt: skip
    lines = []
    for name, row in rows.items():
        figures = (row.importing, row.tracing, row.finding, row.first, row.besides_tracing,
                   row.plain_tracing, row.plain_compiling, row.plain_first)  # fmt: skip
        lines.append([name, *(f"{figure:.0f}" for figure in figures)])
    return markdown(heading, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(asdict(one_start(PROGRAMS[arguments.one], arguments.plain))))
        return
    rows = {}
    for name in arguments.programs or PROGRAMS:
        rows[name] = measured(name, arguments.starts)
        print(f"{name}: {rows[name].besides_tracing:.0f} ms besides tracing", flush=True)
    print(table(rows))
    if not arguments.programs:
        what = f"Milliseconds of processor time, the least of {arguments.starts} fresh processes."
        text = f"{what}\n\n{table(rows)}"
        write("warm-start", [{"program": name, **asdict(row)} for name, row in rows.items()], text)


if __name__ == "__main__":
    main()
