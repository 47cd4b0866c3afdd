"""Replaces parts of expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eqsat.language.syntax import (
    Apply,
    Contraction,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Variable,
)
from eqsat.language.traverse import operands


def with_operands(node: Expression, below: tuple[Expression, ...]) -> Expression:
    """Returns the same operator applied to other operands."""
    match node:
        case Number() | Variable() | IotaOf() | DeltaOf():
            return node
        case Apply() | OperationOf() | FoldOf():
            return replace(node, operands=below)
        case Contraction():
            left, right = below
            return replace(node, left=left, right=right)
        case _:
            (operand,) = below
            return replace(node, operand=operand)


def rewritten(expression: Expression, replaced: Callable[[Expression], Expression | None]) -> Expression:
    """Returns an expression with each node replaced by what `replaced` returns; None keeps the node.

    Operands of a replacement are rewritten as well.
    """
    found = replaced(expression)
    node = expression if found is None else found
    return with_operands(node, tuple(rewritten(operand, replaced) for operand in operands(node)))


def bare(expression: Expression) -> Expression:
    """Returns an expression without what it says of the axes of its variables.

    Expressions that are equal then match the same e-class.
    """

    def without(node: Expression) -> Expression | None:
        return replace(node, has=(), lacks=()) if isinstance(node, Variable) else None

    return rewritten(expression, without)
