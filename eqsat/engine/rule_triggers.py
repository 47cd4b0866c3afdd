"""The symbols that a rule needs in a program to match, and those that it adds, from its two sides.

A *symbol* is the name of an op, `exp`, `sum`, `dot`, `solve`, `delta`, or of a property such as `spd`.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.engine.compiled import Triggers
from eqsat.engine.schema import SYMBOLS
from eqsat.language.functions import PLACES
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Expression,
    Fact,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import operands, walk


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


def triggers(rule: Rule | Fact, left: Expression, right: Expression) -> Triggers:
    """The triggers of a rule from left to right."""
    return Triggers(symbols(rule, left), _pairs(rule, left), made(rule, right))


def _pairs(rule: Rule | Fact, side: Expression) -> frozenset[tuple[str, str]]:
    """The symbols of ops of a side, and of those right under them, as `schema.SYMBOLS` has them."""
    variables = dict(rule.classes) if isinstance(rule, Rule) else {}
    found: set[tuple[str, str]] = set()
    for node in walk(side):
        over = None if isinstance(node, OperationOf) else _symbol(node, variables)
        under = (_symbol(operand, variables) for operand in operands(node)) if over else ()
        found.update((over, symbol) for symbol in under if over and symbol)
    return frozenset(found)


def _symbol(node: Expression, variables: Mapping[str, str]) -> str | None:
    """The e-graph's symbol of an op; None if there are many."""
    match node:
        case Variable() | Apply(function="convert"):
            return None
        case Apply(function=name) | Reduction(kind=name) if name in variables:
            return None
        case Apply(function=name, exponent=exponent):
            return name if exponent is None else f"{name}[{exponent}]"
        case Reduction(kind=name):
            return SYMBOLS["Select"] if name in PLACES else name
        case OperationOf(name=name):
            return name
        case _:
            return SYMBOLS[_CONSTRUCTORS[type(node)]]


_CONSTRUCTORS: Mapping[type[Expression], str] = {
    Number: "Const",
    Contraction: "Dot",
    IotaOf: "Iota",
    DeltaOf: "Delta",
    RenameOf: "Rename",
    SelectionOf: "Select",
    ChunkOf: "Chunk",
    ConcatOf: "Concat",
    FoldOf: "Fold",
}
