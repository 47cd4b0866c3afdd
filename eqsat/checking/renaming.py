"""Renames the single axes of a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from eqsat.language.rewriting import rewritten
from eqsat.language.syntax import (
    Arithmetic,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    OperationOf,
    Quantity,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    SizeOf,
    Variable,
)


def renamed(rule: Rule, naming: Mapping[str, str]) -> Rule:
    """Returns the rule with its single axes renamed, and without its examples.

    **Arguments:**

    - `naming`: new names by old ones. Axes without a new name keep the old one.
    """

    def name(axis: str) -> str:
        return naming.get(axis, axis)

    def names(axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(name, axes))

    def node(found: Expression) -> Expression | None:
        match found:
            case Variable():
                return replace(found, has=names(found.has), lacks=names(found.lacks))
            case RenameOf():
                return replace(found, old=name(found.old), new=name(found.new))
            case DeltaOf():
                return replace(found, first=name(found.first), second=name(found.second))
            case SelectionOf():
                return replace(found, axis=name(found.axis), out_axis=name(found.out_axis))
            case IotaOf() | ChunkOf() | ConcatOf() | FoldOf():
                return replace(found, axis=name(found.axis))
            case OperationOf() | Reduction() | Contraction():
                return replace(found, axes=names(found.axes))
        return None

    data_guard = rule.data_guard
    if data_guard is not None:
        data_guard = replace(data_guard, guard=data_guard.guard.renamed(naming))
    return replace(
        rule,
        left=rewritten(rule.left, node),
        right=rewritten(rule.right, node),
        guards=tuple(replace(guard, operands=names(guard.operands)) for guard in rule.guards),
        properties=tuple(replace(known, axes=names(known.axes)) for known in rule.properties),
        comparisons=tuple(
            replace(one, left=_quantity(one.left, name), right=_quantity(one.right, name))
            for one in rule.comparisons
        ),
        definitions=tuple(
            replace(
                one,
                first=(one.first[0], name(one.first[1])),
                less=tuple((kind, name(item)) for kind, item in one.less),
            )
            for one in rule.definitions
        ),
        copies=tuple(
            replace(copy, name=name(copy.name), original=name(copy.original)) for copy in rule.copies
        ),
        lengths=tuple(
            replace(new, name=name(new.name), length=_quantity(new.length, name)) for new in rule.lengths
        ),
        examples=(),
        data_guard=data_guard,
    )


def _quantity(quantity: Quantity, name: Callable[[str], str]) -> Quantity:
    match quantity:
        case Arithmetic(left=left, right=right):
            return replace(quantity, left=_quantity(left, name), right=_quantity(right, name))
        case SizeOf():
            return replace(quantity, name=name(quantity.name))
        case _:
            return quantity
