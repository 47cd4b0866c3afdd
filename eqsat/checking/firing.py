"""Runs the engine on the examples of a rule: whether the rule fires, and whether its results are right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice

import numpy as np

from eqsat.checking.absence import absence, told
from eqsat.checking.examples import Loaded, programs_of
from eqsat.checking.operations import operations_of
from eqsat.checking.oracle import Criterion, differs
from eqsat.checking.statement import directions, loops, statements
from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.saturate import Limits, Saturation, saturate
from eqsat.engine.snapshot import ENode, Snapshot
from eqsat.errors import EqsatError
from eqsat.ir.interpret import interpret
from eqsat.ir.operations import OperationSpec
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term
from eqsat.language.parse import parse_rules
from eqsat.language.syntax import ChunkOf, Comparison, Example, Fact, Rule
from eqsat.language.traverse import walk

LIMITS = Limits(seconds=5.0, algebra_rounds=3, loop_rounds=3)

MOST_STATEMENTS = 3
"""At most this many choices for a rule's function variables are tried on an example."""

NUMBER = 0
"""The number of the rule that is tried. E-nodes name the rule that made them by its number."""

SPLITS = """
rule split-result [exact]  a{n} => concat[n] chunk[n] a  where large(n), stored(a)
rule split-chunk [exact]  chunk[n] a{m} => concat[m] chunk[m] chunk[n] a  where tiled(m), stored(a)
"""


@dataclass(frozen=True)
class Outcome:
    """What the engine did with a program.

    **Attributes:**

    - `fired`: whether the rule added e-nodes or merged classes. A fact fires if it matches.
    - `made`: pairs of a term of the program and another that should be equal to it according to the rule.
      Terms with open loops are left out.
    """

    loaded: Loaded
    fired: bool
    made: tuple[tuple[Term, Term], ...]

    def wrong(self) -> bool:
        """Returns whether any of the pairs differ in value."""
        for before, after in self.made:
            program = replace(self.loaded.program, outputs=(_output(before), _output(after)))
            lengths = {axis: min(2, axis.size) for axis in program.axes() if axis.size}
            left, right = interpret(program, self.loaded.arrays, lengths)
            if differs(left, right, Criterion.FINITE):
                return True
        return False


def _output(term: Term) -> Output:
    return Output(term, tuple(sorted(term.axes)))


def outcomes(rule: Rule | Fact, example: Example) -> Iterator[Outcome]:
    """Yields what the engine does with each program that an example may stand for."""
    for loaded in programs(rule, example):
        yield _run(loaded, rule)


def programs(rule: Rule | Fact, example: Example, violated: Comparison | None = None) -> Iterator[Loaded]:
    """Yields the programs that an example may stand for, with the rule read from left to right.

    **Arguments:**

    - `violated`: a comparison that the programs violate.
    """
    (forward, *_) = directions(rule.as_rule() if isinstance(rule, Fact) else rule)
    for statement in islice(statements(forward), MOST_STATEMENTS):
        yield from programs_of(statement, example, violated)


def fires_on(rule: Rule | Fact, loaded: Loaded) -> bool:
    """Returns whether a rule fires on a program."""
    return _run(loaded, rule).fired


@lru_cache(maxsize=16)
def _compiled(rule: Rule | Fact, operations: tuple[OperationSpec, ...]) -> list[CompiledRule]:
    """Returns the compiled rule, with the rules that split terms into chunks if it needs them.

    What it compiles to depends on the `operations` that it names.

    The list is cached, since the engine keeps an e-graph for each list of rules.
    """
    splits = _splits(rule) if isinstance(rule, Rule) else []
    return [compile_rule(rule, NUMBER), *splits]


def fires(rule: Rule | Fact, example: Example) -> bool:
    """Returns whether a rule fires on any of the programs that an example may stand for."""
    return any(outcome.fired for outcome in outcomes(rule, example))


def stays(rule: Rule | Fact, reject: Example) -> bool:
    """Returns whether a `reject` is kept: the rule does not fire on all programs that it may stand for.

    It is kept if there is no such program, and one that does not fire is enough. For axes don't tell which
    of them a sum is over: `reject a: i k  b: i` of `sum[K] (a{K} * b{K})` is about the sum over k.
    """
    found = list(outcomes(rule, reject))
    return not found or not all(outcome.fired for outcome in found)


