"""Classes of functions that a rule lists: `for f in {sin, cos}`.

Such a rule stands for several, one for each function. In a rule's `classes`, the class is what is written.
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
    """The class that holds these functions.

    >>> class_of(["sin", "cos"])
    '{sin, cos}'
    """
    return f"{{{', '.join(functions)}}}"


def functions_in(family: str) -> tuple[str, ...]:
    """The functions that a class lists; none if it is one that has a name.

    >>> functions_in("{sin, cos}"), functions_in("elementwise")
    (('sin', 'cos'), ())
    """
    return tuple(family[1:-1].split(", ")) if family.startswith("{") else ()


def each_function(rule: Rule) -> Iterator[Rule]:
    """The rule for every choice among the functions that it lists; itself if it lists none."""
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
    """An expression with functions in place of the variables that stand for them."""
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
    """An expression with a function in place of the variable that it names, if it names one."""
    match node:
        case Apply(function=name):
            return replace(node, function=members.get(name, name))
        case Reduction(kind=name):
            return replace(node, kind=members.get(name, name))
        case FoldOf(monoid=name):
            return replace(node, monoid=members.get(name, name))
        case _:
            return node
