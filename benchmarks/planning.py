"""Measures how long planning takes, and on which rules it spends the time.

    python -m benchmarks.planning [--rules N] [--accuracy CLASS]

The programs are those of the demo and a random one of about 500 equations. For each, reports the number of
e-nodes, why saturation stopped, and the processor seconds of saturation (the first one, which reads the
rules, and a later one) and of the search for plans. With `--rules`, also prints for each program the N rules
that took longest and the N that added most e-nodes. Writes `benchmarks/results/planning-<cpu>.json`, unless
`--rules` is given.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.records import write
from eqsat.engine.egraph import EGraph
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.program import Program
from eqsat.language.accuracies import ACCURACIES
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from examples import programs

Function = Callable[..., Any]


def shapes_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype), tree)


def arrays(*lengths: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in lengths)


def random_program(x: Any, y: Any, v: Any) -> Any:
    """Takes a hundred random steps on matrices of points and on matrices over all pairs of points."""
    rng = np.random.default_rng(1)
    points, pairs = [x, y], [jnp.exp(x @ y.T / 8)]
    for _ in range(100):
        a, b = (points[rng.integers(len(points))] for _ in range(2))
        steps = (
            lambda a, b: jnp.tanh(a) * b + a,
            lambda a, b: a - jnp.mean(b, 0),
            lambda a, b: pairs[rng.integers(len(pairs))] @ b / (1 + jnp.sum(a**2)),
            lambda a, b: jnp.where(a > 0, a, 0.1 * b),
            lambda a, b: a @ (b.T @ a) / 100,
        )
        kind = rng.integers(len(steps) + 1)
        if kind < len(steps):
            points.append(steps[kind](a, b))
        else:
            pairs.append(jnp.exp(-jnp.abs(a @ b.T)) + pairs[-1] / 2)
    return sum(jnp.sum(a) for a in points) + jnp.sum(pairs[-1] @ v)


GP = shapes_of(programs.sparse_gp_data(4000, 100))

CASES: dict[str, tuple[Function, tuple[Any, ...], int]] = {
    "kernel matvec": (programs.kernel_matvec, arrays((10**5, 3), (10**5, 3), (10**5,)), 500_000_000),
    "nearest neighbours": (programs.nearest_neighbours, arrays((60_000, 784), (10_000, 784)), 300_000_000),
    "attention": (programs.attention, arrays(*[(8192, 64)] * 3), 50_000_000),
    "sparse GP bound": (programs.sparse_gp_bound, GP, 4_000_000),
    "its gradient": (programs.sparse_gp, GP, 4_000_000),
    "random": (random_program, arrays((3000, 16), (3000, 16), (3000,)), 30_000_000),
}


@dataclass(frozen=True)
class Row:
    """The figures of one program; seconds are of processor time."""

    case: str
    equations: int
    nodes: int
    stop_reason: str
    banned: tuple[str, ...]
    first_seconds: float
    saturate_seconds: float
    search_seconds: float


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    began = time.thread_time()
    return action(), time.thread_time() - began


def measure(case: str, accuracy: str) -> Row:
    function, arguments, budget = CASES[case]
    closed = trace(function, arguments, {}).closed
    program, _ = lower(closed)
    rules = rules_for((), accuracy)

    def saturated() -> SearchSpace:
        return prepare(program, rules, budget, CPU)

    _, first = timed(saturated)
    saturated()  # reads the rules, which stay in memory
    search, again = timed(saturated)
    _, searching = timed(lambda: list(attempts(search, budget)))
    found = search.saturation
    return Row(
        case,
        len(closed.eqns),
        found.graph.node_count,
        found.stop_reason,
        found.banned,
        round(first, 3),
        round(again, 3),
        round(searching, 3),
    )


@contextmanager
def watched(seconds: Counter[str], growth: Counter[str]) -> Iterator[None]:
    """Records for each ruleset how long it ran, and how many e-nodes it added."""
    run = EGraph.run_ruleset

    def watching(graph: EGraph, name: str) -> tuple[bool, int]:
        before = graph.size()
        result, elapsed = timed(lambda: run(graph, name))
        seconds[name] += elapsed
        growth[name] += graph.size() - before
        return result

    EGraph.run_ruleset = watching  # type: ignore[method-assign]
    try:
        yield
    finally:
        EGraph.run_ruleset = run  # type: ignore[method-assign]


def print_rules(case: str, accuracy: str, most: int) -> None:
    function, arguments, budget = CASES[case]
    program: Program = lower(trace(function, arguments, {}).closed)[0]
    rules = rules_for((), accuracy)
    prepare(program, rules, budget, CPU)
    seconds: Counter[str] = Counter()
    growth: Counter[str] = Counter()
    prepare(program, rules, budget, CPU)
    with watched(seconds, growth):
        search = prepare(program, rules, budget, CPU)
    for ranking in (seconds, growth):
        for name, _ in ranking.most_common(most):
            rule = next((rule for rule in rules if rule.ruleset == name), None)
            called = rule.name if rule else name
            matches = search.saturation.matches.get(called, 0)
            variants = rule.text.count("(rule ") if rule else 0
            print(
                f"    {called:<42}{seconds[name]:7.3f} s{growth[name]:>8} e-nodes"
                f"{matches:>7} matches{variants:>4} variants"
            )
        print()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planning", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rules", type=int, default=0, metavar="N", help="also the N costliest rules")
    parser.add_argument("--accuracy", choices=ACCURACIES, default="reassociates")
    options = parser.parse_args()
    print(f"{'':<20}{'equations':>10}{'e-nodes':>9}{'first':>8}{'saturate':>10}{'search':>8}")
    rows = []
    for case in CASES:
        row = measure(case, options.accuracy)
        rows.append(row)
        stopped = row.stop_reason + (f"; stopped {', '.join(row.banned)}" if row.banned else "")
        print(
            f"{case:<20}{row.equations:>10}{row.nodes:>9}{row.first_seconds:8.2f}{row.saturate_seconds:10.2f}"
            f"{row.search_seconds:8.2f}  {stopped}"
        )
        if options.rules:
            print_rules(case, options.accuracy, options.rules)
    if not options.rules and options.accuracy == "reassociates":
        write("planning", rows)


if __name__ == "__main__":
    main()
