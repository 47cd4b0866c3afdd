"""A compiled rule as the engine uses it: plain data, without the syntax that it was compiled from.

A process that finds the shipped rules compiled on disk imports nothing else for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.guard import Guard
from eqsat.ir.term import Term
from eqsat.language.accuracies import Accuracy


@dataclass(frozen=True, slots=True)
class Triggers:
    """The symbols that one direction of a rule matches and makes.

    **Attributes:**

    - `symbols`: the symbols that a program must contain for the rule to match.
    - `pairs`: the ops that must occur directly over other ops, by the e-graph's symbols.
    - `made`: the symbols that it adds.
    """

    symbols: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    made: frozenset[str]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule's egglog text, run as a ruleset of its own.

    **Attributes:**

    - `name`: what reports call it: its own name, or with its file's if others are called so too.
    - `place`: where it stands, as errors say it.
    - `number`: its number, by which e-nodes name their maker.
    - `ruleset`: the ruleset's name.
    - `text`: the egglog commands that declare it.
    - `precision`: of the contractions that it makes out of sums.
    - `splits`: whether it is about loops (run once the algebra is done).
    - `accuracy`: what it may do to floating-point results.
    - `renames`: whether it is about axes with other names.
    - `copies`: which copies of an axis it needs: by how much each is longer, and the how many-eth it is of
      those that are as long.
    - `numbers`: those that it may make constants of.
    - `monoids`: the declared ones that it folds with, by the e-graph's names for them.
    - `triggers`: for each direction what a program must contain for the rule to match, and what the rule
      makes of it.
    - `guard`: what has to hold of the data where it is used; None if nothing has to.
    """

    name: str
    place: str
    number: int
    ruleset: str
    text: str
    precision: str
    splits: bool
    accuracy: Accuracy
    renames: bool
    copies: frozenset[tuple[int, int]]
    numbers: frozenset[float]
    monoids: Mapping[str, Monoid]
    triggers: tuple[Triggers, ...]
    guard: Guard | None = None

    @property
    def finding(self) -> str:
        """The name of the ruleset that notes where a rule with a guard matches."""
        return f"finding-{self.number}"


@dataclass(frozen=True, slots=True)
class Found:
    """A match of a rule with a guard.

    **Attributes:**

    - `rule`: its number.
    - `classes`, `axes`: what the names are that the guard speaks of, in its order.
    """

    rule: int
    classes: tuple[int, ...]
    axes: tuple[frozenset[Axis], ...]


@dataclass(frozen=True, slots=True)
class Granted:
    """A match that a rule with a guard may be applied to: `values` are terms of its classes."""

    rule: int
    values: tuple[Term, ...]
    axes: tuple[frozenset[Axis], ...]
