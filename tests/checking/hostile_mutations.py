"""Makes broken variants of rules that only hostile data reveals.

A mutated right side has the same values over the real numbers. It differs where integers wrap around, and in
signs of zero, ranges, infinities and NaN. Guards, facts and monoids are also weakened or strengthened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from eqsat.checking.statement import directions, statements
from eqsat.checking.typing import kinds_of
from eqsat.ir import formula, guard
from eqsat.ir.formula import Formula, Monoid
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.syntax import (
    Apply,
    Contraction,
    DataGuard,
    Expression,
    Fact,
    FoldOf,
    Guard,
    MonoidDeclaration,
    Number,
    Reduction,
    Rule,
)

BY_DIFFERENCE = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})

BY_COMPARISON = {"max": "gt", "min": "lt"}

LARGE = "1e30"
"""A factor by which numbers are multiplied and divided, so that moderate ones over- or underflow."""

LARGEST = "3e38"
"""A number near the largest one of single precision."""


# --------------------------------------------------------------------------------- whole right sides


def whole_sides(rule: Rule) -> Iterator[tuple[str, str, Rule]]:
    """Yields the rule with its whole right side changed, after the kind of mutation and a description."""
    right, position = rule.right, rule.position

    def number(text: str) -> Number:
        return Number(text, position)

    def made(function: str, *operands: Expression) -> Expression:
        return Apply(function, operands, position)

    floats = limited(rule, "f", "float")
    if keeps_specials(rule) and floats is not None:
        up = made("div", made("mul", right, number(LARGE)), number(LARGE))
        down = made("mul", made("div", right, number(LARGE)), number(LARGE))
        yield "range", "multiplied and divided", replace(floats, right=up)
        yield "range", "divided and multiplied", replace(floats, right=down)
        number_else_zero = made("select_n", made("eq", right, right), number("0"), right)
        yield "not a number", "NaN made 0", replace(floats, right=number_else_zero)
        finite = made("max", made("min", right, number(LARGEST)), number(f"-{LARGEST}"))
        yield "infinity", "infinities made numbers", replace(floats, right=finite)
        negative = made("neg", made("sub", number("0"), right))
        yield "sign of zero", "zero made negative", replace(floats, right=negative)
        positive = made("add", right, number("0"))
        yield "sign of zero", "zero made positive", replace(floats, right=positive)
    integers = limited(rule, "i", "integer")
    if integers is not None:
        doubled = made("div", made("mul", right, number("2")), number("2"))
        yield "wrapping", "doubled and halved", replace(integers, right=doubled)
        lowered = made("max", right, made("sub", right, number("8")))
        yield "wrapping", "no less than a smaller one", replace(integers, right=lowered)


def limited(rule: Rule, kind: str, condition: str) -> Rule | None:
    """Returns the rule for one kind of numbers only, or None if its sides are never of that kind."""
    statement = next(statements(directions(rule)[0]), None)
    if statement is None:
        return None
    fitting = [kinds for kinds in kinds_of(statement) if kinds.nodes[id(statement.rule.left)] == kind]
    if not fitting:
        return None
    named = [name for name, found in fitting[0].variables.items() if found == kind]
    known = {variable for variable in named if not rule.classes}
    guards = [Guard(condition, (name,), rule.position) for name in sorted(known)[:1]]
    return replace(rule, guards=(*rule.guards, *guards), examples=())


def keeps_specials(rule: Rule) -> bool:
    """Returns whether a rule promises anything about infinities, NaN and signs of zero."""
    return ACCURACIES.index(rule.accuracy) <= ACCURACIES.index("reassociates")


def equivalent(rule: Rule, kind: str, change: str) -> str:
    """Returns why a mutant is no worse than the rule, as far as its form tells, or "" if it should be."""
    sums = any(
        isinstance(side, Reduction | Contraction | FoldOf)
        and getattr(side, "kind", getattr(side, "monoid", "sum")) in ("sum", "mean")
        for side in (rule.left, rule.right)
    )
    if kind == "sign of zero" and change.startswith("zero made positive") and sums:
        return "a sum is never -0: it begins at 0"
    return ""


# --------------------------------------------------------------------------------- single nodes


def by_difference(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    """Compares a difference with 0: the difference wraps around, and that of two infinities is NaN."""
    match node:
        case Apply(function=name, operands=(one, other)) if name in BY_DIFFERENCE:
            difference = Apply("sub", (one, other), node.position)
            yield f"{name} by a difference", replace(node, operands=(difference, Number("0", node.position)))


def by_comparison(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    """Computes maxima and minima by a comparison, which loses a NaN in one of the operands."""
    match node:
        case Apply(function="max" | "min" as name, operands=(one, other)):
            for first, second in ((one, other), (other, one)):
                larger = Apply(BY_COMPARISON[name], (first, second), node.position)
                yield f"{name} by a comparison", Apply("select_n", (larger, second, first), node.position)


def by_product(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    """Chooses by products with a mask: an infinity that is not chosen becomes NaN, since 0 * inf is NaN."""
    match node:
        case Apply(function="select_n", operands=(mask, one, other)):
            masks = (Apply("not", (mask,), node.position), mask)
            products = tuple(
                Apply("mul", (Apply("convert", (chosen,), node.position), case), node.position)
                for chosen, case in zip(masks, (one, other), strict=True)
            )
            yield "select_n by products", Apply("add", products, node.position)


def negated_difference(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    """Writes `a - b` as `-(b - a)`, which is -0 where the operands are equal."""
    match node:
        case Apply(function="sub", operands=(one, other)):
            yield "a difference negated", Apply("neg", (replace(node, operands=(other, one)),), node.position)


def absolute_value(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case Apply(function="abs", operands=(operand,)):
            yield "abs dropped", operand


NODES: dict[str, Callable[[Expression, Rule], Iterator[tuple[str, Expression]]]] = {
    "comparison by difference": by_difference,
    "maximum by comparison": by_comparison,
    "choice by product": by_product,
    "negated difference": negated_difference,
    "absolute value dropped": absolute_value,
}
"""The functions that yield changed nodes, by kind of mutation."""


# --------------------------------------------------------------------------------- guards


def guards(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yields the rule with a guard that accepts more data, or that promises a better accuracy."""
    data = rule.data_guard
    if data is None:
        return
    tests = data.guard.tests
    for place, test in enumerate(tests):
        if len(tests) > 1:
            fewer = replace(data.guard, tests=(*tests[:place], *tests[place + 1 :]))
            yield f"test {place} dropped", replace(rule, data_guard=replace(data, guard=fewer))
        if test.relation not in ("<", "<="):
            continue
        bound = guard.GuardFunction("mul", (test.right, guard.Literal(1e6)))
        loose = (*tests[:place], replace(test, right=bound), *tests[place + 1 :])
        changed = replace(data, guard=replace(data.guard, tests=loose))
        yield f"test {place} loosened", replace(rule, data_guard=changed)
    promised: Accuracy
    for promised in ACCURACIES[: ACCURACIES.index(data.accuracy)]:
        better = DataGuard(promised, data.guard)
        yield f"said to be {promised}", replace(rule, data_guard=better)


