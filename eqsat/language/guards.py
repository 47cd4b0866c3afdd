"""Turns the items of a `guard` clause, which parse as expressions, into tests of the data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.guard import (
    BOUNDS,
    OVERALL,
    RELATIONS,
    Along,
    Bound,
    Count,
    Given,
    Guard,
    GuardFunction,
    Inequality,
    Literal,
    Overall,
    given,
)
from eqsat.ir.guard import Expression as Scalar
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.diagnostics import Rejection, alternatives, counted, nearest
from eqsat.language.functions import REDUCTIONS
from eqsat.language.syntax import (
    Apply,
    DataGuard,
    Expression,
    Number,
    Position,
    Reduction,
    Variable,
)
from eqsat.language.traverse import is_set, operator_axes, variables, walk


@dataclass(frozen=True, slots=True)
class GuardComparison:
    """`left relation right` as written in a `guard` clause."""

    left: Expression
    relation: str
    right: Expression
    position: Position


@dataclass(frozen=True, slots=True)
class GuardClause:
    """A `guard` clause as written, with the accuracy class that it promises."""

    accuracy: Accuracy
    tests: tuple[GuardComparison, ...]
    position: Position


def data_guard_of(
    clauses: Sequence[GuardClause], accuracy: Accuracy, left: Expression, both_ways: bool
) -> DataGuard | None:
    """Returns the guard that a rule's `guard` clauses state, or None if it has no such clause.

    **Arguments:**

    - `clauses`: the rule's clauses, of which there may be at most one.
    - `accuracy`: the rule's class for data that does not pass the guard.
    - `left`: the rule's left side, which binds the names in the guard.
    - `both_ways`: whether the rule is written with `==`; such a rule may have no guard.

    **Raises:** `Rejection` if the guard makes no sense, or does not promise a better class.
    """
    if not clauses:
        return None
    clause, *others = clauses
    if others:
        message = "there is already a guard"
        raise Rejection(others[0].position, message, "write all tests in one `guard`, separated by `,`")
    if both_ways:
        message = "a rule with a guard cannot rewrite both ways"
        raise Rejection(clause.position, message, "write `=>` to rewrite from left to right only")
    if ACCURACIES.index(clause.accuracy) >= ACCURACIES.index(accuracy):
        message = f"the rule is [{accuracy}], and its guard promises no better: [{clause.accuracy}]"
        better = ACCURACIES[: ACCURACIES.index(accuracy)]
        hint = f"a guard must promise a better class: {alternatives(better)}"
        if not better:
            hint = "an exact rule needs no guard"
        raise Rejection(clause.position, message, hint)
    reader = _Reader(left)
    tests = tuple(reader.test(test) for test in clause.tests)
    scalars = [node for test in tests for side in (test.left, test.right) for node in given(side)]
    names = {node.name for node in scalars if isinstance(node, Given)}
    names |= {node.variable for node in scalars if isinstance(node, Bound)}
    axes = {node.name for node in scalars if isinstance(node, Count)}
    axes |= {axis for node in scalars if isinstance(node, Along) for axis in node.axes}
    return DataGuard(clause.accuracy, Guard(tuple(sorted(names)), tuple(sorted(axes)), tests))


class _Reader:
    """Reads the tests of one rule, whose left side binds the names."""

    def __init__(self, left: Expression) -> None:
        self.terms = {variable.name for variable in variables(left)}
        # The variable of `f(a..)` stands for several operands, so it has no single value to test.
        several = [node for node in walk(left) if isinstance(node, Apply) and node.variadic]
        self.terms -= {variable.name for node in several for variable in variables(node)}
        self.axes = {axis for node in walk(left) for axis in operator_axes(node)}
        self.axes |= {axis for variable in variables(left) for axis in variable.has if not is_set(axis)}

    def test(self, test: GuardComparison) -> Inequality:
        if test.relation not in RELATIONS:
            message = f"a guard cannot test `{test.relation}`"
            hint = "compare numbers by `<`, `<=`, `>` or `>=`, which are false for NaN"
            raise Rejection(test.position, message, hint)
        if not any(isinstance(node, Variable) for side in (test.left, test.right) for node in walk(side)):
            hint = "test a variable: `max(abs(a)) <= largest(a)`"
            raise Rejection(test.position, "this does not depend on the data", hint)
        return Inequality(test.relation, self.scalar(test.left), self.scalar(test.right))

    def scalar(self, node: Expression) -> Scalar:
        """Returns a guard's expression whose value is a single number."""
        match node:
            case Number(value=value):
                return Literal(value)
            case Apply(function=kind, operands=(operand,)) if kind in BOUNDS:
                return Bound(kind, self.variable(operand, f"{kind}(a)"))
            case Apply(function="size", operands=(operand,)):
                name = operand.name if isinstance(operand, Variable) else ""
                self.known(name, self.axes, operand.position, "axis")
                return Count(name)
            case Apply(function=kind, operands=(operand,)) if kind in OVERALL:
                return Overall(kind, self.value(operand))
            case Apply():
                return self.applied(node, tuple(map(self.scalar, node.operands)))
            case Variable(name=name):
                message = f"`{name}` may have axes, but a guard compares single numbers"
                raise Rejection(node.position, message, f"reduce it over all of them: `max(abs({name}))`")
        hint = f"reduce it over all its axes by {alternatives(OVERALL)}, as in `max(a)`"
        raise Rejection(node.position, "this is not a single number", hint)

    def value(self, node: Expression) -> Scalar:
        """Returns a guard's expression whose value may have axes, such as the operand of `max(...)`.

        The reduction around it is over all of these axes.
        """
        match node:
            case Number() | Apply(function="size"):
                return self.scalar(node)
            case Apply(function=kind, operands=(_,)) if kind in BOUNDS or kind in OVERALL:
                return self.scalar(node)
            case Variable():
                return Given(self.variable(node, "a"))
            case Reduction(kind=kind, axes=axes, operand=operand) if kind in REDUCTIONS:
                for axis in axes:
                    self.known(axis, self.axes, node.position, "axis")
                return Along(kind, axes, self.value(operand))
            case Apply():
                return self.applied(node, tuple(map(self.value, node.operands)))
        hint = "elementwise functions and reductions of variables"
        raise Rejection(node.position, "a guard cannot contain this", f"it may contain {hint}")

    def applied(self, node: Apply, operands: tuple[Scalar, ...]) -> GuardFunction:
        known = ELEMENTWISE.get(node.function)
        if known is None or known.arity != len(operands) or node.function == "convert":
            hint = nearest(node.function, (*ELEMENTWISE, *BOUNDS, *OVERALL))
            message = f"there is no function `{node.function}` that takes {counted(len(operands), 'operand')}"
            raise Rejection(
                node.position, message, hint or "elementwise functions have the names that JAX gives them"
            )
        return GuardFunction(node.function, operands, node.exponent)

    def variable(self, node: Expression, form: str) -> str:
        if not isinstance(node, Variable) or node.has or node.lacks:
            raise Rejection(node.position, "this takes a variable", f"write `{form}`")
        self.known(node.name, self.terms, node.position, "variable")
        return node.name

    def known(self, name: str, names: Collection[str], position: Position, what: str) -> None:
        if name not in names:
            message = f"the left side has no {what} `{name}`"
            listed = f"a guard may use what is matched: {alternatives(sorted(names), 'and')}"
            raise Rejection(position, message, nearest(name, names) or listed)
