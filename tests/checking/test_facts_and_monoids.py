"""Facts have to hold of what they match; monoids have to be ones."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError
from eqsat.testing import check_rules

RIGHT_FACTS = [
    "symmetric[i, j](dot[K](a{K, i, !j}, rename[i->j] a))",
    "nonnegative(a^2)  where float(a)",
    "positive(exp(a) + 1)  where float(a)",
    "lower[i, j](a + b)  where lower[i, j](a), lower[i, j](b)",
    "diagonal[i, j](a * delta_like)  where diagonal[i, j](a)",
    "orthogonal[i, j](qr_q[i, j] a{i, j})  where float(a)",
    "spd[i, j](a + diag[i, j] d{i, !j})  where spd[i, j](a), nonnegative(d), float(d)",
    "spd[j, i](inv[i, j] a)  where spd[i, j](a)",
]

WRONG_FACTS = [
    "symmetric[i, j](dot[k](a{i, k, !j}, b{j, k, !i}))",
    "symmetric[i, j](a{i, !j} - rename[i->j] a)",
    "nonnegative(a^3)",
    "positive(a^2)  where float(a)",
    "lower[i, j](rename[k->i] rename[i->j] rename[j->k] a{i, j})  where lower[i, j](a)",
    "spd[i, j](a - b)  where spd[i, j](a), spd[i, j](b)",
    "orthogonal[i, j](a + b)  where orthogonal[i, j](a), orthogonal[i, j](b)",
    "nonnegative(a * b)  where nonnegative(a)",
    "spd[i, j](a)  where symmetric[i, j](a)",
]


@pytest.mark.parametrize("text", RIGHT_FACTS)
def test_right_facts(text: str) -> None:
    report = check_rules(f"fact tried  {text}", fail=False)
    assert report.rules[0].failures == ()


@pytest.mark.parametrize("text", WRONG_FACTS)
def test_wrong_facts(text: str) -> None:
    with pytest.raises(RuleError, match="the fact does not hold") as caught:
        check_rules(f"fact tried  {text}")
    assert "np.array" in str(caught.value)


ONLINE = """monoid online
  state  m = -inf, s = 0
  merge  m = max(m1, m2),
         s = s1 * select_n(eq(m1, m), exp(m1 - m), 1) + s2 * select_n(eq(m2, m), exp(m2 - m), 1)
"""

FOLDING = """
rule split
  sum[N] exp(x{N} - select_n(is_finite(max[N] x), 0, max[N] x))
    =>  fold[n, online](max[N] chunk[n] x,
                        sum[N] exp(chunk[n] x - select_n(is_finite(max[N] chunk[n] x), 0, max[N] chunk[n] x)))
  where n in N, large(n), float(x)
"""


def test_a_monoid_is_tried_on_the_states_of_the_rules_that_fold_with_it() -> None:
    report = check_rules(ONLINE + FOLDING, names=["online"])
    assert report.rule("online").kind == "monoid"
    assert report.rule("online").regimes["merges"] >= 20


@pytest.mark.parametrize(
    ("wrong", "right", "law"),
    [
        ("m = -inf", "m = 0", "the identity"),
        ("s = 0", "s = 1", "the identity"),
        ("max(m1, m2)", "m1", "the identity"),
        ("exp(m1 - m)", "exp(m - m1)", "(associative|identity)"),
        ("+ s2", "- s2", "(associative|identity)"),
        ("select_n(eq(m1, m), exp(m1 - m), 1)", "exp(m1 - m)", "identity"),
    ],
)
def test_broken_monoids_are_caught(wrong: str, right: str, law: str) -> None:
    with pytest.raises(RuleError, match="this is not a monoid") as caught:
        check_rules(ONLINE.replace(wrong, right) + FOLDING, names=["online"])
    assert caught.match(law)
    assert "x: m = np.array(" in str(caught.value)


LOGSUMEXP = """monoid logarithm
  state   m = 0, s = 0
  merge   m = max(m1, m2),
          s = s1 * select_n(eq(m1, m), exp(m1 - m), 1) + s2 * select_n(eq(m2, m), exp(m2 - m), 1)
  finish  m + log(s)

rule split
  log(sum[N] exp(x{N}))
    =>  fold[n, logarithm](max[N] chunk[n] x,
          sum[N] exp(chunk[n] x - select_n(is_finite(max[N] chunk[n] x), 0, max[N] chunk[n] x)))
  where n in N, large(n), float(x)
"""


def test_a_maximum_of_nothing_is_no_zero_though_ordinary_numbers_do_not_show_it() -> None:
    with pytest.raises(RuleError, match="the identity"):
        check_rules(LOGSUMEXP, names=["logarithm"])
    assert check_rules(LOGSUMEXP.replace("m = 0", "m = -inf"), names=["logarithm"]).ok


def test_an_average_is_not_associative() -> None:
    with pytest.raises(RuleError, match="merging is not associative"):
        check_rules("monoid average\n  state  a = 0\n  merge  a = (a1 + a2) / 2\n  finish  a + 0 * a")


def test_a_monoid_that_no_rule_folds_with() -> None:
    assert check_rules("monoid product\n  state  p = 1\n  merge  p = p1 * p2").ok


CHOSEN = "monoid chosen  state u = 0, s = 0  merge u = or(u1, u2), s = s1 + s2  finish select_n(u, 0, s)"


def test_a_part_may_be_a_truth_value() -> None:
    assert check_rules(CHOSEN).ok
    with pytest.raises(RuleError, match="the identity changes"):
        check_rules(CHOSEN.replace("u = 0", "u = 1"))
