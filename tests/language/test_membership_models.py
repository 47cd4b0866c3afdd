"""MembershipModels: which there are, and that what is found in all at once is what is found in each."""

from __future__ import annotations

import time

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.membership_models import MembershipModels, models_of
from eqsat.language.parse import parse_rules
from eqsat.language.shapes import Shaper
from eqsat.language.syntax import Rule
from eqsat.language.vocabulary import vocabulary_of

OPERATIONS = vocabulary_of([]).operations


def rule_of(text: str) -> Rule:
    [rule] = parse_rules(f"rule r  {text}", "my.rules").rules
    return rule


def test_a_world_for_each_choice() -> None:
    [models] = models_of(rule_of("a * b => b * a * 1"))
    assert models.everywhere.bit_length() == 4
    each = [models.only(number) for number in range(4)]
    had = [(bool(model.terms["a"][0]), bool(model.terms["b"][0])) for model in each]
    assert had == [(False, False), (False, True), (True, False), (True, True)]


def test_letters_and_patterns_leave_no_choice() -> None:
    universes = {
        models.universe: models for models in models_of(rule_of("dot[k](a{i}, b{!i}) => dot[k](b, a)"))
    }
    assert set(universes) == {("*",), ("i",), ("k",)}
    along = universes[("i",)]
    assert along.terms["a"] == (along.everywhere,)
    assert along.terms["b"] == (0,)
    assert along.everywhere == 1
    assert universes[("k",)].everywhere.bit_length() == 4


def test_renaming_ties_axes() -> None:
    universes = [
        models.universe for models in models_of(rule_of("rename[j->k] sum[i] a => sum[i] rename[j->k] a"))
    ]
    assert universes == [("*",), ("i",), ("j", "k")]


def test_constants_have_no_axes() -> None:
    for text in ("c * a => a * c * 1 where c > 0", "c * a => a * c * 1 where constant(c)"):
        [models] = models_of(rule_of(text))
        assert models.terms["c"] == (0,)


RULES = """
    sum[K] (c{!K} * a) => c * sum[K] a
    dot[K](dot[J](a, b{!K}), c{!J}) => dot[J](dot[K](a, c), b) where J in a, K in a, K in c
    rename[j->k] f[K] a{!k} => f[K] rename[j->k] a for f in reductions
    f[N] a => fold[n, f] f[N] chunk[n] a for f in monoids where n in N
    s[n] a => fold[n, s] chunk[n] a for s in selections
    chunk[n] f(a..) => f(chunk[n] a..) for f in calls where passes(f, n)
    solve[i, j](A, b * c{!i, !j}) => c * solve[i, j](A, b)
    dot[j](inv[i, j] A, b{j}) => rename[i->j] solve[j, i](A, rename[j->i] b)
    top_k[n, m] a => a * b where J = axes(a) - axes(b)
    sum[j] a{j} * delta[i, j] => rename[j->i] a
"""


@pytest.mark.parametrize("text", [line.strip() for line in RULES.strip().splitlines()])
def test_all_at_once_is_each_by_itself(text: str) -> None:
    rule = rule_of(text)
    for models in models_of(rule):
        agreeing = models.agreeing(rule)
        left, right = looked_at(rule, models, agreeing)
        for number in range(models.everywhere.bit_length()):
            model = models.only(number)
            assert model.agreeing(rule) == agreeing >> number & 1
            assert looked_at(rule, model, model.agreeing(rule)) == (
                [part >> number & 1 for part in left],
                [part >> number & 1 for part in right],
            )


def looked_at(rule: Rule, models: MembershipModels, good: int) -> tuple[list[int], list[int]]:
    """Where each side is good and of which axes; masked, since elsewhere shapes mean nothing."""
    found: list[list[int]] = []
    for matching, side in ((True, rule.left), (False, rule.right)):
        shaper = Shaper(rule, OPERATIONS, models, good, matching)
        shape = shaper.shape(side)
        good = shaper.good
        members = [*shape.axes, *shape.cut, *shape.open]
        found.append([good, shaper.unknown, *(models & good for models in members)])
    return found[0], found[1]


def test_rules_of_many_names_are_checked() -> None:
    renamed = "rename[j->k] rename[i->j]"
    left = f"{renamed} (a * b * c * d * e * f * g * h)"
    half = f"({renamed} (a * b * c * d))"
    check_file(parse_rules(f"rule r {left} => {half} * {renamed} (e * f * g * h)", "r"))
    wrong = parse_rules(f"rule r {left} => {half} * rename[i->j] (e * f * g * h)", "r")
    with pytest.raises(RuleError, match="the axis `j` is free on the right but not on the left"):
        check_file(wrong)


def test_too_many_names_are_refused_and_not_left_out() -> None:
    product = "a * b * c * d * e * f * g * h * o * p * q * r * s"
    with pytest.raises(RuleError, match="`wide` has too many names to be checked"):
        check_file(parse_rules(f"rule wide rename[i->j] ({product}) => exp(rename[i->j] ({product}))", "r"))


RULE = """
rule r-{number}
  solve[i, j]((diag[i, j] d{{!j}}) + dot[k](u{{i, !j}}, rename[i->j] u), {number} * b{{!j}})
    => {number} * solve[i, j]((diag[i, j] d) + dot[k](u, rename[i->j] u), b)
"""


def test_checking_is_fast() -> None:
    file = parse_rules("\n".join(RULE.format(number=number) for number in range(120)), "my.rules")
    begun = time.perf_counter()
    check_file(file)
    assert time.perf_counter() - begun < 3  # half a second, on a machine that does nothing else
