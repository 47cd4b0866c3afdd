"""Membership models: the cases in which a rule is checked, each saying which term and set has which axes.

Whether a term has an axis depends on that axis alone, except that a renaming ties two axes
together. So a model need only consider one axis, or the axes that renamings tie: its universe. It
says which variables and which sets of axes contain them. A rule may have thousands of models, which
are evaluated all at once: a truth value is an integer with a bit for each model, so the `and` of
two integers decides all models together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from operator import and_, or_, xor

from eqsat.language.diagnostics import Rejection
from eqsat.language.functions import ALONG
from eqsat.language.syntax import ConstantValue, Expression, RenameOf, Rule, Variable
from eqsat.language.traverse import is_set, operator_axes, parts, walk

ANY = "*"
"""The axis of a model that stands for all axes without a name in the rule; sets of axes may contain it."""

MOST_AT_ONCE = 18
"""The most choices whose combinations are evaluated at once, as bits; a loop tries the others."""

MOST = 24
"""The most choices that a rule may have, since each doubles the time that its check takes."""

Members = tuple[int, ...]
"""For each axis of the universe, the models in which it is a member, as bits."""


def union(*members: Members) -> Members:
    """Returns the members of any of the arguments, of which there must be at least one."""
    first, *others = members
    for other in others:
        first = tuple(map(or_, first, other))
    return first


def common(left: Members, right: Members) -> Members:
    """Returns the members of both."""
    return tuple(map(and_, left, right))


def without(left: Members, right: Members) -> Members:
    """Returns the members of the first that are not members of the second."""
    return tuple(map(xor, left, map(and_, left, right)))


def different(left: Members, right: Members) -> Members:
    """Returns the members of exactly one of the two."""
    return tuple(map(xor, left, right))


def somewhere(members: Members) -> int:
    """Returns the models in which there is any member."""
    found = 0
    for models in members:
        found |= models
    return found


@dataclass(frozen=True, slots=True)
class MembershipModels:
    """Models over the axes of a `universe`.

    **Attributes:**

    - `everywhere`: all models, as bits.
    - `axes`: the members of each axis name, which stands for one axis or a set.
    - `terms`: the axes of each variable.
    - `entries`: for each function variable over selections, the axis of the selected entries, which
      top_k has.
    - `certain`: the number of memberships that hold in all of these models.
    """

    universe: tuple[str, ...]
    everywhere: int
    axes: Mapping[str, Members]
    terms: Mapping[str, Members]
    entries: Mapping[str, Members]
    certain: int

    @property
    def nothing(self) -> Members:
        return (0,) * len(self.universe)

    def either(self, name: str) -> Members:
        """Returns the axes of a term, or the members of an axis name."""
        return self.terms[name] if name in self.terms else self.axes[name]

    def place(self, axis: str) -> int | None:
        """Returns the index of a single axis in the universe, or None if it is not in it."""
        return self.universe.index(axis) if axis in self.universe else None

    def smallest(self, among: int) -> tuple[int, int]:
        """Returns the fewest memberships of any model in `among`, and the number of such a model."""
        numbers = (number for number, bit in enumerate(reversed(f"{among:b}")) if bit == "1")
        return min((number.bit_count() + self.certain, number) for number in numbers)

    def only(self, number: int) -> MembershipModels:
        """Returns the model of that number, by itself."""

        def chosen(names: Mapping[str, Members]) -> dict[str, Members]:
            return {name: tuple(w >> number & 1 for w in members) for name, members in names.items()}

        return MembershipModels(
            self.universe, 1, chosen(self.axes), chosen(self.terms), chosen(self.entries), self.certain
        )

    def named(self, members: Members) -> frozenset[str]:
        """Returns the axes that are members in at least one model."""
        return frozenset(axis for axis, models in zip(self.universe, members, strict=True) if models)

    def agreeing(self, rule: Rule) -> int:
        """Returns the models in which the rule's patterns, memberships, properties and definitions hold."""
        wrong = 0
        for node in (*walk(rule.left), *walk(rule.right)):
            if isinstance(node, Variable):
                have = self.terms[node.name]
                for axis in node.has:
                    wrong |= somewhere(without(self.axes[axis], have))
                for axis in node.lacks:
                    wrong |= somewhere(common(self.axes[axis], have))
        for guard in rule.guards:
            if guard.name == "in":
                part, whole = guard.operands
                wrong |= somewhere(without(self.axes[part], self.either(whole)))
        for known in rule.properties:
            for axis in known.axes:
                wrong |= somewhere(without(self.axes[axis], self.terms[known.term]))
        for new in rule.new_axes:
            place = self.place(new)
            if place is not None:
                others = [members for name, members in self.axes.items() if name != new]
                wrong |= union(self.nothing, *others, *self.terms.values(), *self.entries.values())[place]
        for definition in rule.definitions:
            rest = self.either(definition.first[1])
            for _, name in definition.less:
                rest = without(rest, self.either(name))
            wrong |= somewhere(different(rest, self.axes[definition.name]))
        return self.everywhere & ~wrong


