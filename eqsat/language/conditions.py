"""Turns the items of a `where` clause, which parse as expressions, into conditions."""

from __future__ import annotations

from typing import Literal

from eqsat.ir.properties import PROPERTIES
from eqsat.language.diagnostics import Rejection
from eqsat.language.limits import MOST_DIGITS
from eqsat.language.syntax import (
    Apply,
    Arithmetic,
    AxisDefinition,
    Comparison,
    ConstantValue,
    CopyDefinition,
    Expression,
    Guard,
    LengthDefinition,
    Number,
    PropertyGuard,
    Quantity,
    SizeOf,
    Variable,
)
from eqsat.language.traverse import is_set, named, parts, walk

Condition = Guard | PropertyGuard | Comparison | AxisDefinition | CopyDefinition | LengthDefinition

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def condition_of(left: Expression, relation: str, right: Expression | None) -> Condition:
    """Returns the condition that `left`, or `left relation right`, states.

    `relation` is "" if the item is a single expression.

    **Raises:** `Rejection` if the item is not a condition.
    """
    if right is None:
        return _guard(left)
    if relation == "=" and isinstance(left, Variable):
        if (copied := _copied(right)) is not None:
            original, longer = copied
            return CopyDefinition(_plain(left), _operand_of(original), longer, left.position)
        if isinstance(right, Apply) and right.function == "axis":
            return LengthDefinition(_plain(left), _length(right), left.position)
        items = _axes_difference(right)
        if items and (is_set(left.name) or "term" in (kind for kind, _ in items)):
            return AxisDefinition(_plain(left), items[0], tuple(items[1:]), left.position)
        if not items and any(isinstance(node, Apply) and node.function == "axes" for node in walk(right)):
            hint = f"write the axes of one term without those of others: `{left.name} = axes(a) - axes(b)`"
            raise Rejection(right.position, "this does not define a set of axes", hint)
    return Comparison(relation, _quantity(left), _quantity(right), left.position)


def _guard(node: Expression) -> Guard | PropertyGuard:
    name, axes, operands = named(node)
    if not name or name in _SIGNS.values() or (isinstance(node, Apply) and node.function in _SIGNS):
        hint = "such as `large(n)`, `n in K`, `spd[i, j](a)`, `size(k) < size(n)` or `J = axes(a) - axes(b)`"
        raise Rejection(node.position, "this is not a condition", hint)
    names = [_plain(operand) for operand in operands]
    if axes or name in PROPERTIES:
        if len(names) != 1:
            raise Rejection(node.position, f"`{name}` is a property of one term", f"write `{name}(a)`")
        return PropertyGuard(name, axes, names[0], node.position)
    return Guard(name, tuple(names), node.position)


def _plain(node: Expression) -> str:
    """Returns the name of a variable without patterns; conditions take only those."""
    if not isinstance(node, Variable):
        hint = "match it by a variable on the left, and name that"
        raise Rejection(node.position, "a condition takes names, not terms", hint)
    if node.has or node.lacks:
        raise Rejection(node.position, "patterns belong on the sides of a rule", f"write `{node.name}` here")
    return node.name


def _copied(node: Expression) -> tuple[Apply, int] | None:
    """Returns the call `copy(k)` and the number 1 for `copy(k) + 1`, or None for other expressions.

    The number is 0 for a plain `copy(k)`.
    """
    match node:
        case Apply(function="copy"):
            return node, 0
        case Apply(function="add", operands=(Apply(function="copy") as copy, Number(value=longer))) if (
            0 < longer < 10**MOST_DIGITS and longer.is_integer()
        ):
            return copy, int(longer)
    return None


def _length(node: Apply) -> Quantity:
    """Returns the length that `axis(length)` gives a new axis."""
    form = "`i = axis(size(p) / 2)`"
    if len(node.operands) != 1:
        raise Rejection(node.position, "`axis` takes one length", f"write {form}")
    length = _quantity(node.operands[0])
    found = list(parts(length))
    for part in found:
        if isinstance(part, ConstantValue) or (isinstance(part, SizeOf) and is_set(part.name)):
            message = f"the length of an axis is computed from lengths of axes, not from `{part.name}`"
            raise Rejection(part.position, message, f"write {form}")
    if not any(isinstance(part, SizeOf) for part in found):
        raise Rejection(node.position, "this length does not depend on what is matched", f"write {form}")
    return length


def _operand_of(node: Apply) -> str:
    if len(node.operands) != 1:
        raise Rejection(node.position, f"`{node.function}` takes one name", f"write `{node.function}(k)`")
    return _plain(node.operands[0])


def _axes_difference(node: Expression) -> list[tuple[Literal["term", "axes"], str]]:
    """Returns the items of `axes(a) - axes(b) - K` in their order, or an empty list for other expressions."""
    match node:
        case Variable():
            return [("axes", node.name)] if not node.has and not node.lacks else []
        case Apply(function="axes"):
            return [("term", _operand_of(node))]
        case Apply(function="sub", operands=(first, last)):
            before, less = _axes_difference(first), _axes_difference(last)
            return [*before, *less] if before and len(less) == 1 else []
    return []


def _quantity(node: Expression) -> Quantity:
    match node:
        case Number():
            return node
        case Variable():
            return ConstantValue(_plain(node), node.position)
        case Apply(function="size"):
            return SizeOf(_operand_of(node), node.position)
        case Apply(function="add" | "sub" | "mul" | "div", operands=(left, right)):
            return Arithmetic(_SIGNS[node.function], _quantity(left), _quantity(right), node.position)
        case Apply(function="neg", operands=(operand,)):
            return Arithmetic("-", Number("0", node.position), _quantity(operand), node.position)
        case Apply(function="square", operands=(operand,)):
            value = _quantity(operand)
            return Arithmetic("*", value, value, node.position)
        case Apply(function="axes"):
            message = "a set of axes must be defined with `=`"
            raise Rejection(node.position, message, "write `J = axes(a) - axes(b)`")
        case Apply(function="copy"):
            hint = "write `l = copy(k)`, or `l = copy(k) + 1` for a longer one"
            raise Rejection(node.position, "a copy of an axis must be given a name with `=`", hint)
        case Apply(function="axis"):
            hint = "write `i = axis(size(p) / 2)`"
            raise Rejection(node.position, "a new axis must be given a name with `=`", hint)
    hint = "use sizes `size(k)`, constants `c`, numbers, and + - * / of these"
    raise Rejection(node.position, "a comparison takes numbers that are known when a rule is matched", hint)
