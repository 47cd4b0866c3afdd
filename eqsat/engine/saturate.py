"""Running the rules: algebra first, then loops, within limits, and saying why it stopped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat.engine.compile import CompiledRule
from eqsat.engine.egraph import EGraph, EGraphError
from eqsat.engine.encode import encode_program
from eqsat.engine.relevance import relevant
from eqsat.engine.schema import BOOKKEEPING
from eqsat.engine.snapshot import Snapshot, snapshot
from eqsat.errors import RuleError
from eqsat.ir.axis import Axis
from eqsat.ir.program import Program
from eqsat.ir.term import Term


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop.

    **Attributes:**

    - `algebra_growth`: e-nodes that algebra may add, for each e-node of the program.
    - `loop_nodes`: e-nodes that taking chunks may add.
    - `seconds`: time for each phase.
    - `algebra_rounds`, `loop_rounds`: times that each rule of a phase runs.
    - `rule_matches`: a rule that matches more often than this in one round is banned from then on.
    """

    algebra_growth: int = 6
    loop_nodes: int = 12_000
    seconds: float = 1.0
    algebra_rounds: int = 10
    loop_rounds: int = 200
    rule_matches: int = 20_000


@dataclass(frozen=True, slots=True)
class Saturation:
    """The graph that came out.

    **Attributes:**

    - `matches`: by rule name, how often it matched.
    - `stop_reason`: "saturated", or the limit that stopped it.
    - `banned`: rules that were stopped because they exploded.
    """

    graph: Snapshot
    matches: dict[str, int]
    stop_reason: str
    banned: tuple[str, ...]
    seconds: float


def saturate(
    program: Program,
    rules: Sequence[CompiledRule],
    large: Iterable[Axis],
    stored: Iterable[Term],
    limits: Limits | None = None,
) -> Saturation:
    """Load a program, run the rules on it, and take a snapshot.

    **Arguments:**

    - `large`: axes that may be split into chunks.
    - `stored`: terms that may be computed piece by piece.
    """
    limits = limits or Limits()
    began = time.perf_counter()
    graph = EGraph()
    rules = relevant(rules, program)
    for rule in rules:
        try:
            graph.run_text(rule.text)
        except EGraphError as error:
            where = f"{rule.rule.position}: rule {rule.name}"
            raise RuleError(f"{where}: its left side leaves a name open ({error})") from error
    numbers = sorted(frozenset[float]().union(*(rule.numbers for rule in rules)))
    copies = any(rule.copies for rule in rules)
    blocks, symbols = encode_program(program, large, stored, numbers, copies)
    for rule in rules:
        symbols.monoids.update(rule.monoids)
    for block in blocks:
        graph.run_text(block)
    while graph.run_ruleset(BOOKKEEPING)[0]:
        pass
    matches: Counter[str] = Counter()
    banned: list[CompiledRule] = []
    algebra = [rule for rule in rules if not rule.splits]
    growth = 500 + limits.algebra_growth * graph.size()
    reason = _run_phase(graph, algebra, limits, limits.algebra_rounds, growth, matches, banned)
    loops = [rule for rule in rules if rule.splits]
    loop_reason = _run_phase(graph, loops, limits, limits.loop_rounds, limits.loop_nodes, matches, banned)
    if loop_reason != "saturated":
        reason = loop_reason
    result = snapshot(graph.dump(), symbols, program)
    names = tuple(rule.name for rule in banned)
    return Saturation(result, dict(matches), reason, names, time.perf_counter() - began)


def _run_phase(
    graph: EGraph,
    rules: Sequence[CompiledRule],
    limits: Limits,
    rounds: int,
    growth: int,
    matches: Counter[str],
    banned: list[CompiledRule],
) -> str:
    """Run each rule once a round until nothing changes or a limit is met; the reason."""
    deadline = time.perf_counter() + limits.seconds
    most = graph.size() + growth
    active = list(rules)
    for _ in range(rounds):
        changed = False
        for rule in list(active):
            updated, count = graph.run_ruleset(rule.ruleset)
            changed = changed or updated
            matches[rule.name] += count
            if count > limits.rule_matches:
                banned.append(rule)
                active.remove(rule)
            if time.perf_counter() > deadline:
                return f"time limit of {limits.seconds} s"
            if updated and graph.size() > most:
                return f"limit of {growth} new e-nodes"
        while graph.run_ruleset(BOOKKEEPING)[0]:
            changed = True
        if not changed:
            return "saturated"
    return f"limit of {rounds} rounds"
