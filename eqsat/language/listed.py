"""Classes that list their functions: `for f in {sin, cos}`.

A rule with such a class stands for one rule for each function. In `Rule.classes`, the class is its
list in braces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from eqsat.language.syntax import (
    Apply,
    Contraction,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Reduction,
    Rule,
    Variable,
)


def class_of(functions: Sequence[str]) -> str:
    """Returns the class that lists these functions.

    >>> class_of(["sin", "cos"])
    '{sin, cos}'
    """
    return f"{{{', '.join(functions)}}}"


def functions_in(family: str) -> tuple[str, ...]:
    """Returns the functions that a class lists, or nothing for a class with a name.

    >>> functions_in("{sin, cos}"), functions_in("elementwise")
    (('sin', 'cos'), ())
    """
    return tuple(family[1:-1].split(", ")) if family.startswith("{") else ()


def each_function(rule: Rule) -> Iterator[Rule]:
    """Yields one rule for each choice of the functions that the rule's classes list.

    A rule whose classes list no functions is yielded unchanged.
    """
    listed = {name: functions_in(family) for name, family in rule.classes if functions_in(family)}
    others = tuple((name, family) for name, family in rule.classes if name not in listed)
    for chosen in product(*listed.values()):
        members = dict(zip(listed, chosen, strict=True))
        if not members:
            yield rule
            continue
        yield replace(
            rule,
            left=with_functions(rule.left, members),
            right=with_functions(rule.right, members),
            classes=others,
        )


def with_functions(node: Expression, members: dict[str, str]) -> Expression:
    """Returns an expression in which functions replace the function variables in `members`."""
    match node:
        case Number() | Variable() | IotaOf() | DeltaOf():
            return node
        case Contraction(left=left, right=right):
            return replace(node, left=with_functions(left, members), right=with_functions(right, members))
        case Apply() | OperationOf() | FoldOf():
            below = tuple(with_functions(operand, members) for operand in node.operands)
            return called(replace(node, operands=below), members)
        case _:
            return called(replace(node, operand=with_functions(node.operand, members)), members)


def called(node: Expression, members: dict[str, str]) -> Expression:
    """Returns a node in which a function replaces the function variable that it names, if `members` has it.

    Its operands are unchanged.
    """
    match node:
        case Apply(function=name):
            return replace(node, function=members.get(name, name))
        case Reduction(kind=name):
            return replace(node, kind=members.get(name, name))
        case FoldOf(monoid=name):
            return replace(node, monoid=members.get(name, name))
        case _:
            return node
