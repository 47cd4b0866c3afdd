"""Which rules can match in a program at all: most identities are about functions that it has not got.

A *symbol* is what an op is called: `exp`, `sum`, `dot`, `solve`, `delta`, or a property such as `spd`.
A rule can match if all symbols of its left side are in the program or can be made by rules that can
match. So a library of hundreds of rules costs a program only those that are about it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from eqsat.ir.ops import Delta, Dot, Iota, Map, Operation, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.language.syntax import (
    Apply,
    Contraction,
    DeltaOf,
    Expression,
    Fact,
    IotaOf,
    OperationOf,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
)
from eqsat.language.traverse import walk

if TYPE_CHECKING:
    from eqsat.engine.compile import CompiledRule


def symbols(rule: Rule | Fact, side: Expression) -> frozenset[str]:
    """The symbols that a side of a rule needs; function variables stand for many, and need none."""
    variables = dict(rule.classes) if isinstance(rule, Rule) else {}
    found = {known.name for known in rule.properties}
    for node in walk(side):
        match node:
            case Apply(function=name) | Reduction(kind=name) | OperationOf(name=name):
                found.add(name)
            case Contraction():
                found.add("dot")
            case IotaOf():
                found.add("iota")
            case DeltaOf():
                found.add("delta")
            case RenameOf():
                found.add("rename")
            case SelectionOf():
                found.add("top_k")
    return frozenset(found - set(variables))


def made(rule: Rule | Fact, side: Expression) -> frozenset[str]:
    """The symbols that a rule can bring into a program."""
    if isinstance(rule, Fact):
        return frozenset({rule.property})
    return symbols(rule, side) - {known.name for known in rule.properties}


def symbols_in(program: Program) -> set[str]:
    """The symbols of a program."""
    found = {fact.property for fact in program.facts}
    for term in program.known():
        match term.op:
            case Map(name=name) | Select(kind=name):
                found.add(name)
            case Reduce(kind=kind):
                found.add(kind)
            case Operation(spec=spec):
                found.add(spec.name)
            case Dot():
                found.add("dot")
            case Iota():
                found.add("iota")
            case Delta():
                found.add("delta")
            case Rename():
                found.add("rename")
    return found


def can_match(rule: CompiledRule, present: Set[str]) -> bool:
    """Whether the symbols that a rule needs are there."""
    return any(needed <= present for needed, _ in rule.needs)


def makes(rule: CompiledRule, present: Set[str]) -> frozenset[str]:
    """The symbols that a rule brings in where these are."""
    return frozenset[str]().union(*(made for needed, made in rule.needs if needed <= present))


def relevant(rules: Sequence[CompiledRule], present: Set[str]) -> list[CompiledRule]:
    """The rules that could ever match in a program of these symbols; in order."""
    reached = set(present)
    count = -1
    while len(reached) > count:
        count = len(reached)
        for rule in rules:
            reached |= makes(rule, reached)
    return [rule for rule in rules if can_match(rule, reached)]
