"""Searches for a condition that makes a wrong rule right, and for the accuracy class it then deserves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from eqsat.checking.conditions import text_of
from eqsat.checking.memberships import axis_sets, single_axes, variable_names
from eqsat.checking.necessity import LoadCheck
from eqsat.checking.oracle import Failure
from eqsat.checking.regimes import Trial, kept_class
from eqsat.errors import RuleError
from eqsat.language.syntax import Apply, Comparison, Guard, Number, PropertyGuard, Rule, SizeOf
from eqsat.language.traverse import variables, walk

MOST_TRIED = 6


def hint(rule: Rule, failure: Failure, load_check: LoadCheck, examples: int) -> str:
    """Returns advice to add a condition with which a wrong rule passes the check, or "" if none is found."""
    for conditions in islice(_conditions(rule, failure), MOST_TRIED):
        safer = replace(
            rule,
            guards=(*rule.guards, *(item for item in conditions if isinstance(item, Guard))),
            properties=(
                *rule.properties,
                *(item for item in conditions if isinstance(item, PropertyGuard)),
            ),
            comparisons=(
                *rule.comparisons,
                *(item for item in conditions if isinstance(item, Comparison)),
            ),
        )
        try:
            load_check(replace(safer, examples=()))
        except RuleError:
            continue
        trial = Trial(safer, examples, promises=False)
        if trial.failure() is None and trial.tally.finite:
            texts = ", ".join(text_of(condition) for condition in conditions)
            kept = kept_class(safer, rule.accuracy, examples)
            declared = "" if kept == rule.accuracy else f", declared [{kept}]"
            return f"no such case is found with `where {texts}`{declared}"
    return ""


def _conditions(rule: Rule, failure: Failure) -> Iterator[tuple[Guard | PropertyGuard | Comparison, ...]]:
    """Yields conditions that authors of rules often forget, as far as they fit the failure."""
    instance = failure.instance
    for name in (*axis_sets(rule), *single_axes(rule)):
        if any(instance.lengths.get(axis) == 0 for axis in instance.placement.of(name)):
            size, zero = SizeOf(name, rule.position), Number("0", rule.position)
            yield (Comparison(">", size, zero, rule.position),)
    kinds = set(instance.kinds.variables.values())
    names = [
        name
        for name in variable_names(rule)
        if not _is_variadic(rule, name) and instance.kinds.variables.get(name) != "b"
    ]
    floats: tuple[Guard, ...] = ()
    if kinds - {"f"} and names:
        floats = (Guard("float", (names[0],), rule.position),)
        yield floats
        if "c" in kinds:
            yield (Guard("real", (names[0],), rule.position),)
    positive = [PropertyGuard("positive", (), name, rule.position) for name in names]
    for one in positive:
        yield (*floats, one)
    if len(positive) > 1:
        yield (*floats, *positive)


def _is_variadic(rule: Rule, name: str) -> bool:
    return any(
        isinstance(node, Apply) and node.variadic and name in {v.name for v in variables(node)}
        for node in walk(rule.left)
    )
