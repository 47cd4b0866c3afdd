"""Accuracy classes are measured: better ones than a rule deserves are refused, worse ones noted."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.checking.accuracy import measure
from eqsat.checking.matrices import has_property, matrices, spread
from eqsat.errors import RuleError
from eqsat.language.parse import parse_rules
from eqsat.language.syntax import Rule
from eqsat.testing import check_rules

EXPANDED = (
    "sum[K] (a{K, !j} - b{K, j})^2  =>  max(sum[K] a^2 - 2 * dot[K](a, b) + sum[K] b^2, 0)  where float(a)"
)

CLASSES = {
    "chunk[n] exp(a)  =>  exp(chunk[n] a)": "exact",
    "max[K] exp(a{K})  =>  exp(max[K] a)": "exact",
    "sum[K] (-a)  =>  -(sum[K] a)": "exact",
    "dot[K](a, b)  =>  sum[K] (a * b)": "exact",
    "sum[K] (c{!K} * a)  =>  c * sum[K] a": "reassociates",
    "dot[K](dot[J](a, b{!K}), c{!J})  =>  dot[J](dot[K](a, c), b)"
    "  where J in a, K in a, K in c": "reassociates",
    "sum[N] a  =>  fold[n, sum] sum[N] chunk[n] a  where n in N, large(n)": "reassociates",
    "a / c  =>  a * (1 / c)": "reassociates",
    "log(exp(a) + exp(b))  =>  max(a, b) + log1p(exp(min(a, b) - max(a, b)))": "reassociates",
    "sum[K] (a{K} - b{K})  =>  (sum[K] a) - (sum[K] b)": "cancels",
    "(a - b) * (a + b)  =>  a^2 - b^2": "cancels",
    EXPANDED: "cancels",
    "expm1(a)  =>  exp(a) - 1": "cancels",
    "solve[i, j](a{i, j}, b{i, !j})  =>  dot[i](inv[i, j] a, b)": "reassociates",
    "solve[i, j](a{i, j}, b{i, !j})  =>  solve[k, j](dot[i](rename[j->k] a, a), dot[i](rename[j->k] a, b))"
    "  where k = copy(j)": "amplifies",
}
"""By rule, the class that a numerical analyst would give it."""


def rule(text: str) -> Rule:
    return parse_rules(f"rule tried  {text}", "tried").rules[0]


@pytest.mark.parametrize("text", CLASSES)
def test_classes_are_measured(text: str) -> None:
    assert measure(rule(text)).accuracy == CLASSES[text]


def test_integers_have_no_accuracy() -> None:
    assert measure(rule("not(not(a))  =>  a")).accuracy is None


def test_a_better_class_than_measured_is_refused() -> None:
    with pytest.raises(
        RuleError, match=r"declared \[reassociates\], but it is \[cancels\]: on numbers near"
    ) as caught:
        check_rules(f"rule expanded  {EXPANDED}")
    assert "hint: declare it [cancels]" in str(caught.value)
    with pytest.raises(
        RuleError, match=r"declared \[exact\], but it is \[reassociates\]: in float32, the left side is"
    ):
        check_rules("rule reversed [exact]  sum[n] reverse[n] a  =>  sum[n] a")


def test_a_worse_class_than_measured_is_noted() -> None:
    report = check_rules("rule moved [cancels]  chunk[n] exp(a)  =>  exp(chunk[n] a)")
    assert report.ok
    assert "declared [cancels], measured [exact]" in report.notes()


def test_signs_are_kept() -> None:
    unclamped = EXPANDED.replace("max(", "").replace(", 0)", "")
    with pytest.raises(
        RuleError, match="the left side is never negative, but rounding makes the right side -"
    ):
        check_rules(f"rule unclamped [cancels]  {unclamped}")


PROPERTIES = ["symmetric", "spd", "diagonal", "lower", "upper", "orthogonal", "nonnegative", "positive"]


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("whole", [False, True])
def test_matrices_have_the_properties_that_are_asked_for(name: str, whole: bool) -> None:
    if name == "positive" and whole:
        pytest.skip("matrices of small integers have zeros")
    value = matrices(np.random.default_rng(0), (3, 4, 4), {name}, whole=whole)
    assert value.shape == (3, 4, 4)
    assert has_property(value, name)
    others = {"symmetric", "diagonal", "orthogonal"} - {name}
    if name not in ("diagonal", "orthogonal", "spd", "symmetric"):
        assert not any(has_property(value, other) for other in others)


@pytest.mark.parametrize(
    "names",
    [{"spd", "diagonal"}, {"lower", "orthogonal"}, {"symmetric", "orthogonal"}, {"nonnegative", "spd"}],
)
def test_matrices_have_several_properties_at_once(names: set[str]) -> None:
    value = matrices(np.random.default_rng(1), (2, 3, 3), names)
    assert all(has_property(value, name) for name in names)


@pytest.mark.parametrize("names", [{"regular"}, {"spd"}, {"lower"}])
@pytest.mark.parametrize("condition", [1e2, 1e6])
def test_matrices_are_as_ill_conditioned_as_asked(names: set[str], condition: float) -> None:
    value = matrices(np.random.default_rng(2), (20, 5, 5), names, condition)
    typical = float(np.median(np.linalg.cond(value)))
    assert condition / 30 < typical < condition * 30


def test_spread_is_of_all_sizes_or_of_one() -> None:
    rng = np.random.default_rng(0)
    for lone in (False, True):
        values = np.sort(spread(rng, (4,), 1e6, lone))
        assert values[0] == pytest.approx(1e-6)
        assert values[-1] == 1
        assert (values[1] == 1) == lone
