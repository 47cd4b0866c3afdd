"""The models in which a rule is tried: which axes each of its names may have.

Whether an axis is in a term depends on that axis alone, but for renamings, which tie two together. So a
model has one axis, or those that renamings tie, and says which variables and sets of axes have them.
There may be thousands of models, and they are tried all at once: whether something holds is an integer
that has a bit for each model, so that `and` and `or` of integers decide all models together.
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
"""The axis, in a model, that has no name in the rule; sets may contain it."""

MOST_AT_ONCE = 18
"""Choices of which all combinations are tried at once; those of further ones, one after another."""

MOST = 24
"""A rule with more choices than this would take long to check; every further one doubles the time."""

Members = tuple[int, ...]
"""For each axis of the universe: the models, as bits, in which it is a member."""


def union(*members: Members) -> Members:
    """What is in any of them; at least one is given."""
    first, *others = members
    for other in others:
        first = tuple(map(or_, first, other))
    return first


def common(left: Members, right: Members) -> Members:
    """What is in both."""
    return tuple(map(and_, left, right))


def without(left: Members, right: Members) -> Members:
    """What is in the first only."""
    return tuple(map(xor, left, map(and_, left, right)))


def different(left: Members, right: Members) -> Members:
    """What is in one of the two only."""
    return tuple(map(xor, left, right))


def somewhere(members: Members) -> int:
    """The models in which anything is a member."""
    found = 0
    for models in members:
        found |= models
    return found


@dataclass(frozen=True, slots=True)
class MembershipModels:
    """Membership models over the axes of a `universe`.

    **Attributes:**

    - `everywhere`: all models, as bits.
    - `axes`: the members of each axis name, single or set.
    - `terms`: the axes of each variable.
    - `entries`: by function variable of selections, the axis of the k entries of a top_k.
    - `certain`: how many memberships hold in all of these models.
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
        """The axes of a term, or the members of an axis name."""
        return self.terms[name] if name in self.terms else self.axes[name]

    def place(self, axis: str) -> int | None:
        """Where a single axis is in the universe, if it is."""
        return self.universe.index(axis) if axis in self.universe else None

    def smallest(self, among: int) -> tuple[int, int]:
        """Of the models `among`, one with the fewest memberships: how many, and its number."""
        numbers = (number for number, bit in enumerate(reversed(f"{among:b}")) if bit == "1")
        return min((number.bit_count() + self.certain, number) for number in numbers)

    def only(self, number: int) -> MembershipModels:
        """One of the models by itself."""

        def chosen(names: Mapping[str, Members]) -> dict[str, Members]:
            return {name: tuple(w >> number & 1 for w in members) for name, members in names.items()}

        return MembershipModels(
            self.universe, 1, chosen(self.axes), chosen(self.terms), chosen(self.entries), self.certain
        )

    def named(self, members: Members) -> frozenset[str]:
        """The axes that are members anywhere."""
        return frozenset(axis for axis, models in zip(self.universe, members, strict=True) if models)

    def agreeing(self, rule: Rule) -> int:
        """The models in which patterns, memberships and definitions of the rule hold."""
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
    """All models there are, by universe: those in which the rule's conditions don't hold as well.

    **Arguments:**

    - `patterns`: whether what patterns say of single axes must hold. There are far fewer models then.

    **Raises:** `Rejection` if there are too many.
    """
    nodes = [*walk(rule.left), *walk(rule.right)]
    terms = sorted({node.name for node in nodes if isinstance(node, Variable)})
    names = _axis_names(rule, nodes).difference(terms)
    singles = sorted(name for name in names if not is_set(name))
    # What stands for any subset of the axes of a model: sets of axes, variables, selections.
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
                rule.position, message, "fewer variables, or patterns which say what axes they have"
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
    """Those of `count` models that have a bit in their number: 2^power have not, as many have, and so on."""
    table, width = ((1 << (1 << power)) - 1) << (1 << power), 2 << power
    while width < count:
        table |= table << width
        width *= 2
    return table


def _axis_names(rule: Rule, nodes: list[Expression]) -> set[str]:
    """The names of axes in a rule; where a term could stand as well, names of terms are among them."""
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
    """By variable and single axis, whether a pattern says that it is there: no choice is left."""
    said: dict[tuple[str, str], bool] = {}
    for node in nodes:
        if isinstance(node, Variable):
            said.update(((node.name, axis), True) for axis in node.has)
            said.update(((node.name, axis), False) for axis in node.lacks)
    said.update(((known.term, axis), True) for known in rule.properties for axis in known.axes)
    return said


def _constants(rule: Rule) -> set[str]:
    """The variables that stand for constants, which have no axes."""
    found = {guard.operands[0] for guard in rule.guards if guard.name == "constant"}
    for comparison in rule.comparisons:
        for quantity in (*parts(comparison.left), *parts(comparison.right)):
            if isinstance(quantity, ConstantValue):
                found.add(quantity.name)
    return found


def _renamed_together(nodes: list[Expression], singles: list[str]) -> list[tuple[str, ...]]:
    """The axis names of a rule, in groups: a renaming puts its two into one group."""
    groups = [{name} for name in singles]
    for node in nodes:
        if isinstance(node, RenameOf):
            joined = [group for group in groups if group & {node.old, node.new}]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    return [tuple(sorted(group)) for group in groups]
