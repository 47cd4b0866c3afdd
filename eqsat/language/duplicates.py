"""Detects rules that say the same, whatever they call their variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from eqsat.language.syntax import Expression, Position, Rule, Variable
from eqsat.language.traverse import canonical, operator_axes, variables, walk


def identities(rule: Rule) -> Iterator[object]:
    """Yields values of a rule; two rules share one if they are the same rewrite in at least one direction.

    Rules that differ only in the names of their variables, axes and functions share a value.

    >>> from eqsat.language.parse import parse_rules
    >>> one, other = parse_rules("rule r exp(a) * b => b rule s exp(x) * y == y", "my.rules").rules
    >>> set(identities(one)).isdisjoint(identities(other))
    False
    """
    for left, right in [(rule.left, rule.right), (rule.right, rule.left)][: 1 + rule.both_ways]:
        yield _identity(rule, left, right, {})  # with its own names, which order the operands that commute
        yield _identity(rule, left, right, _numbers(rule, left, right))


def _identity(rule: Rule, left: Expression, right: Expression, names: Mapping[str, str]) -> object:
    patterns = {
        (names.get(node.name, node.name), names.get(axis, axis), axis in node.has)
        for node in (*variables(left), *variables(right))
        for axis in (*node.has, *node.lacks)
    }
    conditions = (
        rule.guards,
        rule.properties,
        rule.comparisons,
        rule.definitions,
        rule.copies,
        rule.lengths,
        rule.classes,
    )
    said = frozenset(_renamed(item, names) for items in conditions for item in items)
    return canonical(left, names), canonical(right, names), frozenset(patterns), said


def _numbers(rule: Rule, left: Expression, right: Expression) -> dict[str, str]:
    """Returns a number, as text, for each name of a rule, in the order of first occurrence."""
    found = [function for function, _ in rule.classes]
    for node in (*walk(left), *walk(right)):
        found += [node.name, *node.has, *node.lacks] if isinstance(node, Variable) else operator_axes(node)
    found += [definition.name for definition in rule.definitions]
    return {name: str(number) for number, name in enumerate(dict.fromkeys(found))}


def _renamed(item: Any, names: Mapping[str, str]) -> Any:
    """Returns a condition with its names replaced."""
    if not names or isinstance(item, Position):
        return item
    if isinstance(item, str):
        return names.get(item, item)
    if isinstance(item, tuple):
        return tuple(_renamed(each, names) for each in item)
    if is_dataclass(item) and not isinstance(item, type):
        changed = {field.name: _renamed(getattr(item, field.name), names) for field in fields(item)}
        return replace(item, **changed)
    return item
