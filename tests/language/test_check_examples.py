"""Which examples there can be of a rule."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

RULES = {
    "factor": "sum[K] (c{!K} * a{K}) => c * sum[K] a",
    "two": "dot[k](a{i}, b{!i}) => sum[k] (a * b)",
    "inverse": "inv[i, j] A => -(inv[i, j] (-A))",
    "top": "top_k[n, m] a => -(top_k[n, m] (-(-(-a))))",
    "renamed": "rename[j->k] exp(a) => exp(rename[j->k] a)",
    "defined": "a * exp(b) => exp(b) * (a + 0) where J = axes(b) - axes(a), nonempty(J)",
    "batched": "sum[k] exp(a{k}) * b{!k} => b * sum[k] exp(a)",
}

POSSIBLE = """
    factor   example c: i  a: i k
    factor   example c:    a: k l
    factor   example c: j  a: k
    factor   reject  c: k  a: k
    factor   reject  c: k  a: k l
    two      example a: i k  b: k
    two      example a: p q  b: q
    two      example a: i k n  b: k m n
    two      reject  a: i k  b: k i
    two      reject  a: k  b: k
    inverse  example A: i j
    inverse  example A: p q r
    top      example a: n
    top      example a: x y
    renamed  example a: j
    renamed  example a: x y
    defined  example a: i  b: i j
    defined  reject  a: i  b: i
"""

IMPOSSIBLE = {
    "factor   example c: k  a: k": "no axis of the example can be in `K`",
    "factor   example c: i  a: i": "no axis of the example can be in `K`",
    "factor   example c: i  a:": "no axis of the example can be in `K`",
    "factor   reject  c:  a:": "no axis of the example can be in `K`",
    "two      example a: i  b: k": "no axis of the example can be `k`",
    "two      example a: k  b: k": "no axis of the example can be `i`",
    "two      example a: i k  b: i k": "no axis of the example can be `i`",
    "two      reject  a: i  b: j": "no axis of the example can be `k`",
    "inverse  example A: i": "no left side consists of terms with these axes",
    "inverse  reject  A: i": "no left side consists of terms with these axes",
    "top      example a:": "no axis of the example can be `n`",
    "renamed  example a:": "no axis of the example can be `j`",
}


def check(case: str) -> None:
    name, clause = case.split(maxsplit=1)
    check_file(parse_rules(f"rule r  {RULES[name]}\n  {clause}", "my.rules"))


@pytest.mark.parametrize("case", [line.strip() for line in POSSIBLE.strip().splitlines()])
def test_possible(case: str) -> None:
    check(case)


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible(case: str) -> None:
    with pytest.raises(RuleError) as caught:
        check(case)
    first, *rest = str(caught.value).split("\n")
    assert first == f"my.rules:2:3: {IMPOSSIBLE[case]}"
    assert rest[-1].startswith("  hint: ")
