"""The worlds in which a rule is tried: which axes each of its names may have.

Whether an axis is in a term depends on that axis alone, but for renamings, which tie two together. So a
world has one axis, or two, and says which variables and sets of axes have them. In a world, the shape
of each expression is known. There are a few dozen worlds to a rule, and they stand for all its matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    Reduction,
    RenameOf,
    Rule,
    Variable,
)
from eqsat.language.traverse import is_set, operator_axes, variables, walk

ANY = "*"
"""The axis, in a world, that has no name in the rule; sets may contain it."""

MOST_CHOICES = 14
"""Worlds double with every choice. A rule with more choices than this is not checked here."""


class IllFormed(Exception):
    """An expression that makes no sense in a world."""

    def __init__(self, node: Expression, message: str) -> None:
        super().__init__(message)
        self.position = node.position
        self.message = message


class Unknown(Exception):
    """An expression whose axes can't be told in a world."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The axes of a term; those of them cut into chunks; the axes whose current chunk it depends on."""

    axes: frozenset[str]
    cut: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()


_Axes = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class World:
    """One or two axes, and for each name of the rule which of them it has.

    `axes` is by axis name, single or set; `terms` by variable; `entries` by selection: the axis of the
    k entries of a top_k.
    """

    axes: _Axes
    terms: _Axes
    entries: _Axes
    rule: Rule

    def shape(self, node: Expression, matching: bool) -> Shape:
        """The shape of an expression, which is one that a left side has matched, or a new one."""
        match node:
            case Number():
                return Shape(frozenset())
            case Variable():
                return Shape(self.terms[node.name])
            case IotaOf():
                return Shape(self.axes[node.axis])
            case Apply():
                return self.application(node, [self.shape(operand, matching) for operand in node.operands])
            case Contraction():
                left, right = self.shape(node.left, matching), self.shape(node.right, matching)
                return self.reduce(node, _together(node, [left, right]), left.axes & right.axes)
            case Reduction():
                operand = self.shape(node.operand, matching)
                reduced = self.reduce(node, operand, operand.axes)
                return self.with_entries(node, node.kind, reduced, operand)
            case RenameOf():
                return self.renaming(node, self.shape(node.operand, matching), matching)
            case ChunkOf():
                return self.chunk(node, self.shape(node.operand, matching), matching)
            case ConcatOf():
                return self.concatenation(node, self.shape(node.operand, matching))
            case FoldOf():
                bodies = [self.shape(operand, matching) for operand in node.operands]
                return self.fold(node, _together(node, bodies))
            case _:
                raise Unknown

    def application(self, node: Apply, operands: list[Shape]) -> Shape:
        if dict(self.rule.classes).get(node.function) == "calls":
            # Along an axis that it passes, a primitive is like an elementwise function. What it does
            # with its other axes is not written in the rule.
            passed = [guard.operands[1] for guard in self.rule.guards if guard.name == "passes"]
            if not any(self.axes[axis] for axis in passed):
                raise Unknown
        return _together(node, operands)

    def reduce(self, node: Reduction | Contraction, operand: Shape, present: frozenset[str]) -> Shape:
        kind = "dot" if isinstance(node, Contraction) else node.kind
        operator = f"{kind}[{', '.join(node.axes)}]"
        for name in node.axes:
            if not self.axes[name] <= present:
                which = "one of its operands" if isinstance(node, Contraction) else "its operand"
                raise IllFormed(node, f"`{operator}` is over {_axes_of(name)}, which {which} may lack")
        over = frozenset[str]().union(*(self.axes[name] for name in node.axes))
        return Shape(operand.axes - over, operand.cut - over, operand.open)

    def with_entries(self, node: Expression, function: str, result: Shape, operand: Shape) -> Shape:
        entries = self.entries.get(function, frozenset())
        if entries & operand.axes:
            raise IllFormed(node, f"the entries of `{function}` are along an axis that is there already")
        return Shape(result.axes | entries, result.cut, result.open)

    def renaming(self, node: RenameOf, operand: Shape, matching: bool) -> Shape:
        old, new = self.axes[node.old], self.axes[node.new]
        if not old <= operand.axes:
            if matching:
                raise IllFormed(node, f"the operand has no axis `{node.old}`")
            return operand  # as with a chunk: without the axis, it is the operand itself
        if new & operand.axes:
            raise IllFormed(node, f"the operand may have an axis `{node.new}` already")
        if not old:
            return operand
        moved = [axes - old | new if old <= axes else axes for axes in (operand.axes, operand.cut)]
        return Shape(moved[0], moved[1], operand.open)

    def chunk(self, node: ChunkOf, operand: Shape, matching: bool) -> Shape:
        axis = self.axes[node.axis]
        if not axis <= operand.axes:
            if matching:  # the engine drops such a chunk at once
                raise IllFormed(
                    node, f"`chunk[{node.axis}]` of a term without `{node.axis}` is the term itself"
                )
            return operand
        if axis & operand.cut:
            raise IllFormed(node, f"this is a chunk along `{node.axis}` already")
        return Shape(operand.axes, operand.cut | axis, operand.open | axis)

    def concatenation(self, node: ConcatOf, body: Shape) -> Shape:
        axis = self.axes[node.axis]
        if not axis <= body.cut:
            raise IllFormed(node, f"the body of this loop is not cut along `{node.axis}`")
        return Shape(body.axes, body.cut - axis, body.open - axis)

    def fold(self, node: FoldOf, body: Shape) -> Shape:
        axis = self.axes[node.axis]
        if not axis <= body.open:
            raise IllFormed(node, f"each turn of this loop is the same: it has no `chunk[{node.axis}]`")
        if dict(self.rule.classes).get(node.monoid) == "selections":
            if not axis <= body.axes:
                raise IllFormed(node, f"a selection is along `{node.axis}`, which its body must keep")
            rest = Shape(body.axes - axis, body.cut - axis, body.open - axis)
            return self.with_entries(node, node.monoid, rest, body)
        if axis & body.axes:
            message = f"the body of this loop still has the axis `{node.axis}`, whose chunks it combines"
            raise IllFormed(node, message)
        return Shape(body.axes, body.cut, body.open - axis)

    # ----------------------------------------------------------------------- what a rule says of names

    def agrees(self) -> bool:
        """Whether patterns, memberships and definitions hold."""
        for node in (*variables(self.rule.left), *variables(self.rule.right)):
            have = self.terms[node.name]
            if not all(self.axes[axis] <= have for axis in node.has):
                return False
            if any(self.axes[axis] & have for axis in node.lacks):
                return False
        for guard in self.rule.guards:
            if guard.name == "in" and not self.axes[guard.operands[0]] <= self.either(guard.operands[1]):
                return False
        for definition in self.rule.definitions:
            rest = self.either(definition.first[1])
            for _, name in definition.less:
                rest -= self.either(name)
            if rest != self.axes[definition.name]:
                return False
        return True

    def either(self, name: str) -> frozenset[str]:
        return self.terms[name] if name in self.terms else self.axes[name]

    def size(self) -> int:
        """How much there is in this world; errors are shown in the smallest."""
        return sum(len(have) for names in (self.axes, self.terms, self.entries) for have in names.values())


