"""Examples are run by the engine: a rule fires on each `example`, and on no `reject`."""

from __future__ import annotations

import pytest

from eqsat.checking.firing import fires, outcomes, stays
from eqsat.errors import RuleError
from eqsat.language.parse import parse_rules
from eqsat.language.syntax import Fact, Rule
from eqsat.testing import check_rules


def rule(text: str) -> Rule:
    return parse_rules(f"rule tried  {text}", "tried").rules[0]


def fact(text: str) -> Fact:
    return parse_rules(f"fact tried  {text}", "tried").facts[0]


@pytest.mark.parametrize(
    "text",
    [
        "sum[K] (c{!K} * a)  =>  c * sum[K] a  example c: i a: i k",
        "dot[k](rename[j->k] a, b{k, !j})  =>  dot[j](a, rename[k->j] b)  example a: j b: k",
        "chunk[n] f(a..)  =>  f(chunk[n] a..)  for f in elementwise  example a: n k",
        "chunk[n] f(a..)  =>  f(chunk[n] a..)  for f in operations  where passes(f, n)  example a: n k",
        "sum[N] a  =>  fold[n, sum] sum[N] chunk[n] a  where n in N, large(n)  example a: n k",
        "(sum[K] a{K}) / c  =>  mean[K] a  where c = size(K), float(a)  example a: i k c:",
        "solve[i, j](a, b)  =>  solve_lower[i, j](a, b)  where lower[i, j](a)  example a: i j b: i m",
        "head[n, m] sort[n] (-a)  =>  -top_k[n, m] a  where float(a)  example a: i n",
        "diag[i, j] d{!j}  =>  diag[j, i] rename[i->j] d  example d: i",
        "sum[j] a  =>  sum[j] (a + 0)  example a: p q",
    ],
)
def test_rules_fire_on_their_examples(text: str) -> None:
    tried = rule(text)
    found = list(outcomes(tried, tried.examples[0]))
    assert any(outcome.fired for outcome in found)
    assert not any(outcome.wrong() for outcome in found)


def test_facts_are_derived() -> None:
    tried = fact("symmetric[i, j](dot[k](a, rename[i->j] a))  example a: i k  reject a: j k")
    assert fires(tried, tried.examples[0])
    assert stays(tried, tried.examples[1])


def test_rejects_are_read_as_what_they_are_about() -> None:
    """The sum over i of a_ik b_i is a contraction; the reject is about the sum over k."""
    tried = rule("sum[K] (a{K} * b{K})  =>  dot[K](a, b)  example a: i k b: k  reject a: i k b: i")
    assert stays(tried, tried.examples[1])


def test_an_example_on_which_a_rule_does_not_fire() -> None:
    text = "rule tried [rescales]  sum[K] (c{!K} * a)  =>  c * sum[K] a"
    text += "  where I = axes(a) - axes(c) - K, nonempty(I)"
    assert check_rules(f"{text}\n  example c: i a: j k").ok
    with pytest.raises(RuleError, match="the rule does not fire on this `example`"):
        check_rules(f"{text}\n  example c: i a: k")


def test_a_reject_on_which_a_rule_fires() -> None:
    with pytest.raises(RuleError, match="the rule fires on this `reject`"):
        check_rules(
            "rule tried [cancels]  exp(a) * exp(b)  =>  exp(a + b)\n  example a: i b: j\n  reject a: i b: i"
        )