def why_not(rule: Rule | Fact, example: Example) -> str:
    """Returns the conditions that keep a rule from firing on an example, as a sentence, or "".

    Of the programs that the example may stand for, it is about the one on which fewest conditions fail.
    """
    found: list[tuple[int, str]] = []
    for loaded in programs(rule, example):
        instance = loaded.instance
        stated = instance.statement.rule
        absent = absence(stated, loaded.program, _splits(stated), loaded.large, LIMITS)
        if absent is not None and absent.conditions:
            axes = {name: instance.axes_of(name) for name in instance.values}
            found.append((len(absent.conditions), told(absent, axes)))
    return min(found, key=lambda one: one[0])[1] if found else ""


def _splits(rule: Rule) -> list[CompiledRule]:
    """Returns the rules that make the chunks, and the chunks of chunks, that a rule about chunks matches."""
    if not loops(rule):
        return []
    chunks = (node.operand for node in walk(rule.left) if isinstance(node, ChunkOf))
    return _compiled_splits()[: 2 if any(isinstance(inner, ChunkOf) for inner in chunks) else 1]


@cache
def _compiled_splits() -> list[CompiledRule]:
    rules = parse_rules(SPLITS, "split").rules
    return [compile_rule(rule, number) for number, rule in enumerate(rules, NUMBER + 1)]


def _run(loaded: Loaded, rule: Rule | Fact) -> Outcome:
    program, compiled = loaded.program, _compiled(rule, operations_of(rule))
    found = saturate(program, compiled, loaded.large, list(program.reachable()), LIMITS)
    matched = found.matches.get(compiled[0].name, 0) > 0
    if not matched or isinstance(rule, Fact):
        return Outcome(loaded, matched, ())
    made = tuple(_made(program, found.graph))
    nodes = (node for eclass in found.graph.classes for node in eclass.nodes)
    fired = bool(made) or any(node.maker == NUMBER for node in nodes) or _merges(loaded, compiled, found)
    return Outcome(loaded, fired, made)


def _merges(loaded: Loaded, compiled: list[CompiledRule], found: Saturation) -> bool:
    """Returns whether a rule merges classes of terms that the other rules made.

    It does if the graph has fewer classes with the rule than without it.
    """
    others = compiled[1:]
    if not others:
        return False
    terms = list(loaded.program.reachable())
    without = saturate(loaded.program, others, loaded.large, terms, LIMITS)
    return len(found.graph.classes) < len(without.graph.classes)


def _made(program: Program, graph: Snapshot) -> Iterator[tuple[Term, Term]]:
    """Yields closed terms of the program, each with a term that the rule found to be equal to it."""
    by_class: dict[int, Term] = {}
    for term in program.reachable():
        number = graph.class_of.get(term.number)
        if number is None:
            continue
        if number in by_class:
            yield by_class[number], term
        by_class.setdefault(number, term)
    for number, term in by_class.items():
        nodes = [node for node in graph.classes[number].nodes if node.maker == NUMBER]
        trees = _Trees(graph, program, number) if nodes else None
        for node in nodes:
            made = trees.term(node) if trees else None
            if made is not None and not made.open:
                yield term, made


class _Trees:
    """The smallest term of each class of a graph that does not contain one forbidden class."""

    def __init__(self, graph: Snapshot, program: Program, forbidden: int) -> None:
        self.program = program
        self.best: dict[int, ENode] = {}
        costs: dict[int, float] = {}
        changed = True
        while changed:
            changed = False
            for number, eclass in enumerate(graph.classes):
                if number == forbidden:
                    continue
                for node in eclass.nodes:
                    if all(child in costs for child in node.children):
                        cost = 1 + sum(costs[child] for child in node.children)
                        if cost < costs.get(number, np.inf):
                            costs[number], self.best[number] = cost, node
                            changed = True

    def term(self, node: ENode) -> Term | None:
        """Returns an e-node as a term, or None if that takes the forbidden class or is not well-formed."""
        if not all(child in self.best for child in node.children):
            return None
        operands = [self.term(self.best[child]) for child in node.children]
        if any(operand is None for operand in operands):
            return None
        try:
            return self.program.terms.make(node.op, [operand for operand in operands if operand is not None])
        except EqsatError:
            return None
