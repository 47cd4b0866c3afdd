"""Walks over expressions of rules, and tells what their nodes name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eqsat.ir.elementwise import COMMUTATIVE
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
    SelectionOf,
    SizeOf,
    Variable,
)

NO_NAMES: Mapping[str, str] = {}


def is_set(name: str) -> bool:
    """Returns whether an axis name stands for a set of axes, as those in upper case do."""
    return name[:1].isupper()


def operands(expression: Expression) -> tuple[Expression, ...]:
    """Returns the operands of `expression`."""
    match expression:
        case Number() | Variable() | IotaOf() | DeltaOf():
            return ()
        case Apply() | OperationOf() | FoldOf():
            return expression.operands
        case Contraction():
            return (expression.left, expression.right)
        case _:
            return (expression.operand,)


def walk(expression: Expression) -> Iterator[Expression]:
    """Yields `expression` and all expressions inside it, each before its operands, from left to right."""
    ahead = [expression]
    while ahead:
        node = ahead.pop()
        yield node
        ahead.extend(reversed(operands(node)))


def variables(expression: Expression) -> Iterator[Variable]:
    """Yields each occurrence of a term variable in `expression`, from left to right."""
    return (node for node in walk(expression) if isinstance(node, Variable))


def parts(quantity: Quantity) -> Iterator[Quantity]:
    """Yields `quantity` and all quantities inside it."""
    yield quantity
    if isinstance(quantity, Arithmetic):
        yield from parts(quantity.left)
        yield from parts(quantity.right)


def written(quantity: Quantity) -> str:
    """Returns the text of a quantity, as rules write it."""
    match quantity:
        case Number(text=text):
            return text
        case SizeOf(name=name):
            return f"size({name})"
        case ConstantValue(name=name):
            return name
        case Arithmetic(operator=operator, left=left, right=right):
            around = ((left, "+-" if operator in "*/" else ""), (right, "+-*/"))
            sides = [
                f"({text})" if isinstance(side, Arithmetic) and side.operator in looser else text
                for side, looser in around
                for text in [written(side)]
            ]
            return f" {operator} ".join(sides)


def operator_axes(node: Expression) -> tuple[str, ...]:
    """Returns the axis names in the operator of a node: J and K for `sum[J, K] a`, none for `a + b`."""
    match node:
        case Reduction() | Contraction() | OperationOf():
            return node.axes
        case IotaOf() | ChunkOf() | ConcatOf() | FoldOf():
            return (node.axis,)
        case DeltaOf():
            return (node.first, node.second)
        case SelectionOf():
            return (node.axis, node.out_axis)
        case RenameOf():
            return (node.old, node.new)
        case _:
            return ()


def function_name(node: Expression) -> str | None:
    """Returns the function, reduction, operation or monoid that a node names, or None."""
    match node:
        case OperationOf():
            return node.name
        case SelectionOf():
            return f"top_k_{node.result}"
        case Apply():
            return node.function
        case Reduction():
            return node.kind
        case FoldOf():
            return node.monoid
        case _:
            return None


def commutes(node: Expression) -> bool:
    """Returns whether a node is a function of two operands that may be exchanged."""
    return isinstance(node, Apply) and node.function in COMMUTATIVE and len(node.operands) == 2


def named(node: Expression) -> tuple[str, tuple[str, ...], tuple[Expression, ...]]:
    """Returns the name, axes and operands of a node that reads as `name[axes](operands)`.

    The name is "" for other nodes.
    """
    match node:
        case Apply(function=name, operands=below):
            return name, (), below
        case Reduction(kind=name, axes=axes, operand=operand):
            return name, axes, (operand,)
        case OperationOf(name=name, axes=axes, operands=below):
            return name, axes, below
        case _:
            return "", (), ()


def canonical(expression: Expression, names: Mapping[str, str] = NO_NAMES) -> object:
    """Returns a value that is equal for expressions which matching cannot distinguish.

    It ignores patterns and the order of operands that commute, since matching tries both orders of
    `a + b`. `names` maps names in the expression to those to use in their place.

    >>> from eqsat.language.parse import parse_rules
    >>> [rule] = parse_rules("rule swap  a * exp(b) => exp(b) * a", "my.rules").rules
    >>> canonical(rule.left) == canonical(rule.right)
    True
    """
    below: list[object] = [canonical(operand, names) for operand in operands(expression)]
    function = function_name(expression)
    called = names.get(function, function) if function else None
    axes = tuple(names.get(axis, axis) for axis in operator_axes(expression))
    match expression:
        case Number():
            return expression.value
        case Variable(name=name):
            return names.get(name, name)
        case Apply():
            if expression.function in COMMUTATIVE:
                below.sort(key=repr)
            return (called, expression.exponent, expression.variadic, *below)
        case Contraction():
            return ("dot", tuple(sorted(axes)), *sorted(below, key=repr))
        case Reduction():
            return ("reduction", called, tuple(sorted(axes)), *below)
        case DeltaOf():
            return ("delta", *sorted(axes))
        case _:
            return (type(expression).__name__, called, axes, *below)
