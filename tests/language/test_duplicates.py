"""Rules that say the same twice."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

SAME = {
    "the same": ("exp(a) * exp(b) => exp(a + b)", "exp(a) * exp(b) => exp(a + b)"),
    "other names": ("sum[K] (c{!K} * a) => c * sum[K] a", "sum[N] (x{!N} * y) => x * sum[N] y"),
    "another order": ("exp(a) * exp(b) => exp(a + b)", "exp(b) * exp(a) => exp(b + a)"),
    "one of two ways": ("sum[K] (-a) == -(sum[K] a)", "-(sum[K] a) => sum[K] (-a)"),
    "both ways": ("sum[K] (-a) => -(sum[K] a)", "sum[K] (-a) == -(sum[K] a)"),
    "conditions in another order": (
        "a / b => a * (1 / b) where float(a), stored(b)",
        "x / y => x * (1 / y) where stored(y), float(x)",
    ),
    "function variables": (
        "f(a..) * b => b * f(a..) * 1 for f in elementwise",
        "g(a..) * b => b * g(a..) * 1 for g in elementwise",
    ),
}

DIFFERENT = {
    "another side": ("exp(a) * exp(b) => exp(a + b)", "exp(a) * exp(b) => exp(a + b + 0)"),
    "other patterns": ("sum[K] (c{!K} * a) => c * sum[K] a", "sum[K] (c{!K} * a{K}) => c * sum[K] a"),
    "other conditions": ("a / b => a * (1 / b) where float(a)", "a / b => a * (1 / b) where complex(a)"),
    "other sizes": (
        "sum[k] a{k} => sum[k] (a + 0) where size(k) < 3",
        "sum[k] a{k} => sum[k] (a + 0) where size(k) < 4",
    ),
    "other roles": ("a * (a + b) => a^2 + a * b", "a * (a + b) => a^2 + b * a + 0"),
    "other classes": (
        "max[K] f(a) => f(max[K] a) for f in increasing",
        "max[K] f(a) => f(max[K] a) for f in linear",
    ),
}


def check(one: str, other: str) -> None:
    check_file(parse_rules(f"rule one  {one}\nrule other  {other}", "my.rules"))


@pytest.mark.parametrize("case", SAME)
def test_same(case: str) -> None:
    with pytest.raises(RuleError, match="`other` repeats the rewrite of `one` in line 1"):
        check(*SAME[case])


@pytest.mark.parametrize("case", DIFFERENT)
def test_different(case: str) -> None:
    check(*DIFFERENT[case])
