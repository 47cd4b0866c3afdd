"""Tests whether every condition of a rule is needed.

A condition may be needed for either of two reasons. Some conditions make the rule right. Without them the
load check refuses the rule, the sides differ on an instance that violates the condition, or the accuracy
class is worse than declared. Other conditions say where the rule pays. They keep the rule from firing on
some example: on a `reject`, or on an `example` with lengths that violate a comparison. Guards that say
nothing about values, such as `large` and `stored`, always count as needed for this reason. A condition
that is needed for neither reason is a mistake: it keeps the rule from firing where it could, or the other
conditions imply it, so that it can go.

Either of two conditions may be enough: the rule is right without one of them, but not without both. So a
condition that is not needed is left out for good, and the later ones are also tested on the rule that is
left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eqsat.checking.accuracy import measure
from eqsat.checking.conditions import Condition, conditions_of, text_of, without
from eqsat.checking.facts import FactTrial
from eqsat.checking.firing import fires_on, programs
from eqsat.checking.kinds import GUARDED
from eqsat.checking.regimes import Trial, signature_of_kinds
from eqsat.errors import EqsatError, RuleError
from eqsat.language.accuracies import ACCURACIES
from eqsat.language.syntax import Comparison, Fact, Guard, Rule

LoadCheck = Callable[[Rule | Fact], None]
"""Raises `RuleError` if a rule or a fact can't be loaded."""


RARE = 4
"""By which factor more hostile instances are drawn before a condition counts as not needed.

Few hostile instances show that a condition is needed.
"""

ABOUT_VALUES = frozenset({"in", "passes", "nonempty", "constant", "wide", *GUARDED})
"""The guards that say something about values. All other guards can only say where a rule pays."""


@dataclass(frozen=True, slots=True)
class Need:
    """Why a condition is needed.

    **Attributes:**

    - `reason`: in a few words; empty if the condition isn't needed.
    - `implied`: whether no instance was found that violates the condition, as if the others implied it.
    - `instead`: the conditions that are not needed only because this one is there.
    """

    condition: Condition
    reason: str
    implied: bool = False
    instead: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        return f"`{text_of(self.condition)}`"


def needs_of(statement: Rule | Fact, load_check: LoadCheck, examples: int) -> list[Need]:
    """Returns for each condition of a rule or a fact why it is needed.

    All the conditions that are not needed can be left out together.

    **Arguments:**

    - `examples`: how many instances there are in a regime whose share is 1.
    """
    rule = statement.as_rule() if isinstance(statement, Fact) else statement
    found: list[Need] = []
    left_out: list[Condition] = []
    rest = statement
    for condition in conditions_of(rule):
        need = _need(statement, statement, condition, load_check, examples)
        if not need.reason and left_out:
            together = _need(statement, rest, condition, load_check, examples)
            if together.reason:
                need = replace(together, instead=tuple(left_out))
        if not need.reason and _loses_digits(_without(rest, condition)):
            need = replace(need, reason="without it, the rule is of a worse accuracy class")
        if not need.reason:
            rest = _without(rest, condition)
            left_out.append(condition)
        found.append(need)
    return found


def _need(
    statement: Rule | Fact, rest: Rule | Fact, condition: Condition, load_check: LoadCheck, examples: int
) -> Need:
    """Returns why `rest` needs a condition; `rest` is the statement without some of its conditions."""
    less = _without(rest, condition)
    try:
        load_check(replace(less, examples=()))
    except RuleError:
        return Need(condition, "without it, the load check refuses the rule")
    try:
        trial = _trial(less, examples, condition, _kinds_with(rest, condition))
        if trial.failure() is not None:
            return Need(condition, "without it, the sides differ")
        if not _trial(less, RARE * examples, condition, _kinds_with(statement, condition)).keeps_promise():
            return Need(condition, "without it, the sides differ on hostile numbers")
    except EqsatError:
        return Need(condition, "without it, the rule can't even be tried")
    if isinstance(condition, Guard) and condition.name not in ABOUT_VALUES:
        return Need(condition, "it says where the rule pays")
    if _keeps_from_firing(statement, less, condition):
        return Need(condition, "an example shows where the rule does not pay")
    return Need(condition, "", implied=not trial.tally.drawn)


def _loses_digits(statement: Rule | Fact) -> bool:
    """Returns whether the measured accuracy class of a rule is worse than the declared one."""
    if isinstance(statement, Fact):
        return False
    measured = measure(statement).accuracy
    return measured is not None and ACCURACIES.index(measured) > ACCURACIES.index(statement.accuracy)


def _trial(
    statement: Rule | Fact, examples: int, violated: Condition, seen: frozenset[tuple[tuple[str, str], ...]]
) -> Trial:
    if isinstance(statement, Fact):
        return FactTrial(statement, examples, violated, seen)
    return Trial(statement, examples, violated, seen)


def _kinds_with(statement: Rule | Fact, condition: Condition) -> frozenset[tuple[tuple[str, str], ...]]:
    """Returns the kinds that the rule is tried with under a condition about kinds; none for other conditions.

    Without such a condition, only the other kinds have to be tried.
    """
    if not isinstance(condition, Guard) or condition.name not in GUARDED:
        return frozenset()
    before = FactTrial(statement) if isinstance(statement, Fact) else Trial(statement)
    return frozenset(signature_of_kinds(kinds) for _, kinds in before.sources)


def _without(statement: Rule | Fact, condition: Condition) -> Rule | Fact:
    if isinstance(statement, Rule):
        return without(statement, condition)
    less = without(statement.as_rule(), condition)
    return replace(
        statement,
        term=less.left,
        guards=less.guards,
        properties=less.properties,
        comparisons=less.comparisons,
        definitions=less.definitions,
    )


def _keeps_from_firing(statement: Rule | Fact, less: Rule | Fact, condition: Condition) -> bool:
    """Returns whether the rule fires on some program only if the condition is left out."""
    if not isinstance(statement, Rule) or not isinstance(less, Rule):
        return False
    for example in statement.examples:
        violated = condition if isinstance(condition, Comparison) else None
        if example.fires and violated is None:
            continue
        for loaded in programs(less, example, violated):
            if fires_on(less, loaded) and not fires_on(statement, loaded):
                return True
    return False
