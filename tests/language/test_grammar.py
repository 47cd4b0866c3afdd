"""The notation: what takes what, and what rules are made of."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import lark
import pytest

from eqsat import language
from eqsat.language.common_mistakes import KEYWORDS
from eqsat.language.parse import load_rules, parse_rules
from eqsat.language.syntax import (
    Apply,
    AxisDefinition,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Example,
    Expression,
    FoldOf,
    Guard,
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
from eqsat.rules import shipped


def rule_of(text: str) -> Rule:
    [rule] = parse_rules(text, "test.rules").rules
    return rule


def spelled(node: Expression) -> str:
    """An expression in full: every operator a function, every operand in parentheses."""
    match node:
        case Number():
            return node.text
        case Variable():
            patterns = [*node.has, *(f"!{axis}" for axis in node.lacks)]
            return node.name + (f"{{{' '.join(patterns)}}}" if patterns else "")
        case Apply():
            function = node.function if node.exponent is None else f"{node.function}[{node.exponent}]"
            dots = ".." if node.variadic else ""
            return f"{function}({', '.join(map(spelled, node.operands))}{dots})"
        case Reduction():
            return f"{node.kind}[{' '.join(node.axes)}]({spelled(node.operand)})"
        case Contraction():
            return f"dot[{' '.join(node.axes)}]({spelled(node.left)}, {spelled(node.right)})"
        case IotaOf():
            return f"iota[{node.axis}]"
        case DeltaOf():
            return f"delta[{node.first} {node.second}]"
        case OperationOf():
            return f"{node.name}[{' '.join(node.axes)}]({', '.join(map(spelled, node.operands))})"
        case SelectionOf():
            return f"top_k_{node.result}[{node.axis} {node.out_axis}]({spelled(node.operand)})"
        case RenameOf():
            return f"rename[{node.old} {node.new}]({spelled(node.operand)})"
        case ChunkOf():
            return f"chunk[{node.axis}]({spelled(node.operand)})"
        case ConcatOf():
            return f"concat[{node.axis}]({spelled(node.operand)})"
        case FoldOf():
            return f"fold[{node.axis} {node.monoid}]({', '.join(map(spelled, node.operands))})"


PRECEDENCE = {
    # operators
    "a + b * c": "add(a, mul(b, c))",
    "a * b + c": "add(mul(a, b), c)",
    "a - b - c": "sub(sub(a, b), c)",
    "a - (b - c)": "sub(a, sub(b, c))",
    "a / b / c": "div(div(a, b), c)",
    "a / b * c": "mul(div(a, b), c)",
    "-a * b": "mul(neg(a), b)",
    "a * -b": "mul(a, neg(b))",
    "a - -b": "sub(a, neg(b))",
    "-a + b": "add(neg(a), b)",
    "-a^2": "neg(square(a))",
    "(-a)^2": "square(neg(a))",
    "2 * a^3 * b": "mul(mul(2, integer_pow[3](a)), b)",
    "a^-1": "integer_pow[-1](a)",
    "a^ 2": "square(a)",
    "1.5e-3 * a": "mul(1.5e-3, a)",
    # a prefix operator takes the product that follows it
    "sum[k] a * b": "sum[k](mul(a, b))",
    "sum[k] a / b": "sum[k](div(a, b))",
    "sum[k] a * b + c": "add(sum[k](mul(a, b)), c)",
    "c + sum[k] a * b": "add(c, sum[k](mul(a, b)))",
    "c - sum[k] a - b": "sub(sub(c, sum[k](a)), b)",
    "c * sum[k] a * b": "mul(c, sum[k](mul(a, b)))",
    "c / sum[k] a * b": "div(c, sum[k](mul(a, b)))",
    "(sum[k] a) * b": "mul(sum[k](a), b)",
    "sum[k] (a + b)": "sum[k](add(a, b))",
    "sum[k] (a - b)^2": "sum[k](square(sub(a, b)))",
    "(sum[k] a)^2": "square(sum[k](a))",
    "sum[k] -a": "sum[k](neg(a))",
    "sum[k] -a * b": "sum[k](mul(neg(a), b))",
    "-sum[k] a * b": "neg(sum[k](mul(a, b)))",
    "c * -sum[k] a": "mul(c, neg(sum[k](a)))",
    "sum[J] sum[K] a * b": "sum[J](sum[K](mul(a, b)))",
    "sum[J] a * sum[K] b": "sum[J](mul(a, sum[K](b)))",
    "sum[J, K] a": "sum[J K](a)",
    "f[K] a * b": "f[K](mul(a, b))",
    "rename[j->k] a * b": "rename[j k](mul(a, b))",
    "chunk[n] a + b": "add(chunk[n](a), b)",
    "concat[n] chunk[n] a": "concat[n](chunk[n](a))",
    "fold[n, max] max[N] chunk[n] a": "fold[n max](max[N](chunk[n](a)))",
    # atoms
    "dot[K](a, b) * c": "mul(dot[K](a, b), c)",
    "dot[J, K](a + b, sum[i] c)": "dot[J K](add(a, b), sum[i](c))",
    "max(sum[k] a + 1, 0)": "max(add(sum[k](a), 1), 0)",
    "max(a, 0)^2": "square(max(a, 0))",
    "exp(-a)": "exp(neg(a))",
    "f(a..)": "f(a..)",
    "f(chunk[n] a..)": "f(chunk[n](a)..)",
    "iota[n] * a": "mul(iota[n], a)",
    # operations, and what else is along single axes
    "solve[i, j](a, b) * c": "mul(solve[i j](a, b), c)",
    "solve[i, j](a, b)^2": "square(solve[i j](a, b))",
    "solve[i, j](sum[k] a * b, -c)": "solve[i j](sum[k](mul(a, b)), neg(c))",
    "inv[i, j] a * b": "inv[i j](mul(a, b))",
    "inv[i, j] inv[j, i] a": "inv[i j](inv[j i](a))",
    "(inv[i, j] a) * b": "mul(inv[i j](a), b)",
    "inv[i, j](a)": "inv[i j](a)",
    "inv[i, j](a) + b": "add(inv[i j](a), b)",
    "inv[i, j](a * b)": "inv[i j](mul(a, b))",
    "c * inv[i, j](a)": "mul(c, inv[i j](a))",
    "delta[i, j] * a": "mul(delta[i j], a)",
    "diag[i, j] a * b": "select_n(delta[i j], 0, mul(a, b))",
    "a + diag[i, j] b": "add(a, select_n(delta[i j], 0, b))",
    "top_k[n, m] -a": "top_k_values[n m](neg(a))",
    "top_k_indices[n, m] a * b": "top_k_indices[n m](mul(a, b))",
    "fold[n, f](a, b * c, d) + e": "add(fold[n f](a, mul(b, c), d), e)",
    "fold[n, sum] (a + b) * c": "fold[n sum](mul(add(a, b), c))",
    "convert(a) * b": "mul(convert(a), b)",
    # numbers
    "-2 * a": "mul(-2, a)",
    "a - 2": "sub(a, 2)",
    "a - -2": "sub(a, -2)",
    "max(a, -inf)": "max(a, -inf)",
    "inf * a": "mul(inf, a)",
    "-2^2": "neg(square(2))",
    "a{k, !j}": "a{k !j}",
    "a{!K} * b{K}": "mul(a{!K}, b{K})",
    # names that begin as words of the language do, or are words elsewhere only
    "format * index": "mul(format, index)",
    "infinity * rules": "mul(infinity, rules)",
    "state * finish": "mul(state, finish)",
}


@pytest.mark.parametrize("text", PRECEDENCE)
def test_precedence(text: str) -> None:
    assert spelled(rule_of(f"rule r  {text} => z").left) == PRECEDENCE[text]
    assert spelled(rule_of(f"rule r  z => {text}").right) == PRECEDENCE[text]


@pytest.mark.parametrize("text", PRECEDENCE)
def test_precedence_round_trip(text: str) -> None:
    """`sum[k](a)` in full is notation as well: reading it again gives the same expression."""
    readable = {"add": "+", "sub": "-", "mul": "*", "div": "/"}

    def in_full(node: Expression) -> str:
        match node:
            case Apply(function="neg"):
                return f"(-{in_full(node.operands[0])})"
            case Apply(function="square" | "integer_pow"):
                return f"({in_full(node.operands[0])})^{node.exponent or 2}"
            case Apply() if node.function in readable:
                left, right = map(in_full, node.operands)
                return f"({left} {readable[node.function]} {right})"
            case Apply():
                return f"{node.function}({', '.join(map(in_full, node.operands))}{'..' * node.variadic})"
            case Reduction():
                return f"({node.kind}[{', '.join(node.axes)}] {in_full(node.operand)})"
            case Contraction():
                return f"dot[{', '.join(node.axes)}]({in_full(node.left)}, {in_full(node.right)})"
            case OperationOf():
                return f"({node.name}[{', '.join(node.axes)}]({', '.join(map(in_full, node.operands))}))"
            case SelectionOf():
                kind = "top_k" if node.result == "values" else "top_k_indices"
                return f"({kind}[{node.axis}, {node.out_axis}] {in_full(node.operand)})"
            case DeltaOf():
                return f"delta[{node.first}, {node.second}]"
            case RenameOf():
                return f"(rename[{node.old}->{node.new}] {in_full(node.operand)})"
            case ChunkOf():
                return f"(chunk[{node.axis}] {in_full(node.operand)})"
            case ConcatOf():
                return f"(concat[{node.axis}] {in_full(node.operand)})"
            case FoldOf():
                if len(node.operands) > 1:
                    return f"fold[{node.axis}, {node.monoid}]({', '.join(map(in_full, node.operands))})"
                return f"(fold[{node.axis}, {node.monoid}] {in_full(node.operands[0])})"
            case Variable() if node.has or node.lacks:
                return f"{node.name}{{{', '.join([*node.has, *('!' + axis for axis in node.lacks)])}}}"
            case _:
                return spelled(node)

    expression = rule_of(f"rule r  {text} => z").left
    assert rule_of(f"rule r  {in_full(expression)} => z").left == expression


def test_a_rule_has_clauses_in_any_order() -> None:
    rule = rule_of(
        """
        rule everything-at-once [exact]   # a comment
          f[N] g(a..)
            == fold[n, f] f[N] g(chunk[n] a..)
          where n in N, large(n)
          example a: i j
          for f in monoids, g in elementwise
          where J = axes(a) - axes(b) - K, K in a
          reject  a:   b: j
          reject  a: i
        """
    )
    assert rule.name == "everything-at-once"
    assert rule.accuracy == "exact"
    assert rule.both_ways
    assert rule.classes == (("f", "monoids"), ("g", "elementwise"))
    at = Position("", 0, 0)  # positions don't count when nodes are compared
    assert rule.guards == (
        Guard("in", ("n", "N"), at),
        Guard("large", ("n",), at),
        Guard("in", ("K", "a"), at),
    )
    assert rule.definitions == (AxisDefinition("J", ("term", "a"), (("term", "b"), ("axes", "K")), at),)
    assert rule.examples == (
        Example(True, (("a", ("i", "j")),), at),
        Example(False, (("a", ()), ("b", ("j",))), at),
        Example(False, (("a", ("i",)),), at),
    )


GRAMMAR = Path(language.__file__).with_name("grammar.lark")


def test_the_grammar_is_small_and_without_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    text = GRAMMAR.read_text(encoding="utf-8")
    assert text.count("\n") < 120
    with caplog.at_level(logging.DEBUG, logger="lark"):
        lark.Lark(text, parser="lalr", debug=True)
    assert caplog.messages == []


def test_every_word_of_the_language_is_known_to_be_one() -> None:
    [words] = re.findall(r"^NAME: /\(\?!\((.*?)\)", GRAMMAR.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(words.split("|")) == KEYWORDS


def test_a_rule_reassociates_and_goes_one_way_unless_it_says_more() -> None:
    rule = rule_of("rule r  a * a => a^2")
    assert rule.accuracy == "reassociates"
    assert not rule.both_ways


def test_a_rule_ends_where_the_next_begins() -> None:
    rules = parse_rules(
        "rule first a => b rule second\n\n\nb => c # end\nrule third c => a", "test.rules"
    ).rules
    assert [(rule.name, rule.position.line) for rule in rules] == [("first", 1), ("second", 1), ("third", 5)]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing here", "# nothing here\n"])
def test_a_file_may_be_empty(text: str) -> None:
    assert parse_rules(text, "test.rules").rules == ()


def test_a_file_has_statements_of_all_kinds_in_any_order() -> None:
    file = parse_rules(
        """
        fact gram  symmetric[i, j](rbf[i, j, k](a, rename[i->j] a))  where float(a)
        rule r  a + a => 2 * a  source "nowhere"
        operation rbf[i, j, k](x: i k, y: j k) -> i j  from "mine:rbf"   # known above as well
        operation pick[n](a: n, index) ->
        monoid largest state m = -inf merge m = max(m1, m2)
        rule s  fold[n, largest] a => a
        """,
        "mine.rules",
    )
    assert [rule.name for rule in file.rules] == ["r", "s"]
    assert [rule.source for rule in file.rules] == ["nowhere", ""]
    assert [rule.qualified for rule in file.rules] == ["mine.r", "mine.s"]
    assert [str(declared.signature) for declared in file.operations] == [
        "rbf[i, j, k](x: i k, y: j k) -> i j",
        "pick[n](a: n, index) ->",
    ]
    assert [declared.function for declared in file.operations] == ["mine:rbf", ""]
    [fact] = file.facts
    assert (fact.name, fact.property, fact.axes) == ("gram", "symmetric", ("i", "j"))
    assert isinstance(fact.term, OperationOf)
    [monoid] = file.monoids
    assert [rule.monoids for rule in file.rules] == [(), (("largest", monoid.monoid),)]


def test_a_function_variable_is_one_whatever_operations_there_are() -> None:
    [rule] = parse_rules("rule r  sort[K] a => sort[K] (a + 0)  for sort in reductions", "r.rules").rules
    assert isinstance(rule.left, Reduction)


def test_positions_are_those_of_the_operator() -> None:
    rule = rule_of("rule r\n  sum[k] a + exp(b)\n    => 2 *\tdot[k](a, -b)\r\n")
    assert isinstance(rule.left, Apply)
    assert [str(node.position) for node in (rule.left, *rule.left.operands)] == [
        "test.rules:2:12",  # +
        "test.rules:2:3",  # sum
        "test.rules:2:14",  # exp
    ]
    assert isinstance(rule.right, Apply)
    assert str(rule.right.operands[1].position) == "test.rules:3:12"  # dot, after a tab


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_shipped_rules_load(path: Path) -> None:
    loaded = load_rules(path)
    assert loaded.rules or loaded.facts or loaded.monoids


def test_shipped_rules_have_different_names() -> None:
    names = [rule.qualified for path in shipped() for rule in load_rules(path).rules]
    assert len(names) == len(set(names))
