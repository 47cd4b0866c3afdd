"""What stands in `guard` clauses, what it is read as, and what is refused."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError, RuleSyntaxError
from eqsat.language.parse import load_text, parse_rules
from eqsat.language.syntax import DataGuard

RULE = "rule r [cancels]\n  sum[K] (c{!K} * a{K})^2  =>  c^2 * sum[K] a^2\n  guard "


def guard(text: str) -> DataGuard:
    [rule] = parse_rules(RULE + text, "my.rules").rules
    assert rule.data_guard is not None
    return rule.data_guard


@pytest.mark.parametrize(
    "text",
    [
        "max(abs(a)) <= 9",
        "max(abs(a))^2 * size(K) < largest(a) / 4, min(abs(c)) > 0",
        "max(sum[K] a^2) <= 4 * epsilon(c)",
        "(max(a) + min(c)) * 2 >= smallest(a)",
        "max(a) - (min(a) - 1) <= -max(c)",
        "max((sum[K] a^2) / size(K)) <= 2",
        "min(select_n(eq(a, 0), abs(a), inf)) >= 0.5",
    ],
)
def test_a_guard_compares_numbers_without_axes(text: str) -> None:
    assert str(guard(text).guard) == text
    assert guard(text).accuracy == "reassociates"


def test_a_guard_names_the_class_that_it_promises_and_what_it_is_about() -> None:
    found = guard("[exact] max(sum[K] a) <= largest(c)")
    assert found.accuracy == "exact"
    assert (found.guard.variables, found.guard.axes) == (("a", "c"), ("K",))


def test_most_rules_have_no_guard() -> None:
    [rule] = parse_rules("rule r  exp(log(a)) => a", "my.rules").rules
    assert rule.data_guard is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max(a) = 0", "a guard is no test for `=`"),
        ("max(a) != 0", "a guard is no test for `!=`"),
        ("1 <= 2", "this is known without any data"),
        ("a <= 2", "`a` may have axes, and a guard compares single numbers"),
        ("sum[K] a <= 2", "this is no single number"),
        ("max(b) <= 2", "`b` is no variable of the left side"),
        ("max(sum[J] a) <= 2", "`J` is no axis of the left side"),
        ("max(a) <= size(n)", "`n` is no axis of the left side"),
        ("max(a) <= largest(2)", "this is of a variable"),
        ("max(a) <= largest(a{K})", "this is of a variable"),
        ("max(convert(a)) <= 2", "there is no function `convert` of 1 operands"),
        ("max(exp(a, a)) <= 2", "there is no function `exp` of 2 operands"),
        ("max(dot[K](a, a)) <= 2", "a guard is not to be expensive"),
        ("[cancels] max(a) <= 2", "the rule is [cancels], and where its guard holds it would be [cancels]"),
        ("[sloppy] max(a) <= 2", "there is no accuracy class `sloppy`"),
        ("max(a) <= 2\n  guard max(c) <= 2", "there is a guard already"),
    ],
)
def test_what_is_no_guard_is_refused(text: str, message: str) -> None:
    with pytest.raises((RuleError, RuleSyntaxError)) as caught:
        load_text(RULE + text, "my.rules", [])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule r [cancels]  a * b == b + a  guard max(a) <= 1", "a rule with a guard goes one way"),
        ("rule r [exact]  exp(log(a)) => a  guard [exact] max(a) <= 1", "an exact rule needs no guard"),
        ("fact f  nonnegative(exp(a))  guard max(a) <= 1", "a fact has no guard"),
        (
            "rule r [cancels]  f(-a..) => f(a..)  guard max(a) <= 1  for f in elementwise",
            "`a` is no variable of the left side",
        ),
        ("rule r  a => guard", "unexpected `guard`"),
    ],
)
def test_a_guard_is_for_a_rule_that_it_makes_better(text: str, message: str) -> None:
    with pytest.raises((RuleError, RuleSyntaxError)) as caught:
        load_text(text, "my.rules", [])
    assert message in str(caught.value)
