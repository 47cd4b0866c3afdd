"""Every condition has to be needed: for truth, or to say where a rule pays."""

from __future__ import annotations

import pytest

from eqsat.checking.conditions import conditions_of, text_of, without
from eqsat.errors import RuleError
from eqsat.language.parse import parse_rules
from eqsat.testing import check_rules


def complaints(text: str, strict: bool = False) -> str:
    report = check_rules(f"rule tried [rescales]  {text}", strict=strict, fail=False)
    return "\n".join([*report.rules[0].failures, *report.rules[0].warnings])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "text",
    [
        "sum[K] (c{!K} * a)  =>  c * sum[K] a",
        "(a + b) / c  =>  a / c + b / c  where float(a)",
        "sqrt(a^2)  =>  a  where nonnegative(a)",
        "(sum[K] a{K}) / c  =>  mean[K] a  where float(a), c = size(K)",
        "max[K] (c{!K} * a{K})  =>  c * max[K] a  where positive(c), float(a)",
        "solve[i, j](a{i, j}, b{i, !j})  =>  solve_lower[i, j](a, b)  where lower[i, j](a)",
        "a{n}  =>  concat[n] chunk[n] a  where large(n), stored(a)",
    ],
)
def test_conditions_that_truth_needs(text: str) -> None:
    assert "nothing needs" not in complaints(text)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("sum[K] (c{!K} * a)  =>  c * sum[K] a  where float(a)", "`float(a)`"),
        ("sum[k] (a * b{k})  =>  dot[k](a, b)  where k in a, positive(b)", "`positive(b)`"),
        ("exp(a{i})^2  =>  exp(2 * a)  where size(i) > 2", "`size(i) > 2`"),
        ("max(a, max(b, c{!i}))  =>  max(max(a, b), c)  where i in a", "`c{!i}`"),
    ],
)
def test_conditions_that_nothing_needs(text: str, condition: str) -> None:
    assert f"nothing needs the condition {condition}" in complaints(text).replace("conditions", "condition")


def test_a_condition_that_holds_anyway_is_a_warning() -> None:
    text = "sum[K] (c{!K} * a{K})  =>  c * sum[K] a\n  example c: i a: i k"
    assert complaints(text, strict=True) == (
        "the condition `a{K}` holds anyway (the rest of the rule implies it: leave it out)"
    )


def test_a_reject_shows_where_a_rule_pays() -> None:
    text = "sum[K] (a{K} * b{K, !i})  =>  dot[K](a, b)  where i in a"
    rejected = f"{text}\n  example a: i k b: k\n  reject a: i k b: i k"
    assert "nothing needs" in complaints(text)
    assert "`b{!i}`" not in complaints(rejected)


def test_an_example_on_other_lengths_shows_where_a_rule_pays() -> None:
    text = "dot[k](a, b{!i})  =>  sum[k] (a * b)  where i in a, size(i) < size(k)\n  example a: i k b: k j"
    assert "size(i) < size(k)" not in complaints(text)


def test_strict_makes_errors_of_what_nothing_needs() -> None:
    text = "rule tried [rescales]  sum[K] (c{!K} * a)  =>  c * sum[K] a  where float(a)\n  example c: i a: k"
    assert check_rules(text).ok
    with pytest.raises(RuleError, match="nothing needs the condition `float"):
        check_rules(text, strict=True)


def test_conditions_are_written_as_they_were() -> None:
    text = (
        "rule all  solve[i, j](a{i, !k}, b{K, i})  =>  solve[i, j](a, b)"
        "  where K in b, large(k), spd[i, j](a), nonnegative(b), 2 * size(k) < size(K) + 1, c = size(i),"
        " J = axes(b) - axes(a) - K, nonempty(J), l = copy(k)"
    )
    (rule,) = parse_rules(text, "all").rules
    texts = [text_of(condition) for condition in conditions_of(rule)]
    assert texts == [
        *("a{i}", "a{!k}", "b{K}", "b{i}", "K in b", "large(k)", "nonempty(J)", "spd[i, j](a)"),
        *("nonnegative(b)", "(2 * size(k)) < size(K) + 1", "c = size(i)"),
        *("J = axes(b) - axes(a) - K", "l = copy(k)"),
    ] or texts[9].startswith("2 * size(k) <")
    for condition in conditions_of(rule):
        assert text_of(condition) not in map(text_of, conditions_of(without(rule, condition)))


def test_one_of_two_conditions_is_needed_where_either_is_enough() -> None:
    text = "sqrt(a * b)  =>  sqrt(a) * sqrt(b)  where float(a), positive(a), positive(b)"
    said = complaints(text)
    assert "nothing needs the condition `positive(a)`" in said
    assert "then `positive(b)` has to stay" in said
    assert "nothing needs" not in complaints(text.replace("positive(a), ", ""))
    assert not check_rules(f"rule tried  {text.partition(', ')[0]}", fail=False).ok


def test_conditions_that_can_go_together_are_named_together() -> None:
    text = "sum[K] (a{K} * b{K})  =>  dot[K](a, b)  where positive(a), positive(b)"
    assert "nothing needs the conditions `positive(a)` and `positive(b)`" in complaints(text)
