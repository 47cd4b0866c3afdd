"""Whether every condition of a rule is needed.

A condition is there for one of two reasons. Without some, the rule would be wrong: the load check refuses
it, or an instance is found on which the condition does not hold and the sides differ. Others say where
the rule pays: then there is an example on which it would fire without the condition, and does not
with it. That may be a `reject`, or an `example` on lengths that break a comparison; and `large` and
`stored`, which say nothing about values, are always of this kind. A condition that is neither is a
mistake, since it keeps the rule from firing where it could; or it is implied by the others, and can go.

Of two conditions each may be enough: without one of them the rule is right, without both it is not. So
what nothing needs is left out for good, one after another, and the rule that is left is tried as a whole.
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
"""How many times more hostile instances are drawn before a condition is said to be needless: few of them are
hostile to it."""

ABOUT_VALUES = frozenset({"in", "passes", "nonempty", "constant", "wide", *GUARDED})
"""The guards that say something about values. All others say where a rule pays, by their very nature."""


@dataclass(frozen=True, slots=True)
class Need:
    """Why a condition is needed.

    **Attributes:**

    - `reason`: empty if it isn't needed.
    - `implied`: whether it says only what holds anyway, so that it keeps the rule from nothing.
    - `instead`: what is not needed only because this is there.
    """

    condition: Condition
    reason: str
    implied: bool = False
    instead: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        return f"`{text_of(self.condition)}`"


def needs_of(statement: Rule | Fact, load_check: LoadCheck, examples: int) -> list[Need]:
    """For each condition of a rule or a fact, why it is needed; those that nothing needs can go together."""
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
    """Why `rest`, which is the statement or what is left of it, needs a condition."""
    less = _without(rest, condition)
    try:
        load_check(replace(less, examples=()))
    except RuleError:
        return Need(condition, "the load check asks for it")
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
    """Whether a rule is of a worse accuracy class than it says."""
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
    """The kinds that a rule is tried with, if the condition is about kinds: without it there are others."""
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
    """Whether there is a program on which the rule would fire without the condition, and does not with it."""
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
