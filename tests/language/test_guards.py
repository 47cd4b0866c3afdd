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
        ("max(a) = 0", "a guard cannot test `=`"),
        ("max(a) != 0", "a guard cannot test `!=`"),
        ("1 <= 2", "this does not depend on the data"),
        ("a <= 2", "`a` may have axes, but a guard compares single numbers"),
        ("sum[K] a <= 2", "this is not a single number"),
        ("max(b) <= 2", "the left side has no variable `b`"),
        ("max(sum[J] a) <= 2", "the left side has no axis `J`"),
        ("max(a) <= size(n)", "the left side has no axis `n`"),
        ("max(a) <= largest(2)", "this takes a variable"),
        ("max(a) <= largest(a{K})", "this takes a variable"),
        ("max(convert(a)) <= 2", "there is no function `convert` that takes 1 operand"),
        ("max(exp(a, a)) <= 2", "there is no function `exp` that takes 2 operands"),
        ("max(dot[K](a, a)) <= 2", "a guard cannot contain this"),
        ("[cancels] max(a) <= 2", "the rule is [cancels], and its guard promises no better: [cancels]"),
        ("[sloppy] max(a) <= 2", "there is no accuracy class `sloppy`"),
        ("max(a) <= 2\n  guard max(c) <= 2", "there is already a guard"),
    ],
)
def test_what_is_no_guard_is_refused(text: str, message: str) -> None:
    with pytest.raises((RuleError, RuleSyntaxError)) as caught:
        load_text(RULE + text, "my.rules", [])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rule r [cancels]  a * b == b + a  guard max(a) <= 1",
            "a rule with a guard cannot rewrite both ways",
        ),
        ("rule r [exact]  exp(log(a)) => a  guard [exact] max(a) <= 1", "an exact rule needs no guard"),
        ("fact f  nonnegative(exp(a))  guard max(a) <= 1", "a fact cannot have a guard"),
        (
            "rule r [cancels]  f(-a..) => f(a..)  guard max(a) <= 1  for f in elementwise",
            "the left side has no variable `a`",
        ),
        ("rule r  a => guard", "unexpected `guard`"),
    ],
)
def test_a_guard_is_for_a_rule_that_it_makes_better(text: str, message: str) -> None:
    with pytest.raises((RuleError, RuleSyntaxError)) as caught:
        load_text(text, "my.rules", [])
    assert message in str(caught.value)
