"""Rules that list functions, make axes, or name single axes of a sum: read, checked, seen to fire."""

from __future__ import annotations

import pytest

from eqsat.errors import EqsatError, RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules
from eqsat.testing import check_rules

RIGHT = [
    "[exact] f(abs(a)) => f(a)  for f in {cos, cosh}  where float(a)  example a: i",
    "[exact] f[K] f[J] a => f[K, J] a  for f in {max, min}  example a: i j",
    "[cancels] (sum[k] a)^3 => sum[k] sum[l] sum[t] (a * (rename[k->l] a) * rename[k->t] a)"
    "  where l = copy(k), t = copy(k)  example a: i k",
    "sum[p] exp(a) => sum[h, j] split[p, h, j] exp(a)"
    "  where h = axis(size(p) / 2), j = axis(size(p) / size(h))  example a: i p",
    "[rescales] dot[i, j](exp(a), b) => sum[i] sum[j] (exp(a) * b)  example a: i j k  b: i j",
]

WRONG = {
    "f(f(a)) => f(a)  for f in {sine}": "there is no elementwise function `sine`",
    "f(f(a)) => f(a)  for f in {sin, sin}": "a function is listed twice",
    "f(f(a)) => f(a)  for f in {max, sum}": "`max` takes 2 operands, not 1",
    "f(a..) => f(a..) + 0  for f in {sin, exp}": "`..` is not allowed here: the functions of `f` are listed",
    "sum[p] a => sum[h] rename[p->h] a  where h = axis(2)": "does not depend on what is matched",
    "sum[p] a => sum[h] rename[p->h] a  where h = axis(size(K))": "from lengths of axes, not from `K`",
    "sum[p] a => sum[h] rename[p->h] a  where H = axis(size(p))": "`H` is a set, but this must be one axis",
    "sum[p, K] a => sum[p] sum[K] a": "can't be matched",
}


@pytest.mark.parametrize("text", RIGHT)
def test_such_rules_are_right_and_fire_on_their_examples(text: str) -> None:
    check_rules(f"rule tried {text}", strict=True)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_said_about_wrong_ones(text: str) -> None:
    with pytest.raises(EqsatError) as caught:
        check_file(parse_rules(f"rule tried {text}", "my.rules"))
    assert WRONG[text] in str(caught.value)


@pytest.mark.parametrize("text", ["exp(a)", "a^2"])
def test_what_may_underflow_may_be_zero(text: str) -> None:
    with pytest.raises(RuleError, match="the fact does not hold"):
        check_rules(f"fact tried  nonzero({text})  where nonzero(a)")
