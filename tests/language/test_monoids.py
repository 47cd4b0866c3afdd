"""Monoids as they are declared."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleSyntaxError
from eqsat.ir.formula import Application, Constant, Monoid, Scalar
from eqsat.language.parse import parse_rules


def declared(text: str) -> Monoid:
    [monoid] = parse_rules(f"monoid m {text}", "my.rules").monoids
    return monoid.monoid


def test_a_monoid_of_two_parts() -> None:
    monoid = declared("state m = -inf, s = 0  merge m = max(m1, m2), s = s1 + s2 * m^-2  finish s / m")
    assert monoid.state == ("m", "s")
    assert monoid.identity == (Constant("-inf"), Constant("0"))
    largest, total = monoid.merge
    assert largest == Application("max", (Scalar("m1"), Scalar("m2")))
    power = Application("integer_pow", (Scalar("m"),), -2)  # the new m
    assert total == Application("add", (Scalar("s1"), Application("mul", (Scalar("s2"), power))))
    assert monoid.finish == Application("div", (Scalar("s"), Scalar("m")))


def test_the_last_part_is_the_result_if_nothing_is_said() -> None:
    assert declared("state m = 1, s = 0  merge m = m1 * m2, s = s1 + s2").finish == Scalar("s")


WRONG = {
    "state a = 0 merge b = a1": "the state has no part `b`",
    "state a = 0 merge a = a1 + b2": "`b2` is not known here",
    "state a = 0 merge a = a + a2": "`a` is not known here",  # the new value is not known yet
    "state a = 0, b = 0 merge a = a1 + a2": "`merge` does not say what becomes of `b`",
    "state a = 0, b = 0 merge b = b1 + b2, a = a1 + a2": (
        "`merge` must list the parts in the order of `state`"
    ),
    "state a = 0 merge a = a1 + a2, a = a1": "`a` is merged already",
    "state a = 0, a = 1 merge a = a1 + a2": "there are two parts `a`",
    "state a = 0, a1 = 1 merge a = a1 + a2, a1 = a11 + a12": "`a1` is one of the two values of the part `a`",
    "state A = 0 merge A = A1 + A2": "a part must be in lower case",
    "state a = x merge a = a1 + a2": "the identity of a part must be a number",
    "state a = 1 + 1 merge a = a1 + a2": "the identity of a part must be a number",
    "state a = 0 merge a = sum[k] a1": "a monoid takes only numbers and elementwise functions of its parts",
    "state a = 0 merge a = a1{k} + a2": "a monoid takes only numbers and elementwise functions of its parts",
    "state a = 0 merge a = mxa(a1, a2)": "there is no elementwise function `mxa`",
    "state a = 0 merge a = max(a1)": "`max` takes 2 operands, not 1",
    "state a = 0 merge a = a1 + a2 finish a1": "`a1` is not known here",
}


@pytest.mark.parametrize("text", WRONG)
def test_no_monoid(text: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        declared(text)
    first, *rest = str(caught.value).split("\n")
    assert first.split(": ", 1)[1] == WRONG[text]
    assert rest[-1].startswith("  hint: ")
