"""Which rules can match in a program at all: most identities are about functions that it has not got.

A *symbol* is what an op is called: `exp`, `sum`, `dot`, `solve`, `delta`, or a property such as `spd`.
A rule can match if all symbols of its left side are in the program or can be made by rules that can
match, and if each op of it that is right over another one is so in the e-graph, too. So a library of
hundreds of rules costs a program only those that are about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from eqsat.engine.compiled import CompiledRule
from eqsat.engine.encode import map_key
from eqsat.engine.schema import SYMBOLS
from eqsat.ir.ops import Delta, Dot, Iota, Map, Operation, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term


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


def pairs_in(program: Program) -> set[tuple[str, str]]:
    """The symbols of the ops of a program, and of those right under them."""
    found: set[tuple[str, str]] = set()
    for term in program.known():
        over = _symbol_in(term)
        if over and not isinstance(term.op, Operation):
            found.update((over, under) for under in map(_symbol_in, term.args) if under)
    return found


def _symbol_in(term: Term) -> str | None:
    """The e-graph's symbol of what computes a term; None if it has none."""
    match term.op:
        case Map() as op:
            return map_key(op)
        case Reduce(kind=name):
            return name
        case Operation(spec=spec):
            return spec.name
        case op:
            return SYMBOLS.get(type(op).__name__)


def can_match(
    rule: CompiledRule, present: Set[str], over: Callable[[tuple[str, str]], bool] = lambda pair: True
) -> bool:
    """Whether the symbols that a rule needs are there, one `over` the other."""
    return any(need.symbols <= present and all(map(over, need.pairs)) for need in rule.triggers)


def makes(rule: CompiledRule, present: Set[str]) -> frozenset[str]:
    """The symbols that a rule brings in where these are."""
    return frozenset[str]().union(*(need.made for need in rule.triggers if need.symbols <= present))


def relevant(rules: Sequence[CompiledRule], present: Set[str]) -> list[CompiledRule]:
    """The rules that could ever match in a program of these symbols; in order."""
    reached = set(present)
    count = -1
    while len(reached) > count:
        count = len(reached)
        for rule in rules:
            reached |= makes(rule, reached)
    return [rule for rule in rules if can_match(rule, reached)]
