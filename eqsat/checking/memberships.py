"""Which terms of a rule may have an axis.

Whether an axis is in a term depends on that axis alone. So we look at one axis at a time and find every
way in which variables and sets of axes may have it: by deciding for one after the other, and giving
up as soon as the left side would make no sense or a condition would not hold. What is not decided yet is
None, neither true nor false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eqsat.checking.statement import ENTRIES, SELECTIONS, Statement, signature_of
from eqsat.language.syntax import (
    Apply,
    Arithmetic,
    ChunkOf,
    ConcatOf,
    ConstantValue,
    Contraction,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Quantity,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import is_set, operator_axes, variables, walk

Maybe = bool | None

Column = Mapping[str, bool]
"""By name of a variable or of a set: whether it has the axis."""

ANY = "*"
"""An axis that has no name in the rule."""

MOST_COLUMNS = 300
"""No more ways than these are looked for; rules of many variables have more, all of a kind."""


class _Conflict(Exception):
    """The left side makes no sense, or a condition does not hold."""


def _both(first: Maybe, second: Maybe) -> Maybe:
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def _either(first: Maybe, second: Maybe) -> Maybe:
    if first or second:
        return True
    return None if first is None or second is None else False


def _not(value: Maybe) -> Maybe:
    return None if value is None else not value


def _demand(value: Maybe) -> None:
    if value is False:
        raise _Conflict


def single_axes(rule: Rule) -> list[str]:
    """The names of single axes in a rule."""
    return sorted(name for name in _axis_names(rule) if not is_set(name))


def axis_sets(rule: Rule) -> list[str]:
    """The names of sets of axes in a rule."""
    return sorted(name for name in _axis_names(rule) if is_set(name))


def variable_names(rule: Rule) -> list[str]:
    """The variables that the left side matches, in the order in which they are read."""
    return list(dict.fromkeys(variable.name for variable in variables(rule.left)))


def constant_names(rule: Rule) -> list[str]:
    """The variables that are matched with constants only."""
    found = {guard.operands[0] for guard in rule.guards if guard.name == "constant"}
    for comparison in rule.comparisons:
        for side in (comparison.left, comparison.right):
            found.update(_constants_in(side))
    return sorted(found)


def _constants_in(quantity: Quantity) -> Iterator[str]:
    match quantity:
        case ConstantValue(name=name):
            yield name
        case Arithmetic(left=left, right=right):
            yield from _constants_in(left)
            yield from _constants_in(right)


def _axis_names(rule: Rule) -> set[str]:
    terms = {variable.name for side in (rule.left, rule.right) for variable in variables(side)}
    names: set[str] = set()
    for side in (rule.left, rule.right):
        for node in walk(side):
            names.update(operator_axes(node))
            if isinstance(node, Variable):
                names.update(node.has + node.lacks)
            if has_entries(node):
                names.add(ENTRIES)
    for definition in rule.definitions:
        names.add(definition.name)
        names.update(name for kind, name in (definition.first, *definition.less) if kind == "axes")
    for guard in rule.guards:
        if guard.name in ("in", "large", "tiled", "nonempty"):
            names.update(guard.operands)
    for known in rule.properties:
        names.update(known.axes)
    for copy in rule.copies:
        names.update((copy.name, copy.original))
    names.update(rule.new_axes)
    return names - terms


def has_entries(node: Expression) -> bool:
    """Whether an expression is a top-k by a function variable, whose entries have an axis of their own."""
    return isinstance(node, Reduction) and node.kind in SELECTIONS and ":" in node.kind


@dataclass
class _Search:
    """The ways in which the names of a rule may have one axis.

    **Attributes:**

    - `conditions`: whether patterns, memberships and definitions must hold.
    - `decided`: what is known already.
    """

    statement: Statement
    axis: str
    conditions: bool
    decided: dict[str, bool]
    unknown: list[str] = field(init=False)

    def __post_init__(self) -> None:
        rule = self.rule = self.statement.rule
        self.singles = set(single_axes(rule))
        self.terms = variable_names(rule)
        self.patterns = [*variables(rule.left), *variables(rule.right)]
        self.decided.update(dict.fromkeys(constant_names(rule), False))
        fresh = {*rule.new_axes, ENTRIES}
        if self.axis in fresh:
            self.decided.update(dict.fromkeys(self.terms, False))
        self.unknown = [name for name in (*self.terms, *axis_sets(rule)) if name not in self.decided]

    def found(self, place: int = 0) -> Iterator[Column]:
        try:
            self.of(self.rule.left)
            if self.conditions:
                self.check_conditions()
        except _Conflict:
            return
        if place == len(self.unknown):
            yield dict(self.decided)
            return
        name = self.unknown[place]
        for value in (False, True):
            self.decided[name] = value
            yield from self.found(place + 1)
        del self.decided[name]

    def has(self, name: str) -> Maybe:
        return name == self.axis if name in self.singles else self.decided.get(name)

    def check_conditions(self) -> None:
        for variable in self.patterns:
            have = self.has(variable.name)
            for name in variable.has:
                _demand(_either(_not(self.has(name)), have))
            for name in variable.lacks:
                _demand(_not(_both(self.has(name), have)))
        for guard in self.rule.guards:
            if guard.name == "in":
                inner, outer = map(self.has, guard.operands)
                _demand(_either(_not(inner), outer))
        for known in self.rule.properties:
            for name in known.axes:
                _demand(_either(_not(self.has(name)), self.has(known.term)))
        for definition in self.rule.definitions:
            value = self.has(definition.first[1])
            for _, name in definition.less:
                value = _both(value, _not(self.has(name)))
            defined = self.has(definition.name)
            if value is not None and defined is not None and value != defined:
                raise _Conflict

    def of(self, node: Expression) -> Maybe:
        """Whether an expression of the left side has the axis."""
        axis = self.axis
        match node:
            case Number():
                return False
            case Variable(name=name):
                return self.has(name)
            case IotaOf(axis=name):
                return name == axis
            case DeltaOf(first=first, second=second):
                return axis in (first, second)
            case FoldOf(monoid=monoid, operands=(operand, *_)) if monoid in SELECTIONS:
                have = self.of(operand)
                return (axis == ENTRIES and ":" in monoid) if axis in (node.axis, ENTRIES) else have
            case Apply(operands=operands) | FoldOf(operands=operands):
                return self.any_of(operands)
            case Contraction(left=left, right=right):
                return self.reduced(node, (left, right))
            case Reduction(operand=operand):
                have = self.reduced(node, (operand,))
                if has_entries(node) and axis == ENTRIES:
                    _demand(_not(have))
                    return True
                return have
            case SelectionOf(axis=old, out_axis=new, operand=operand):
                return self.replaced(self.of(operand), old, new)
            case RenameOf(old=old, new=new, operand=operand):
                return self.replaced(self.of(operand), old, new)
            case OperationOf():
                return self.operation(node)
            case ChunkOf(axis=name, operand=operand) | ConcatOf(axis=name, operand=operand):
                have = self.of(operand)
                _demand(have if name == axis else True)
                return have

    def any_of(self, operands: tuple[Expression, ...]) -> Maybe:
        found: Maybe = False
        for operand in operands:
            found = _either(self.of(operand), found)
        return found

    def reduced(self, node: Reduction | Contraction, operands: tuple[Expression, ...]) -> Maybe:
        over: Maybe = False
        for name in node.axes:
            over = _either(over, self.has(name))
        have: Maybe = False
        for operand in operands:
            one = self.of(operand)
            _demand(_either(_not(over), one))
            have = _either(have, one)
        return _both(have, _not(over))

    def replaced(self, have: Maybe, old: str, new: str) -> Maybe:
        """What is left of an operand whose axis `old` has become `new`."""
        if self.axis == old:
            _demand(have)
            return False
        if self.axis == new:
            _demand(_not(have))
            return True
        return have

    def operation(self, node: OperationOf) -> Maybe:
        """Operands have their own core axes and none of the others."""
        signature = signature_of(node.name)
        letter = dict(zip(node.axes, signature.axes, strict=True)).get(self.axis)
        found: Maybe = False
        for operand, (_, letters) in zip(node.operands, signature.operands, strict=True):
            have = self.of(operand)
            if letter is not None:
                _demand(have if letter in letters else _not(have))
            found = _either(found, have)
        return found if letter is None else letter in signature.result


def columns(
    statement: Statement, axis: str, conditions: bool = True, given: Column | None = None
) -> list[Column]:
    """All ways in which an axis may be in the variables and sets of a rule.

    **Arguments:**

    - `axis`: a single axis of the rule, or `ANY`.
    - `conditions`: whether patterns, memberships and definitions must hold.
    - `given`: what is known beforehand.
    """
    found: list[Column] = []
    for column in _Search(statement, axis, conditions, dict(given or {})).found():
        found.append(column)
        if len(found) == MOST_COLUMNS:
            break
    return found
