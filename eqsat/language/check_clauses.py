"""Checks the guards, properties, comparisons and examples of a rule."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from eqsat.ir.properties import PROPERTIES
from eqsat.language.diagnostics import Rejection, alternatives, counted, nearest
from eqsat.language.functions import CALLED, GUARDS
from eqsat.language.syntax import (
    Arithmetic,
    Comparison,
    ConstantValue,
    CopyDefinition,
    Example,
    Number,
    Position,
    Quantity,
    Rule,
    SizeOf,
)
from eqsat.language.traverse import is_set, parts, variables


def check_conditions(rule: Rule) -> None:
    """Raises `Rejection` if a guard or property does not exist or has the wrong number of operands."""
    for guard in rule.guards:
        if guard.name not in GUARDS:
            known = (*GUARDS, *PROPERTIES)
            hint = nearest(guard.name, known) or f"the guards are {alternatives(GUARDS, 'and')}"
            raise Rejection(guard.position, f"there is no guard `{guard.name}`", hint)
        kinds = GUARDS[guard.name]
        if len(kinds) != len(guard.operands):
            message = f"`{guard.name}` takes {counted(len(kinds), 'operand')}, not {len(guard.operands)}"
            raise Rejection(guard.position, message, f"it is `{guard.name}({', '.join(kinds)})`")
    for claim in rule.properties:
        check_property(claim.name, claim.axes, claim.term, claim.position)


def check_property(name: str, axes: tuple[str, ...], term: str, position: Position) -> None:
    """Raises `Rejection` if there is no property `name`, or if it is not along these axes.

    `term` is the text of its operand, for the message.
    """
    if name not in PROPERTIES:
        hint = nearest(name, PROPERTIES) or f"the properties are {alternatives(PROPERTIES, 'and')}"
        if name in GUARDS:
            hint = f"it is a guard: `{name}({', '.join(GUARDS[name])})`"
        raise Rejection(position, f"there is no property `{name}`", hint)
    if len(axes) != PROPERTIES[name]:
        form = f"{name}[i, j]" if PROPERTIES[name] else name
        message = f"`{name}` is a property along {counted(PROPERTIES[name], 'axis')}, not {len(axes)}"
        raise Rejection(position, message, f"write `{form}({term})`")
    for axis in axes:
        if is_set(axis):
            hint = f"write single axes in lower case: `{axis.lower()}`"
            raise Rejection(position, f"`{axis}` is a set, but a property is along single axes", hint)
        if axes.count(axis) > 1:
            raise Rejection(position, f"`{axis}` stands for two axes here", "give them different names")


_ALLOWED = {"axes": ("axis", "set"), "axes or term": ("set", "term")}
"""The kinds of name that an operand may have, for operands that may have one of several."""


def check_operands(rule: Rule) -> None:
    """Raises `Rejection` if a guard has an operand of the wrong kind, such as a term in place of an axis.

    The names in the guards must be bound (see `check_names`).
    """
    for guard in rule.guards:
        for kind, name in zip(GUARDS[guard.name], guard.operands, strict=True):
            actual = _kind(name, rule)
            allowed = _ALLOWED.get(kind, (kind,))
            if actual not in allowed:
                wanted = alternatives(_with_article(word) for word in allowed)
                message = f"`{guard.name}` takes {wanted}, but `{name}` is {_with_article(actual)}"
                hint = f"it is `{guard.name}({', '.join(GUARDS[guard.name])})`"
                if kind == "call" and actual == "function":
                    hint = f"declare it `for {name} in calls`"
                raise Rejection(guard.position, message, hint)


def _kind(name: str, rule: Rule) -> str:
    classes = dict(rule.classes)
    if name in {variable.name for variable in variables(rule.left)}:
        return "term"
    if name in classes:
        return "call" if classes[name] in CALLED else "function"
    return "set" if is_set(name) else "axis"


def _with_article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def check_comparisons(rule: Rule) -> None:
    """Raises `Rejection` if a comparison is always true or always false, whatever the sizes and constants."""
    copies = {copy.name: copy for copy in rule.copies}
    new = {made.name for made in rule.lengths}
    for comparison in rule.comparisons:
        both = (*parts(comparison.left), *parts(comparison.right))
        names = sorted({part.name for part in both if isinstance(part, SizeOf | ConstantValue)})
        if new.intersection(names):
            continue
        differences = {_difference(comparison, names, copies, trial) for trial in range(4)}
        if len(differences) == 1 and None not in differences:
            always = _holds(comparison.relation, differences.pop() or Fraction(0))
            message = f"this is always {'true' if always else 'false'}"
            hint = "leave it out" if always else "the rule would never be used"
            raise Rejection(comparison.position, message, hint)


def _difference(
    comparison: Comparison, names: list[str], copies: dict[str, CopyDefinition], trial: int
) -> Fraction | None:
    """Returns the left side minus the right side for trial values of the names; None if that divides by 0.

    Each `trial` has its own values.
    """
    # Polynomials whose difference is the same at a few scattered points differ by a constant everywhere.
    numbers = {
        name: Fraction(101 + 37 * place**2 + (trial + 1) * (59 + 13 * place))
        for place, name in enumerate(names)
    }
    numbers |= {
        name: numbers[copy.original] + copy.longer
        for name, copy in copies.items()
        if copy.original in numbers
    }
    try:
        return _value(comparison.left, numbers) - _value(comparison.right, numbers)
    except (ZeroDivisionError, OverflowError):  # a Fraction cannot be infinite
        return None


def _value(quantity: Quantity, numbers: dict[str, Fraction]) -> Fraction:
    match quantity:
        case Number():
            return Fraction(quantity.value)
        case SizeOf(name=name) | ConstantValue(name=name):
            return numbers[name]
        case Arithmetic():
            left, right = _value(quantity.left, numbers), _value(quantity.right, numbers)
            match quantity.operator:
                case "+":
                    return left + right
                case "-":
                    return left - right
                case "*":
                    return left * right
            return left / right


def _holds(relation: str, difference: Fraction) -> bool:
    """Returns whether `left relation right` holds, for a `difference` of left minus right."""
    return {
        "<": difference < 0,
        "<=": difference <= 0,
        ">": difference > 0,
        ">=": difference >= 0,
        "=": difference == 0,
        "!=": difference != 0,
    }[relation]


def check_examples(rule: Rule) -> None:
    """Raises `Rejection` unless each example gives every variable of the left side once, with single axes."""
    needed = {variable.name for variable in variables(rule.left)}
    for example in rule.examples:
        _check_example(example, needed)


def _check_example(example: Example, needed: Collection[str]) -> None:
    given = [term for term, _ in example.schemas]
    for term, axes in example.schemas:
        if term not in needed:
            message = f"the left side has no variable `{term}`"
            hint = f"it has {alternatives((f'`{name}`' for name in sorted(needed)), 'and')}"
            raise Rejection(example.position, message, nearest(term, needed) or hint)
        if given.count(term) > 1:
            hint = "write another `example` for another case"
            raise Rejection(example.position, f"the axes of `{term}` are given twice", hint)
        if len(set(axes)) < len(axes):
            hint = "give different axes different names, as in `a: i j`"
            raise Rejection(example.position, f"`{term}` has an axis twice", hint)
        if any(is_set(axis) for axis in axes):
            hint = "name the axes of the set: `a: i j`"
            raise Rejection(example.position, "an example names single axes, in lower case", hint)
    missing = sorted(set(needed).difference(given))
    if missing:
        message = f"the example does not say which axes `{missing[0]}` has"
        raise Rejection(example.position, message, f"a scalar has none: `{missing[0]}:`")
