"""Facts, and whole files."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

RIGHT = """
    symmetric[i, j](dot[K](a{i}, rename[i->j] a))
    symmetric[i, j](a) where diagonal[i, j](a)
    spd[i, j](a + b) where spd[i, j](a), spd[i, j](b)
    spd[j, i](inv[i, j] A) where spd[i, j](A)
    lower[i, j](cholesky[i, j] A)
    diagonal[i, j](diag[i, j] a{!j})
    diagonal[i, j](delta[i, j])
    orthogonal[i, j](qr_q[i, j] A)
    nonnegative(a^2) where real(a)
    nonnegative(a * b) where nonnegative(a), nonnegative(b)
    nonnegative(a) where constant(a), a >= 0
    nonnegative(sum[K] a) where nonnegative(a) example a: i
    upper[j, i](a) where lower[i, j](a)
"""


@pytest.mark.parametrize("fact", [line.strip() for line in RIGHT.strip().splitlines()])
def test_fact(fact: str) -> None:
    check_file(parse_rules(f"fact f  {fact}", "my.rules"))


WRONG = {
    "spd(a{i, j} + a)": "`spd` is a property along 2 axes, not 0",
    "nonnegative[i](exp(a{i}))": "`nonnegative` is a property along 0 axes, not 1",
    "spd[i, i](a{i} + a)": "`i` stands for two axes here",
    "spd[I, j](a{j} + a)": "`I` is a set, but a property is along single axes",
    "spd[i, j](a + b)": "nothing says that the term has the axis `i`",
    "spd[i, j](sum[i] a{i, j})": "the term may lack the axis `i`, along which it would have the property",
    "positive(a)": "every term matches `a`",
    "spd[i, j](a) where spd[i, j](a)": "the fact would only repeat this condition",
    "positive(exq(a))": "there is no elementwise function `exq`",
    "positive(exp(a)) where large(n)": "`n` is not bound in the term",
    "positive(exp(a)) where positive(b)": "the variable `b` is not bound in the term",
    "positive(exp(a)) where spd[i, j](a), size(k) > 3": "the axis `k` is not bound in the term",
    "positive(exp(a)) example b: i": "the left side has no variable `b`",
    "positive(sum[K] a{!K})": "this never matches: `sum[K]` is over axes of `K`, which its operand may lack",
}


@pytest.mark.parametrize("fact", WRONG)
def test_no_fact(fact: str) -> None:
    with pytest.raises(RuleError) as caught:
        check_file(parse_rules(f"fact f  {fact}", "my.rules"))
    first, *rest = str(caught.value).split("\n")
    assert first.split(": ", 1)[1] == WRONG[fact]
    assert rest[-1].startswith("  hint: ")


def test_facts_and_rules_share_names() -> None:
    text = "rule r  a + a => 2 * a\nfact r  positive(exp(a))"
    with pytest.raises(RuleError, match=r"my.rules:2:6: there is already a rule `r`, in line 1"):
        check_file(parse_rules(text, "my.rules"))
