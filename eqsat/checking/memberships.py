"""Which variables and sets of axes of a rule may have an axis.

Whether a term has an axis depends on that axis alone. So the search takes one axis at a time, and finds
every way in which the variables and sets of axes may have it. It decides one name after another, and
backtracks as soon as the left side would be ill-formed or a condition would not hold. The logic is
three-valued: None stands for what is not decided yet.
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
"""For each variable and each set of axes, by name, whether it has the axis."""

ANY = "*"
"""Stands for an axis that the rule does not name."""

MOST_COLUMNS = 300
"""How many ways `columns` returns at most. Rules with many variables have more, but those are much alike."""


class _Conflict(Exception):
    """The left side is ill-formed, or a condition does not hold."""


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
    """Returns the names of single axes in a rule, sorted."""
    return sorted(name for name in _axis_names(rule) if not is_set(name))


def axis_sets(rule: Rule) -> list[str]:
    """Returns the names of sets of axes in a rule, sorted."""
    return sorted(name for name in _axis_names(rule) if is_set(name))


def variable_names(rule: Rule) -> list[str]:
    """Returns the variables of the left side, in the order in which they are read."""
    return list(dict.fromkeys(variable.name for variable in variables(rule.left)))


def constant_names(rule: Rule) -> list[str]:
    """Returns the variables that match only constants, sorted.

    A `constant` guard names them, or a comparison uses their values.
    """
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
    """Returns whether a node is a top-k chosen for a function variable, with `ENTRIES` as an axis."""
    return isinstance(node, Reduction) and node.kind in SELECTIONS and ":" in node.kind


@dataclass
class _Search:
    """Finds the ways in which the variables and sets of a rule may have one axis.

    **Attributes:**

    - `axis`: a single axis of the rule, or `ANY`.
    - `conditions`: whether patterns, memberships and definitions must hold.
    - `decided`: for the names that are decided so far, whether they have the axis.
    - `unknown`: the names that the search has to decide, in this order.
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
        """Yields every consistent way to decide the names from `place` on."""
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
        """Returns whether an expression of the left side has the axis; None if that is not decided yet."""
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
        """Returns whether an operand still has the axis after its axis `old` has been replaced by `new`."""
        if self.axis == old:
            _demand(have)
            return False
        if self.axis == new:
            _demand(_not(have))
            return True
        return have

    def operation(self, node: OperationOf) -> Maybe:
        """Returns whether an operation has the axis.

        Each operand must have its own core axes, and none of the operation's other ones.
        """
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
    """Returns the ways in which variables and sets of a rule may have an axis, at most `MOST_COLUMNS`.

    **Arguments:**

    - `axis`: a single axis of the rule, or `ANY`.
    - `conditions`: whether patterns, memberships and definitions must hold.
    - `given`: the names that are decided beforehand.
    """
    found: list[Column] = []
    for column in _Search(statement, axis, conditions, dict(given or {})).found():
        found.append(column)
        if len(found) == MOST_COLUMNS:
            break
    return found
