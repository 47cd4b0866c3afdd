"""Turns the clauses of a `monoid` declaration into a monoid, and rejects those that are wrong."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eqsat.ir.formula import Application, Constant, Formula, Monoid, Scalar
from eqsat.language.check_functions import check_elementwise
from eqsat.language.diagnostics import Rejection, alternatives, nearest
from eqsat.language.syntax import Apply, Expression, Number, Position, Variable
from eqsat.language.traverse import is_set, walk


@dataclass(frozen=True, slots=True)
class StatePart:
    """`name = value` in the `state` or `merge` clause of a monoid."""

    name: str
    value: Expression
    position: Position


def monoid_of(
    name: str,
    position: Position,
    state: Sequence[StatePart],
    merge: Sequence[StatePart],
    finish: Expression | None,
) -> Monoid:
    """Returns the monoid that a declaration at `position` states.

    **Raises:** `Rejection` unless `merge` has one formula for each part of `state`, in the same
    order, each identity is a number, and the formulas use only names that they may.
    """
    parts = [part.name for part in state]
    for part in state:
        _check_part(part, parts)
    merged = [part.name for part in merge]
    for part in merge:
        if part.name not in parts:
            hint = nearest(part.name, parts) or f"the parts are {alternatives(parts, 'and')}"
            raise Rejection(part.position, f"the state has no part `{part.name}`", hint)
        if merged.count(part.name) > 1 and part is not merge[merged.index(part.name)]:
            raise Rejection(
                part.position, f"`{part.name}` is merged already", "write one formula for each part"
            )
    for part in state:
        if part.name not in merged:
            hint = f"write it in terms of `{part.name}1` and `{part.name}2`, the earlier and the later value"
            message = f"`merge` does not say what becomes of `{part.name}`"
            raise Rejection(part.position, message, hint)
    if merged != parts:
        # A formula may use the new values of the parts before it, so the order matters.
        hint = f"the order is {', '.join(parts)}"
        raise Rejection(merge[0].position, "`merge` must list the parts in the order of `state`", hint)
    halves = [f"{part}{number}" for part in parts for number in (1, 2)]
    formulas = [formula_of(part.value, [*halves, *parts[:place]]) for place, part in enumerate(merge)]
    result: Formula = Scalar(parts[-1]) if finish is None else formula_of(finish, parts)
    identity = tuple(Constant(part.value.text) for part in state if isinstance(part.value, Number))
    return Monoid(name, tuple(parts), identity, tuple(formulas), result)


def _check_part(part: StatePart, parts: list[str]) -> None:
    if parts.count(part.name) > 1:
        raise Rejection(
            part.position, f"there are two parts `{part.name}`", "call one of them something else"
        )
    if is_set(part.name):
        raise Rejection(part.position, "a part must be in lower case", f"call it `{part.name.lower()}`")
    if part.name[-1] in "12" and part.name[:-1] in parts:
        message = f"`{part.name}` is one of the two values of the part `{part.name[:-1]}`"
        raise Rejection(part.position, message, "call one of them something else")
    if not isinstance(part.value, Number):
        message = "the identity of a part must be a number"
        raise Rejection(part.value.position, message, "such as 0, 1, -1.5, inf or -inf")


def formula_of(expression: Expression, known: Collection[str]) -> Formula:
    """Returns an expression as a formula over the `known` names.

    **Raises:** `Rejection` if it contains anything but these names, numbers and elementwise
    functions.
    """
    for node in walk(expression):
        if isinstance(node, Apply) and not node.variadic:
            check_elementwise(node)
        elif isinstance(node, Variable) and not node.has and not node.lacks:
            if node.name not in known:
                hint = nearest(node.name, known) or f"the names here are {alternatives(known, 'and')}"
                raise Rejection(node.position, f"`{node.name}` is not known here", hint)
        elif not isinstance(node, Number):
            message = "a monoid takes only numbers and elementwise functions of its parts"
            raise Rejection(node.position, message, "such as `max(m1, m2)` or `s1 * exp(m1 - m) + s2`")
    return _formula(expression)


def _formula(expression: Expression) -> Formula:
    match expression:
        case Number(text=text):
            return Constant(text)
        case Apply():
            operands = tuple(map(_formula, expression.operands))
            return Application(expression.function, operands, expression.exponent)
        case _:
            assert isinstance(expression, Variable)
            return Scalar(expression.name)