def _together(node: Expression, operands: list[Shape]) -> Shape:
    """The shape of operands that broadcast over each other."""
    axes, cut, open_ = (
        frozenset[str]().union(*sets)
        for sets in zip(*((shape.axes, shape.cut, shape.open) for shape in operands), strict=True)
    )
    if any(cut & shape.axes != shape.cut for shape in operands):
        axis = next(iter(axis for shape in operands for axis in cut & shape.axes - shape.cut))
        raise IllFormed(node, f"a chunk along `{axis}` meets an operand that is not cut along `{axis}`")
    return Shape(axes, cut, open_)


def _axes_of(name: str) -> str:
    return f"axes of `{name}`" if is_set(name) else f"the axis `{name}`"


def worlds_of(rule: Rule) -> Iterator[World]:
    """All worlds in which patterns and `where` clauses hold, those of few axes first."""
    nodes = [*walk(rule.left), *walk(rule.right)]
    names = {axis for node in nodes for axis in operator_axes(node)}
    terms: set[str] = set()
    for variable in (node for node in nodes if isinstance(node, Variable)):
        terms.add(variable.name)
        names.update(variable.has + variable.lacks)
    names.update(definition.name for definition in rule.definitions)
    names.update(name for guard in rule.guards if guard.name == "in" for name in guard.operands)
    names.update(guard.operands[1] for guard in rule.guards if guard.name == "passes")
    names -= terms
    singles = sorted(name for name in names if not is_set(name))
    # What stands for any subset of the axes of a world: sets of axes, variables, selections.
    free = [("axes", name) for name in sorted(names.difference(singles))]
    free += [("terms", name) for name in sorted(terms)]
    free += [("entries", function) for function, family in rule.classes if family == "selections"]
    found: list[World] = []
    universes = [(ANY,), *_renamed_together(nodes, singles)]
    if max(map(len, universes)) * len(free) > MOST_CHOICES:
        return iter(())
    for universe in universes:
        subsets = [
            frozenset(axis for axis, chosen in zip(universe, choice, strict=True) if chosen)
            for choice in product((False, True), repeat=len(universe))
        ]
        # Different letters are different axes: in a world of one axis, at most one of them is that axis.
        letters = {name: frozenset({name} & set(universe)) for name in singles}
        for chosen in product(subsets, repeat=len(free)):
            have: dict[str, dict[str, frozenset[str]]] = {"axes": dict(letters), "terms": {}, "entries": {}}
            for (kind, name), subset in zip(free, chosen, strict=True):
                have[kind][name] = subset
            found.append(World(**have, rule=rule))
    return (world for world in sorted(found, key=World.size) if world.agrees())


def _renamed_together(nodes: list[Expression], singles: list[str]) -> list[tuple[str, ...]]:
    """The axis names of a rule, in groups: a renaming puts its two into one group."""
    groups = [{name} for name in singles]
    for node in nodes:
        if isinstance(node, RenameOf):
            joined = [group for group in groups if group & {node.old, node.new}]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    return [tuple(sorted(group)) for group in groups]
