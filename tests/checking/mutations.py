"""Makes broken variants of rules systematically, which the checker has to catch.

A mutation changes one thing on the right side of a rule, leaves out one of its conditions, or claims a
better accuracy. Some mutants are no worse than the rule; `equivalent` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from eqsat.checking.conditions import conditions_of, text_of, without
from eqsat.language.accuracies import ACCURACIES
from eqsat.language.rewriting import with_operands
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    Comparison,
    Contraction,
    Expression,
    FoldOf,
    Guard,
    Number,
    OperationOf,
    Reduction,
    RenameOf,
    Rule,
    Variable,
)
from eqsat.language.traverse import canonical, operands, variables, walk

SIMILAR: dict[str, str] = {
    "exp": "tanh",
    "log": "sqrt",
    "tanh": "logistic",
    "sqrt": "rsqrt",
    "square": "abs",
    "abs": "neg",
    "max": "min",
    "min": "max",
    "lt": "le",
    "gt": "ge",
    "eq": "ne",
    "ne": "eq",
    "and": "or",
    "or": "and",
    "is_finite": "not",
    "mul": "add",
    "div": "mul",
}
"""For some functions, another one that an author may take for it."""

REDUCTIONS: dict[str, str] = {
    "sum": "max",
    "mean": "sum",
    "max": "min",
    "min": "max",
    "prod": "sum",
    "or": "and",
    "and": "or",
}

OPERATIONS: dict[str, str] = {
    "solve": "solve_lower",
    "solve_lower": "solve_upper",
    "solve_upper": "solve_lower",
    "logdet": "det",
    "det": "logdet",
    "logsumexp": "",
    "tril": "triu",
    "triu": "tril",
    "softmax": "sort",
}

SWAPPED = frozenset({"sub", "div", "pow", "lt", "le", "gt", "ge", "rem", "atan2"})
"""Functions that do not commute."""


@dataclass(frozen=True)
class Mutant:
    """A broken rule.

    **Attributes:**

    - `rule`: the broken rule.
    - `kind`: the kind of mutation.
    - `change`: what it changed, in words; unique among the mutants of a rule.
    """

    rule: Rule
    kind: str
    change: str

    def __str__(self) -> str:
        return f"{self.rule.qualified}: {self.kind}, {self.change}"


Edit = Callable[[Expression], Iterator[tuple[str, Expression]]]
"""Yields the ways to change a node: for each, a description and the changed node."""


def mutants(rule: Rule) -> Iterator[Mutant]:
    """Yields all broken variants of a rule; some of them may be equivalent to it."""
    for kind, edit in EDITS.items():
        for number, (change, right) in enumerate(
            edited(rule.right, lambda node, edit=edit: edit(node, rule))
        ):
            yield Mutant(replace(rule, right=right), kind, f"{change} ({number})")
    yield Mutant(
        replace(rule, right=_times(Number("2", rule.position), rule.right)), "factor doubled", "the side"
    )
    yield Mutant(replace(rule, right=Apply("neg", (rule.right,), rule.position)), "sign flipped", "the side")
    for condition in conditions_of(rule):
        yield Mutant(without(rule, condition), "condition removed", text_of(condition))
    for accuracy in ACCURACIES[: ACCURACIES.index(rule.accuracy)]:
        yield Mutant(replace(rule, accuracy=accuracy), "accuracy", accuracy)


def edited(node: Expression, edit: Edit) -> Iterator[tuple[str, Expression]]:
    """Yields the expression with one node changed, for all nodes and all changes."""
    yield from edit(node)
    below = operands(node)
    for place, operand in enumerate(below):
        for change, changed in edited(operand, edit):
            yield change, with_operands(node, (*below[:place], changed, *below[place + 1 :]))


def _times(number: Number, node: Expression) -> Expression:
    return Apply("mul", (number, node), node.position)


def _sign(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case Apply(function="add" | "sub" as name):
            yield f"{name} swapped", replace(node, function="sub" if name == "add" else "add")
        case Apply(function="neg", operands=(operand,)):
            yield "negation dropped", operand


def _dropped(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case Apply(function="mul" | "div" | "add" | "sub" | "max" | "min" as name, operands=(one, other)):
            yield f"second operand of {name}", one
            if name in ("mul", "add", "max", "min"):
                yield f"first operand of {name}", other
        case Contraction(left=left, right=right):
            yield "right factor of dot", Reduction("sum", node.axes, left, node.position)
            yield "left factor of dot", Reduction("sum", node.axes, right, node.position)
        case Reduction(operand=operand):
            yield f"{node.kind}", operand
        case Apply(function="exp" | "log" | "sqrt" | "square" as name, operands=(operand,)):
            yield name, operand
        case RenameOf(operand=operand) | ChunkOf(operand=operand):
            yield type(node).__name__, operand


def _similar(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case Apply(function=name) if name in SIMILAR:
            yield f"{name} to {SIMILAR[name]}", replace(node, function=SIMILAR[name])
        case Apply(exponent=int() as exponent):
            yield "exponent", replace(node, exponent=exponent + 1)
        case OperationOf(name=name) if OPERATIONS.get(name):
            yield f"{name} to {OPERATIONS[name]}", replace(node, name=OPERATIONS[name])


def _reduction(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case Reduction(kind=kind) if kind in REDUCTIONS:
            yield f"{kind} to {REDUCTIONS[kind]}", replace(node, kind=REDUCTIONS[kind])
        case Contraction(left=left, right=right):
            product = Apply("mul", (left, right), node.position)
            yield "dot to a maximum", Reduction("max", node.axes, product, node.position)


def _monoid(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case FoldOf(monoid=monoid, operands=(_,)):
            for other in ("sum", "max"):
                if other != monoid:
                    yield f"{monoid} to {other}", replace(node, monoid=other)
        case FoldOf(monoid=monoid):
            for other, declared in rule.monoids:
                if other != monoid and len(declared.state) == len(node.operands):
                    yield f"{monoid} to {other}", replace(node, monoid=other)
            yield "parts reversed", replace(node, operands=node.operands[::-1])


def _axes(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case OperationOf(axes=(one, other, *rest)):
            yield f"{one} and {other} of {node.name}", replace(node, axes=(other, one, *rest))
        case RenameOf(old=old, new=new):
            yield f"{old} and {new} of rename", replace(node, old=new, new=old)
        case Reduction(axes=axes) | Contraction(axes=axes):
            for name in sorted(_sets(rule) - set(axes)):
                yield f"{axes[0]} to {name}", replace(node, axes=(name,))


def _sets(rule: Rule) -> set[str]:
    """Returns the axes, and the sets of axes, over which the reductions of a rule go."""
    return {
        name
        for side in (rule.left, rule.right)
        for node in walk(side)
        if isinstance(node, Reduction | Contraction)
        for name in node.axes
    }


def _swapped(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    match node:
        case Apply(function=name, operands=(one, other)) if name in SWAPPED:
            yield f"operands of {name}", replace(node, operands=(other, one))
        case Apply(function="select_n", operands=(which, one, other)):
            yield "cases of select_n", replace(node, operands=(which, other, one))


def _constant(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    if isinstance(node, Number) and abs(node.value) != float("inf"):
        yield f"{node.text} and one", replace(node, text=repr(node.value + 1).removesuffix(".0"))


def _variable(node: Expression, rule: Rule) -> Iterator[tuple[str, Expression]]:
    if isinstance(node, Variable):
        for name in sorted({variable.name for variable in variables(rule.left)} - {node.name}):
            yield f"{node.name} to {name}", replace(node, name=name, has=(), lacks=())


EDITS: dict[str, Callable[[Expression, Rule], Iterator[tuple[str, Expression]]]] = {
    "sign flipped": _sign,
    "operand dropped": _dropped,
    "similar function": _similar,
    "wrong reduction": _reduction,
    "wrong monoid": _monoid,
    "axes swapped": _axes,
    "operands swapped": _swapped,
    "wrong constant": _constant,
    "wrong variable": _variable,
}
"""The changes to a right side, by kind of mutation."""


def equivalent(rule: Rule, mutant: Mutant) -> str:
    """Returns why a mutant is no worse than the rule, as far as its form tells, or "" if it should be."""
    if mutant.kind == "condition removed":
        condition = next(one for one in conditions_of(rule) if text_of(one) == mutant.change)
        if isinstance(condition, Guard) and condition.name in ("large", "tiled", "stored", "nonempty"):
            return "the condition says where the rule pays"
        if isinstance(condition, Comparison) and condition.relation != "=":
            return "the comparison says where the rule pays"
        return ""
    if mutant.kind == "accuracy":
        guard = rule.data_guard
        if guard and ACCURACIES.index(mutant.rule.accuracy) <= ACCURACIES.index(guard.accuracy):
            return "a rule with a guard that promises no more is refused when it is read"
        return ""
    if canonical(mutant.rule.left) == canonical(mutant.rule.right):
        return "the mutant says nothing"
    if canonical(even(mutant.rule.right)) == canonical(even(rule.right)):
        return "the side is as it was, up to what commutes and to signs of what is squared"
    if mutant.kind == "axes swapped" and mutant.change.split(" (")[0].endswith(TRANSPOSED):
        return "a transposed matrix has the same determinant, and the transposed inverse"
    return ""


TRANSPOSED = (" of det", " of logdet", " of inv", " of diagonal")


def even(node: Expression) -> Expression:
    """Returns the expression with the operands of a difference sorted wherever its sign has no effect."""
    below = tuple(map(even, operands(node)))
    match node:
        case Apply(function="square" | "abs") | Apply(function="integer_pow", exponent=2 | 4):
            (operand,) = below
            if isinstance(operand, Apply) and operand.function == "sub":
                below = (replace(operand, operands=tuple(sorted(operand.operands, key=repr))),)
    return with_operands(node, below)