def models_of(rule: Rule, patterns: bool = True) -> Iterator[MembershipModels]:
    """Yields the models of a rule, universe by universe, whether or not its conditions hold in them.

    **Arguments:**

    - `patterns`: whether to leave out the models that contradict what patterns and properties say
      of single axes. This makes   far fewer models.

    **Raises:** `Rejection` if the rule has too many models to check.
    """
    nodes = [*walk(rule.left), *walk(rule.right)]
    terms = sorted({node.name for node in nodes if isinstance(node, Variable)})
    names = _axis_names(rule, nodes).difference(terms)
    singles = sorted(name for name in names if not is_set(name))
    # Sets of axes, variables and selections may each have any subset of a model's axes.
    free = [("axes", name) for name in sorted(names.difference(singles))]
    free += [("terms", name) for name in terms]
    free += [("entries", function) for function, family in rule.classes if family == "selections"]
    said = _said_by_patterns(rule, nodes) if patterns else {}
    constants = {("terms", name) for name in _constants(rule)}
    for universe in [(ANY,), *_renamed_together(nodes, singles)]:
        choices = [(kind, name, axis) for kind, name in free for axis in universe]
        fixed = {choice: said[choice[1:]] for choice in choices if choice[1:] in said}
        fixed.update((choice, False) for choice in choices if choice[:2] in constants)
        choices = [choice for choice in choices if choice not in fixed]
        if len(choices) > MOST:
            message = f"`{rule.name}` has too many names to be checked"
            raise Rejection(
                rule.position, message, "use fewer variables, or patterns that say which axes they have"
            )
        first, last = choices[: max(0, len(choices) - MOST_AT_ONCE)], choices[-MOST_AT_ONCE:]
        for values in product((False, True), repeat=len(first)):
            decided = {**fixed, **dict(zip(first, values, strict=True))}
            yield _models(universe, singles, free, decided, last if choices else [])


def _models(
    universe: tuple[str, ...],
    singles: list[str],
    free: list[tuple[str, str]],
    decided: dict[tuple[str, str, str], bool],
    choices: list[tuple[str, str, str]],
) -> MembershipModels:
    count = 1 << len(choices)
    everywhere = (1 << count) - 1
    tables = {choice: everywhere if value else 0 for choice, value in decided.items()}
    tables.update((choice, _table(power, count)) for power, choice in enumerate(reversed(choices)))
    have: dict[str, dict[str, Members]] = {"axes": {}, "terms": {}, "entries": {}}
    for name in singles:  # different letters are different axes
        have["axes"][name] = tuple(everywhere if axis == name else 0 for axis in universe)
    for kind, name in free:
        have[kind][name] = tuple(tables[kind, name, axis] for axis in universe)
    certain = sum(decided.values()) + sum(axis != ANY for axis in universe)
    return MembershipModels(universe, everywhere, **have, certain=certain)


@lru_cache(maxsize=4 * MOST_AT_ONCE)
def _table(power: int, count: int) -> int:
    """Returns the models, out of `count`, whose number has the bit of this power of 2."""
    table, width = ((1 << (1 << power)) - 1) << (1 << power), 2 << power
    while width < count:
        table |= table << width
        width *= 2
    return table


def _axis_names(rule: Rule, nodes: list[Expression]) -> set[str]:
    """Returns the names of axes in a rule, and names of terms that stand where an axis could."""
    names = {axis for node in nodes for axis in operator_axes(node)}
    names.update(axis for node in nodes if isinstance(node, Variable) for axis in node.has + node.lacks)
    names.update(name for guard in rule.guards if guard.name == "in" for name in guard.operands)
    names.update(guard.operands[1] for guard in rule.guards if guard.name in ALONG)
    names.update(axis for known in rule.properties for axis in known.axes)
    names.update(name for copy in rule.copies for name in (copy.name, copy.original))
    names.update(rule.new_axes)
    for definition in rule.definitions:
        names.add(definition.name)
        names.update(name for kind, name in (definition.first, *definition.less) if kind == "axes")
    return names


def _said_by_patterns(rule: Rule, nodes: list[Expression]) -> dict[tuple[str, str], bool]:
    """Returns whether patterns and properties say that a variable has a single axis, by variable and axis.

    What they say is not a choice.
    """
    said: dict[tuple[str, str], bool] = {}
    for node in nodes:
        if isinstance(node, Variable):
            said.update(((node.name, axis), True) for axis in node.has)
            said.update(((node.name, axis), False) for axis in node.lacks)
    said.update(((known.term, axis), True) for known in rule.properties for axis in known.axes)
    return said


def _constants(rule: Rule) -> set[str]:
    """Returns the variables that must be constants, and so have no axes."""
    found = {guard.operands[0] for guard in rule.guards if guard.name == "constant"}
    for comparison in rule.comparisons:
        for quantity in (*parts(comparison.left), *parts(comparison.right)):
            if isinstance(quantity, ConstantValue):
                found.add(quantity.name)
    return found


def _renamed_together(nodes: list[Expression], singles: list[str]) -> list[tuple[str, ...]]:
    """Returns the single axes of a rule in groups; the two axes of a renaming are in the same group."""
    groups = [{name} for name in singles]
    for node in nodes:
        if isinstance(node, RenameOf):
            joined = [group for group in groups if group & {node.old, node.new}]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    return [tuple(sorted(group)) for group in groups]
