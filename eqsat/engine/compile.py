"""From checked rules to egglog rules.

One rule of the language becomes several of egglog's: one per direction, per order of commutative
operands, per number of operands of `f(a..)`, and per answer to "does this operand have the axis?"
where the right side takes a chunk or renames an axis of it (an operand without the axis is its own
chunk). `direction` writes each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from eqsat.engine.direction import Direction
from eqsat.ir.elementwise import COMMUTATIVE
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    RenameOf,
    Rule,
    Variable,
)
from eqsat.language.traverse import walk


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule's egglog text, run as a ruleset of its own.

    **Attributes:**

    - `rule`: the rule it came from.
    - `number`: its number, by which e-nodes name their maker.
    - `ruleset`: the ruleset's name.
    - `text`: the egglog commands that declare it.
    - `splits`: whether it is about loops (run once the algebra is done).
    """

    rule: Rule
    number: int
    ruleset: str
    text: str
    splits: bool


def orders(expression: Expression) -> Iterator[Expression]:
    """The expression with the operands of commutative functions in every order."""
    match expression:
        case Apply(operands=operands):
            for chosen in product(*(list(orders(operand)) for operand in operands)):
                yield replace(expression, operands=chosen)
                if expression.function in COMMUTATIVE and len(chosen) == 2 and chosen[0] != chosen[1]:
                    yield replace(expression, operands=chosen[::-1])
        case Contraction(left=left, right=right):
            for first, second in product(list(orders(left)), list(orders(right))):
                yield replace(expression, left=first, right=second)
                if first != second:
                    yield replace(expression, left=second, right=first)
        case Number() | Variable() | IotaOf():
            yield expression
        case _:
            for operand in orders(expression.operand):
                yield replace(expression, operand=operand)


def expand(expression: Expression, variable: str, count: int) -> Expression:
    """`f(a..)` with `count` operands, and `a` standing for each in turn."""
    if isinstance(expression, Apply) and expression.variadic:
        template = expression.operands[0]
        return replace(
            expression,
            operands=tuple(_numbered(template, variable, index) for index in range(count)),
            variadic=False,
        )
    match expression:
        case Apply(operands=operands):
            return replace(expression, operands=tuple(expand(o, variable, count) for o in operands))
        case Contraction(left=left, right=right):
            return replace(
                expression, left=expand(left, variable, count), right=expand(right, variable, count)
            )
        case Number() | Variable() | IotaOf():
            return expression
        case _:
            return replace(expression, operand=expand(expression.operand, variable, count))


def _numbered(expression: Expression, variable: str, index: int) -> Expression:
    match expression:
        case Variable(name=name) if name == variable:
            return replace(expression, name=f"{name}.{index}")
        case ChunkOf() | RenameOf():
            return replace(expression, operand=_numbered(expression.operand, variable, index))
        case _:
            return expression


def _variants(rule: Rule, left: Expression, right: Expression, number: int, precision: str) -> Iterator[str]:
    variadic = [e for e in walk(left) if isinstance(e, Apply) and e.variadic]
    is_call = "calls" in dict(rule.classes).values()
    if variadic and not is_call:
        (variable,) = (e.name for e in walk(variadic[0]) if isinstance(e, Variable))
        pairs = [(expand(left, variable, count), expand(right, variable, count)) for count in (1, 2, 3)]
    else:
        pairs = [(left, right)]
    for one_left, one_right in pairs:
        for ordered in [one_left] if is_call else dict.fromkeys(orders(one_left)):
            uncertain = [
                e
                for e in walk(one_right)
                if isinstance(e, (ChunkOf, RenameOf)) and isinstance(e.operand, Variable) and not is_call
            ]
            uncertain = list(dict.fromkeys(uncertain))
            for answers in product((True, False), repeat=len(uncertain)):
                present = frozenset(e for e, answer in zip(uncertain, answers, strict=True) if answer)
                absent = frozenset(uncertain) - present
                if uncertain and not present:
                    continue
                yield Direction(rule, ordered, one_right, number, precision).compile(absent, present)


def compile_rule(rule: Rule, number: int, precision: str = "") -> CompiledRule:
    """The egglog text of one rule.

    **Arguments:**

    - `number`: the rule's number among all rules of a run.
    - `precision`: of the contractions that a rule makes out of sums.
    """
    ruleset = f"rule-{number}"
    lines = [f"(ruleset {ruleset})"]
    directions = [(rule.left, rule.right)]
    if rule.both_ways:
        directions.append((rule.right, rule.left))
    bodies: Iterable[str] = dict.fromkeys(
        body for left, right in directions for body in _variants(rule, left, right, number, precision)
    )
    for variant, body in enumerate(bodies):
        lines.append(f'(rule {body} :ruleset {ruleset} :name "{rule.name}.{number}.{variant}")')
    splits = any(isinstance(e, (ChunkOf, ConcatOf, FoldOf)) for e in walk(rule.left)) or any(
        isinstance(e, (ChunkOf, ConcatOf, FoldOf)) for e in walk(rule.right)
    )
    return CompiledRule(rule, number, ruleset, "\n".join(lines), splits)