# --------------------------------------------------------------------------------- facts


STRONGER = {"nonnegative": "positive", "symmetric": "spd"}


def facts(fact: Fact) -> Iterator[tuple[str, Fact]]:
    """Yields the fact without one of its conditions, or with a stronger property."""
    for place, one in enumerate(fact.guards):
        rest = (*fact.guards[:place], *fact.guards[place + 1 :])
        yield f"{one.name}({', '.join(one.operands)}) removed", replace(fact, guards=rest)
    for place, known in enumerate(fact.properties):
        less = (*fact.properties[:place], *fact.properties[place + 1 :])
        yield f"{known.name} {known.term} removed", replace(fact, properties=less)
    if fact.property in STRONGER:
        yield f"made {STRONGER[fact.property]}", replace(fact, property=STRONGER[fact.property])


# --------------------------------------------------------------------------------- monoids


def monoids(declared: MonoidDeclaration) -> Iterator[tuple[str, Monoid]]:
    """Yields the monoid with another identity, or with another merge of one part of its state."""
    monoid = declared.monoid
    for place, (part, constant) in enumerate(zip(monoid.state, monoid.identity, strict=True)):
        for text in {"-inf": ("0", "-1e30", "inf"), "0": ("1", "-1")}.get(constant.text, ("2",)):
            identity = (*monoid.identity[:place], formula.Constant(text), *monoid.identity[place + 1 :])
            yield f"{part} begins as {text}", replace(monoid, identity=identity)
    for place, (part, merge) in enumerate(zip(monoid.state, monoid.merge, strict=True)):
        for number, (change, changed) in enumerate(_formulas(merge)):
            merges = (*monoid.merge[:place], changed, *monoid.merge[place + 1 :])
            yield f"{part}: {change} ({number})", replace(monoid, merge=merges)


def _formulas(node: Formula) -> Iterator[tuple[str, Formula]]:
    match node:
        case formula.Application(function="select_n", operands=(_, one, other)):
            yield "select_n dropped", one
            yield "the other case of select_n", other
        case formula.Application(function="add" | "sub" as name):
            yield f"{name} swapped", replace(node, function="sub" if name == "add" else "add")
        case formula.Application(function="max" | "min" as name, operands=(one, other)):
            yield f"{name} dropped", one
        case formula.Application(function="mul", operands=(one, other)):
            yield "factor dropped", one
    if isinstance(node, formula.Application):
        for place, operand in enumerate(node.operands):
            for change, changed in _formulas(operand):
                below = (*node.operands[:place], changed, *node.operands[place + 1 :])
                yield change, replace(node, operands=below)
