"""The conditions of a rule, one by one: patterns, guards, properties, comparisons, definitions, lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eqsat.language.rewriting import rewritten
from eqsat.language.syntax import (
    AxisDefinition,
    Comparison,
    CopyDefinition,
    Expression,
    Guard,
    LengthDefinition,
    Position,
    PropertyGuard,
    Rule,
    Variable,
)
from eqsat.language.traverse import variables, written


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern `a{k}` (`present`) or `a{!k}`, which holds for all occurrences of a variable."""

    variable: str
    axis: str
    present: bool
    position: Position

    def removed(self, node: Expression) -> Expression | None:
        """Returns an occurrence of the variable without this pattern, or None for any other node."""
        if not isinstance(node, Variable) or node.name != self.variable:
            return None
        less = tuple(name for name in (node.has if self.present else node.lacks) if name != self.axis)
        return replace(node, has=less) if self.present else replace(node, lacks=less)


Condition = Pattern | Guard | PropertyGuard | Comparison | AxisDefinition | CopyDefinition | LengthDefinition


def conditions_of(rule: Rule) -> list[Condition]:
    """Returns all conditions of a rule that can be left out, patterns first."""
    patterns: dict[tuple[str, str, bool], Pattern] = {}
    for variable in (*variables(rule.left), *variables(rule.right)):
        for present, names in ((True, variable.has), (False, variable.lacks)):
            for axis in names:
                pattern = Pattern(variable.name, axis, present, variable.position)
                patterns.setdefault((variable.name, axis, present), pattern)
    return [
        *patterns.values(),
        *rule.guards,
        *rule.properties,
        *rule.comparisons,
        *rule.definitions,
        *rule.copies,
        *rule.lengths,
    ]


def without(rule: Rule, condition: Condition) -> Rule:
    """Returns the rule with one condition left out."""
    if isinstance(condition, Pattern):
        left, right = (rewritten(side, condition.removed) for side in (rule.left, rule.right))
        return replace(rule, left=left, right=right)
    return replace(
        rule,
        guards=tuple(item for item in rule.guards if item is not condition),
        properties=tuple(item for item in rule.properties if item is not condition),
        comparisons=tuple(item for item in rule.comparisons if item is not condition),
        definitions=tuple(item for item in rule.definitions if item is not condition),
        copies=tuple(item for item in rule.copies if item is not condition),
        lengths=tuple(item for item in rule.lengths if item is not condition),
    )


def text_of(condition: Condition) -> str:
    """Returns a condition as it is written in a rules file."""
    match condition:
        case Pattern(variable=variable, axis=axis, present=present):
            return f"{variable}{{{'' if present else '!'}{axis}}}"
        case Guard(name="in", operands=(inner, outer)):
            return f"{inner} in {outer}"
        case Guard(name=name, operands=operands):
            return f"{name}({', '.join(operands)})"
        case PropertyGuard(name=name, axes=axes, term=term):
            brackets = f"[{', '.join(axes)}]" if axes else ""
            return f"{name}{brackets}({term})"
        case Comparison(relation=relation, left=left, right=right):
            return f"{written(left)} {relation} {written(right)}"
        case AxisDefinition(name=name, first=first, less=less):
            items = [f"axes({item})" if kind == "term" else item for kind, item in (first, *less)]
            return f"{name} = {' - '.join(items)}"
        case CopyDefinition(name=name, original=original, longer=longer):
            return f"{name} = copy({original})" + (f" + {longer}" if longer else "")
        case LengthDefinition(name=name, length=length):
            return f"{name} = axis({written(length)})"
