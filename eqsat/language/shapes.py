"""Computes the shapes of expressions in many models at once: their axes, and the loops that they are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.ir.operations import Signature
from eqsat.language.functions import ALONG, CALLED, FOLDED, REDUCED
from eqsat.language.membership_models import Members, MembershipModels, common, somewhere, union, without
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Position,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import is_set


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a term.

    **Attributes:**

    - `axes`: its axes.
    - `cut`: those of its axes along which it is a chunk.
    - `open`: the axes whose current chunk it depends on, so that it must be inside a loop over
      each.
    """

    axes: Members
    cut: Members
    open: Members


@dataclass(frozen=True, slots=True)
class ShapeProblem:
    """The reason why an expression has no shape in some `models`, given as bits."""

    models: int
    position: Position
    message: str
    hint: str = ""


class Shaper:
    """Computes the shapes of expressions in those of the `models` that are `good`.

    **Arguments:**

    - `operations`: the signatures of operations, by name.
    - `matching`: whether the expressions are matched with a program, or built.

    **Attributes:**

    - `good`: the models in which every expression so far has a shape.
    - `unknown`: the models in which this cannot be decided.
    - `problems`: what is wrong in the other models: for each model the first problem.
    """

    def __init__(
        self,
        rule: Rule,
        operations: Mapping[str, Signature],
        models: MembershipModels,
        good: int,
        matching: bool,
    ) -> None:
        self.rule = rule
        self.classes = dict(rule.classes)
        self.operations = operations
        self.models = models
        self.good = good
        self.matching = matching
        self.unknown = 0
        self.problems: list[ShapeProblem] = []

    def refuse(self, where: int, node: Expression, message: str, hint: str = "") -> None:
        where &= self.good
        if where:
            self.good &= ~where
            self.problems.append(ShapeProblem(where, node.position, message, hint))

    def shape(self, node: Expression) -> Shape:
        """Returns the shape of an expression, which is meaningless in models that are not good afterwards."""
        models = self.models
        nothing = models.nothing
        match node:
            case Number():
                return Shape(nothing, nothing, nothing)
            case Variable():
                return Shape(models.terms[node.name], nothing, nothing)
            case IotaOf():
                return Shape(models.axes[node.axis], nothing, nothing)
            case DeltaOf():
                both = union(models.axes[node.first], models.axes[node.second])
                return Shape(both, nothing, nothing)
            case Apply():
                return self.application(node, [self.shape(operand) for operand in node.operands])
            case Contraction():
                left, right = self.shape(node.left), self.shape(node.right)
                together = self.together(node, [left, right])
                return self.reduce(node, together, [left, right])
            case Reduction():
                operand = self.shape(node.operand)
                reduced = self.reduce(node, operand, [operand])
                return self.with_entries(node, node.kind, reduced, operand)
            case SelectionOf():
                return self.selection(node, self.shape(node.operand))
            case OperationOf():
                return self.operation(node, [self.shape(operand) for operand in node.operands])
            case RenameOf():
                return self.renaming(node, self.shape(node.operand))
            case ChunkOf():
                return self.chunk(node, self.shape(node.operand))
            case ConcatOf():
                return self.concatenation(node, self.shape(node.operand))
            case FoldOf():
                if node.monoid in FOLDED:
                    return self.folded(node)
                return self.fold(node, self.together(node, [self.shape(body) for body in node.operands]))

    def together(self, node: Expression, operands: list[Shape]) -> Shape:
        """Returns the shape of operands that are broadcast against each other."""
        cut = union(*(operand.cut for operand in operands))
        for operand in operands if any(cut) else ():
            whole = without(common(cut, operand.axes), operand.cut)
            for axis, where in zip(self.models.universe, whole, strict=True):
                message = f"a chunk along `{axis}` meets an operand that is not cut along `{axis}`"
                self.refuse(where, node, message, f"take a chunk of each operand that has `{axis}`")
        axes = union(*(operand.axes for operand in operands))
        return Shape(axes, cut, union(*(operand.open for operand in operands)))

    def application(self, node: Apply, operands: list[Shape]) -> Shape:
        if self.classes.get(node.function) in CALLED:
            # A call that passes an axis treats it as an elementwise function does. If it accumulates or sums
            # along the axis, its result lacks it. The rule does not say what it does with other axes.
            named = [guard.operands[1] for guard in self.rule.guards if guard.name in ALONG]
            if not any(axis in self.models.universe for axis in named):
                self.unknown |= self.good
                self.good = 0
            return self.accumulation(node, self.together(node, operands))
        return self.together(node, operands)

    def accumulation(self, node: Apply, result: Shape) -> Shape:
        """Returns the shape of a call: that of its operands without the axes that its result lacks.

        The rule's guards name these axes.
        """
        for guard in self.rule.guards:
            place = self.models.place(guard.operands[-1])
            if guard.name in REDUCED and guard.operands[0] == node.function and place is not None:
                missing = self.models.everywhere & ~result.axes[place]
                self.refuse(missing, node, f"no operand has the axis `{guard.operands[1]}`")
                result = Shape(_put(result.axes, place, 0), _put(result.cut, place, 0), result.open)
        return result

    def reduce(self, node: Reduction | Contraction, result: Shape, operands: list[Shape]) -> Shape:
        kind = "dot" if isinstance(node, Contraction) else node.kind
        places = ("left operand", "right operand") if len(operands) > 1 else ("operand",)
        over = self.models.nothing
        for name in node.axes:
            axes = self.models.axes[name]
            what = f"axes of `{name}`" if is_set(name) else f"the axis `{name}`"
            for operand, which in zip(operands, places, strict=True):
                message = f"`{kind}[{', '.join(node.axes)}]` is over {what}, which its {which} may lack"
                self.refuse(somewhere(without(axes, operand.axes)), node, message)
            over = union(over, axes)
        return Shape(without(result.axes, over), without(result.cut, over), result.open)

    def with_entries(self, node: Expression, function: str, result: Shape, operand: Shape) -> Shape:
        entries = self.models.entries.get(function)
        if entries is None:
            return result
        message = f"the entries of `{function}` are along an axis that its operand may already have"
        hint = "say by a pattern that the variable lacks the axis: `a{!n}`"
        self.refuse(somewhere(common(entries, operand.axes)), node, message, hint)
        return Shape(union(result.axes, entries), result.cut, result.open)

    def selection(self, node: SelectionOf, operand: Shape) -> Shape:
        axis, entries = self.models.axes[node.axis], self.models.axes[node.out_axis]
        operator = f"top_k{'_indices' * (node.result == 'indices')}[{node.axis}, {node.out_axis}]"
        message = f"`{operator}` is along the axis `{node.axis}`, which its operand may lack"
        self.refuse(somewhere(without(axis, operand.axes)), node, message)
        message = (
            f"the entries of `{operator}` are along `{node.out_axis}`, which its operand may already have"
        )
        self.refuse(somewhere(common(entries, operand.axes)), node, message)
        message = f"`{operator}` needs the axis `{node.axis}` whole, but this is a chunk of it"
        hint = f"`fold[{node.axis}, s] chunk[{node.axis}] a`, with s in selections, keeps the best of all"
        self.refuse(somewhere(common(axis, operand.cut)), node, message, hint)
        axes = union(without(operand.axes, axis), entries)
        return Shape(axes, without(operand.cut, axis), operand.open)

    def operation(self, node: OperationOf, operands: list[Shape]) -> Shape:
        signature = self.operations[node.name]
        operator = f"{node.name}[{', '.join(node.axes)}]"
        hint = f"it is `{signature}`"
        core = self.models.nothing
        result = self.models.nothing
        for letter, name in zip(signature.axes, node.axes, strict=True):
            axis = self.models.axes[name]
            core = union(core, axis)
            if letter in signature.result:
                result = union(result, axis)
            for (label, letters), operand in zip(signature.operands, operands, strict=True):
                there = common(axis, operand.axes)
                if letter in letters:
                    message = f"the operand `{label}` of `{operator}` may lack its axis `{name}`"
                    self.refuse(somewhere(without(axis, there)), node, message, hint)
                else:
                    message = f"the operand `{label}` of `{operator}` must not have the axis `{name}`"
                    self.refuse(somewhere(there), node, message, hint)
                message = f"`{operator}` needs the axis `{name}` whole, but this is a chunk of it"
                chunked = somewhere(common(axis, operand.cut))
                self.refuse(chunked, node, message, "it can work on chunks along all other axes")
        rest = self.together(node, operands)
        return Shape(union(without(rest.axes, core), result), without(rest.cut, core), rest.open)

    def renaming(self, node: RenameOf, operand: Shape) -> Shape:
        old, new = self.models.place(node.old), self.models.place(node.new)
        if old is None or new is None:
            return operand
        if self.matching:
            missing = self.models.everywhere & ~operand.axes[old]
            self.refuse(missing, node, f"the operand has no axis `{node.old}`")
        # If the operand lacks the axis, a renaming that is built is the operand itself. So is a chunk.
        clash = operand.axes[old] & operand.axes[new]
        product = isinstance(node.operand, Apply) and node.operand.function in ("mul", "div")
        operator = f"rename[{node.old}->{node.new}]"
        hint = f"`{operator}` applies to the whole product: write `({operator} a) * b`" if product else ""
        self.refuse(clash, node, f"the operand may already have an axis `{node.new}`", hint)

        def moved(members: Members) -> Members:
            places = list(members)
            places[new] |= places[old]
            places[old] = 0
            return tuple(places)

        return Shape(moved(operand.axes), moved(operand.cut), operand.open)

    def chunk(self, node: ChunkOf, operand: Shape) -> Shape:
        place = self.models.place(node.axis)
        if place is None:
            return operand
        there = operand.axes[place]
        if self.matching:  # the engine replaces such a chunk by its operand, so a program has none
            message = f"`chunk[{node.axis}]` of a term without `{node.axis}` is the term itself"
            self.refuse(self.models.everywhere & ~there, node, message)
        message = f"this is already a chunk along `{node.axis}`"
        self.refuse(operand.cut[place], node, message, "one `chunk` is enough")
        cut = _put(operand.cut, place, operand.cut[place] | there)
        return Shape(operand.axes, cut, _put(operand.open, place, operand.open[place] | there))

    def concatenation(self, node: ConcatOf, body: Shape) -> Shape:
        place = self.models.place(node.axis)
        if place is None:
            return body
        uncut = self.models.everywhere & ~body.cut[place]
        message = f"the body of this loop has no chunk along `{node.axis}`"
        self.refuse(uncut, node, message, f"it must contain `chunk[{node.axis}] a`")
        return Shape(body.axes, _put(body.cut, place, 0), _put(body.open, place, 0))

    def fold(self, node: FoldOf, body: Shape) -> Shape:
        place = self.models.place(node.axis)
        selects = self.classes.get(node.monoid) == "selections"
        result = body
        if place is not None:
            same = self.models.everywhere & ~body.open[place]
            message = f"all iterations of this loop are the same: its body has no `chunk[{node.axis}]`"
            self.refuse(same, node, message, f"write `chunk[{node.axis}] a` for what differs")
            if selects:
                message = f"the body of a fold by a selection must keep the axis `{node.axis}`"
                lost = self.models.everywhere & ~body.axes[place]
                self.refuse(lost, node, message, f"select from `chunk[{node.axis}] a`, which is not reduced")
            else:
                message = f"the body of this loop still has the axis `{node.axis}`, whose chunks it combines"
                hint = (
                    f"reduce each chunk first: `fold[{node.axis}, sum] sum[{node.axis}] chunk[{node.axis}] a`"
                )
                self.refuse(body.axes[place], node, message, hint)
            result = Shape(*(_put(members, place, 0) for members in (body.axes, body.cut, body.open)))
        return self.with_entries(node, node.monoid, result, body) if selects else result

    def folded(self, node: FoldOf) -> Shape:
        """Returns the shape of an operation that is done chunk by chunk: that of it on the whole."""
        (body,) = node.operands
        assert isinstance(body, OperationOf)
        wholes = [operand.operand for operand in body.operands if isinstance(operand, ChunkOf)]
        return self.operation(body, [self.shape(whole) for whole in wholes])


def _put(members: Members, place: int, models: int) -> Members:
    return (*members[:place], models, *members[place + 1 :])
