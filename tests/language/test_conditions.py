"""What stands in `where` clauses, and what it is read as."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleSyntaxError
from eqsat.language.parse import parse_rules
from eqsat.language.syntax import (
    Arithmetic,
    AxisDefinition,
    Comparison,
    ConstantValue,
    CopyDefinition,
    Guard,
    Number,
    PropertyGuard,
    Quantity,
    Rule,
    SizeOf,
)


def conditions(text: str) -> Rule:
    [rule] = parse_rules(f"rule r  a + b => b  where {text}", "my.rules").rules
    return rule


def spelled(quantity: Quantity) -> str:
    match quantity:
        case Number(text=text):
            return text
        case SizeOf(name=name):
            return f"size({name})"
        case ConstantValue(name=name):
            return name
        case Arithmetic():
            return f"({spelled(quantity.left)} {quantity.operator} {spelled(quantity.right)})"


def shown(rule: Rule) -> list[str]:
    """The conditions of a rule, kind by kind."""
    found: list[str] = []
    for item in (*rule.guards, *rule.properties, *rule.comparisons, *rule.definitions, *rule.copies):
        match item:
            case Guard(name=name, operands=operands):
                found.append(f"guard {name}({', '.join(operands)})")
            case PropertyGuard(name=name, axes=axes, term=term):
                found.append(f"property {name}[{', '.join(axes)}]({term})")
            case Comparison(relation=relation, left=left, right=right):
                found.append(f"comparison {spelled(left)} {relation} {spelled(right)}")
            case AxisDefinition(name=name, first=first, less=less):
                found.append(f"definition {name} = {' - '.join(':'.join(one) for one in (first, *less))}")
            case CopyDefinition(name=name, original=original, longer=longer):
                found.append(f"copy {name} of {original}, {longer} longer")
    return found


READ = {
    "n in K": "guard in(n, K)",
    "large(n)": "guard large(n)",
    "tiled(n)": "guard tiled(n)",
    "passes(f, n)": "guard passes(f, n)",
    "constant(a)": "guard constant(a)",
    "spd[i, j](A)": "property spd[i, j](A)",
    "diagonal[i, j](A)": "property diagonal[i, j](A)",  # an operation as well
    "nonnegative(a)": "property nonnegative[](a)",
    "size(k) < 2 * size(n)": "comparison size(k) < (2 * size(n))",
    "size(K) <= 32": "comparison size(K) <= 32",
    "c = size(N)": "comparison c = size(N)",
    "c > -1.5": "comparison c > -1.5",
    "C = 2": "comparison C = 2",
    "size(i) != size(j)": "comparison size(i) != size(j)",
    "size(i)^2 >= c / 2 - 1": "comparison (size(i) * size(i)) >= ((c / 2) - 1)",
    "c = -d": "comparison c = (0 - d)",
    "c = d": "comparison c = d",
    "J = axes(a) - axes(b) - K": "definition J = term:a - term:b - axes:K",
    "J = axes(a)": "definition J = term:a",
    "J = K": "definition J = axes:K",
    "l = copy(k)": "copy l of k, 0 longer",
    "l = copy(k) + 2": "copy l of k, 2 longer",
}


@pytest.mark.parametrize("text", READ)
def test_condition(text: str) -> None:
    assert shown(conditions(text)) == [READ[text]]


def test_conditions_are_kept_in_order() -> None:
    rule = conditions("large(n), spd[i, j](a), n in K, c > 0, nonnegative(b), c < 1")
    assert shown(rule) == [
        "guard large(n)",
        "guard in(n, K)",
        "property spd[i, j](a)",
        "property nonnegative[](b)",
        "comparison c > 0",
        "comparison c < 1",
    ]


WRONG = {
    "a": "this is not a condition",
    "a + b": "this is not a condition",
    "2": "this is not a condition",
    "large(a + b)": "a condition takes names, not terms",
    "large(a{k})": "patterns belong on the sides of a rule",
    "spd[i, j](a * b)": "a condition takes names, not terms",
    "exp(c) < 1": "a comparison takes numbers that are known when a rule is matched",
    "sum[k] c < 1": "a comparison takes numbers that are known when a rule is matched",
    "c^3 < 1": "a comparison takes numbers that are known when a rule is matched",
    "size(a + b) < 1": "a condition takes names, not terms",
    "size(a, b) < 1": "`size` takes one name",
    "J = axes(a) + axes(b)": "this does not define a set of axes",
    "J = axes(a) - (axes(b) - K)": "this does not define a set of axes",
    "axes(a) = axes(b)": "a set of axes must be defined with `=`",
    "size(k) = copy(l)": "a copy of an axis must be given a name with `=`",
    "l = copy(k) + 0": "a copy of an axis must be given a name with `=`",
    "l = copy(k) + 0.5": "a copy of an axis must be given a name with `=`",
    "l = copy(k) - 1": "a copy of an axis must be given a name with `=`",
    "l = copy(k) + c": "a copy of an axis must be given a name with `=`",
}


@pytest.mark.parametrize("text", WRONG)
def test_no_condition(text: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        conditions(text)
    first, *rest = str(caught.value).split("\n")
    assert first.split(": ", 1)[1] == WRONG[text]
    assert rest[-1].startswith("  hint: ")
