"""Which axes each variable and each set of axes has, in one instance of a rule."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from string import ascii_lowercase

from eqsat.checking.conditions import Condition, Pattern
from eqsat.checking.memberships import ANY, Column, columns, single_axes, variable_names
from eqsat.checking.statement import Statement
from eqsat.language.syntax import Contraction, Guard, Reduction, Rule
from eqsat.language.traverse import is_set, walk


@dataclass(frozen=True, slots=True)
class Placement:
    """For each axis, which variables and sets of axes have it.

    The axes are the single axes of the rule, and further ones that the rule does not name.
    """

    columns: Mapping[str, Column]

    def of(self, name: str) -> frozenset[str]:
        """Returns the axes of a variable or of a set of axes; of a single axis, only itself."""
        if name in self.columns:
            return frozenset({name})
        return frozenset(axis for axis, column in self.columns.items() if column[name])

    def without(self, axis: str) -> Placement:
        """Returns the placement without one of its axes."""
        return Placement({name: column for name, column in self.columns.items() if name != axis})


def required_sets(rule: Rule) -> set[str]:
    """Returns the sets of axes that are never empty when the left side matches."""
    found = {
        name
        for node in walk(rule.left)
        if isinstance(node, Reduction | Contraction)
        for name in node.axes
        if is_set(name)
    }
    return found | {guard.operands[0] for guard in rule.guards if guard.name == "nonempty"}


class Placements:
    """Draws placements for a statement.

    **Arguments:**

    - `violated`: a condition that was removed from the statement's rule, and that all drawn placements
      violate. Only patterns, memberships and `nonempty` are about placements; others have no effect.
    """

    def __init__(self, statement: Statement, violated: Condition | None = None) -> None:
        self.rule = statement.rule
        self.violated = violated if _is_about_axes(violated) else None
        self.singles = single_axes(self.rule)
        taken = {*self.singles, *variable_names(self.rule)}
        self.names = [name for name in (*"uvwpqrst", *ascii_lowercase) if name not in taken]
        self.names += [f"axis{number}" for number in range(9)]
        self.options: dict[str, list[Column]] = {}
        for axis in (*self.singles, ANY):
            self.options[axis] = columns(statement, axis)
        self.nameless = [column for column in self.options[ANY] if any(column.values())]
        if isinstance(violated, Guard) and violated.name == "nonempty":
            empty = violated.operands[0]
            for axis, found in self.options.items():
                self.options[axis] = [column for column in found if not column.get(empty, False)]
            self.nameless = [column for column in self.nameless if not column.get(empty, False)]
        self.possible = all(self.options.values())

    def draw(self, rng: random.Random, extra: int) -> Placement | None:
        """Draws a placement with `extra` axes that nothing requires; None if there is none."""
        if not self.possible:
            return None
        chosen = {axis: rng.choice(self.options[axis]) for axis in self.singles}
        names = iter(self.names)
        for name in sorted(required_sets(self.rule)):
            if not any(column[name] for column in chosen.values()):
                having = [column for column in self.nameless if column[name]]
                if not having:
                    return None
                chosen[next(names)] = rng.choice(having)
        for _ in range(extra if self.nameless else 0):
            column = rng.choice(self.nameless)
            chosen[next(name for name in names if name not in chosen)] = column
        placement = Placement(chosen)
        if self.violated is None or self.violates(placement):
            return placement
        return self.made_to_violate(rng, placement, next(names))

    def made_to_violate(self, rng: random.Random, placement: Placement, name: str) -> Placement | None:
        """Changes one axis of a placement, or adds one called `name`, so that it violates the condition."""
        candidates = [
            replace(placement, columns={**placement.columns, axis: column})
            for axis in (*self.singles, name)
            for column in self.options[axis if axis in self.singles else ANY]
        ]
        found = [candidate for candidate in candidates if self.violates(candidate)]
        return rng.choice(found) if found else None

    def violates(self, placement: Placement) -> bool:
        """Returns whether the condition does not hold. A name that the rule has lost stands for no axes."""
        match self.violated:
            case Pattern(variable=variable, axis=name, present=present):
                axes = self._axes(placement, name)
                have = placement.of(variable)
                return not axes <= have if present else bool(axes & have)
            case Guard(name="in", operands=(inner, outer)):
                return not self._axes(placement, inner) <= self._axes(placement, outer)
            case Guard(name="nonempty", operands=(name,)):
                return not self._axes(placement, name)
            case _:
                return True

    @staticmethod
    def _axes(placement: Placement, name: str) -> frozenset[str]:
        known = next(iter(placement.columns.values()), {})
        return placement.of(name) if name in placement.columns or name in known else frozenset()


def _is_about_axes(condition: Condition | None) -> bool:
    return isinstance(condition, Pattern) or (
        isinstance(condition, Guard) and condition.name in ("in", "nonempty")
    )
