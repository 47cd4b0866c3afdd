"""Rules with guards are held to what they promise where the guards hold."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eqsat.checking.drawing import Drawer
from eqsat.checking.filecheck import FileCheck
from eqsat.checking.guarding import holding, holds
from eqsat.checking.statement import statements
from eqsat.checking.typing import kinds_of
from eqsat.checking.values import Style
from eqsat.ir.guard import Guard
from eqsat.language.parse import load_text
from eqsat.language.syntax import Rule

SQUARES = """
rule factor [cancels]
  sum[K] (c{!K} * a{K})^2  =>  c^2 * sum[K] a^2
  where wide(a)
  guard GUARD
  example  a: i k  c: i
"""
KERNEL = """
rule distance [cancels]
  exp(-sum[K] (a{K, !j} - b{K, j})^2)
    => exp(-max(sum[K] a^2 + sum[K] b^2 - 2 * dot[K](a, b), 0))
  where float(a), I = axes(a) - axes(b), nonempty(I)
  guard GUARD
  example  a: i k    b: j k
"""
DISTANCE = """
rule distance [cancels]
  sum[K] (a{K, !j} - b{K, j})^2
    => max(sum[K] a^2 + sum[K] b^2 - 2 * dot[K](a, b), 0)
  where float(a), I = axes(a) - axes(b), nonempty(I)
  guard GUARD
  example  a: i k    b: j k
"""


def problems(text: str) -> str:
    """What is wrong with the rule of a text where its guard holds."""
    file = load_text(text, "my.rules", [])
    failures, _ = FileCheck(file, [], examples=8).guarded(file.rules[0])
    return "\n".join(failures)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "text",
    [
        SQUARES.replace(
            "GUARD", "max(abs(a)) <= 1e9, min(abs(a)) > 1e-9, max(abs(c)) < 9, min(abs(c)) > 0.1"
        ),
        KERNEL.replace("GUARD", "max(sum[K] a^2) <= 4, max(sum[K] b^2) <= 4"),
    ],
)
def test_a_guard_that_keeps_a_promise_is_accepted(text: str) -> None:
    assert problems(text) == ""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "text",
    [
        # The square of c underflows where c a does not.
        SQUARES.replace("GUARD", "max(abs(a)) <= 1e9, min(abs(a)) >= 1e-9, max(abs(c)) <= 1e9"),
        # The same of halves, at sizes that are moderate for singles.
        SQUARES.replace("where wide(a)\n", "").replace(
            "GUARD", "max(abs(a)) <= 1e9, min(abs(a)) > 1e-9, max(abs(c)) < 9, min(abs(c)) > 0.1"
        ),
        # Points may be near to one another as compared with their norms.
        DISTANCE.replace("GUARD", "max(sum[K] a^2) <= 4, max(sum[K] b^2) <= 4"),
        KERNEL.replace("GUARD", "max(sum[K] a^2) <= 1e6, max(sum[K] b^2) <= 1e6"),
    ],
)
def test_a_guard_that_lets_bad_data_pass_is_refused(text: str) -> None:
    assert "promises [reassociates]" in problems(text)


def test_a_guard_that_no_data_passes_is_refused() -> None:
    assert "no drawn data fulfils the guard" in problems(SQUARES.replace("GUARD", "max(a^2) < 0"))


def test_a_wrong_rule_is_not_made_right_by_a_guard() -> None:
    wrong = SQUARES.replace("c^2 *", "c *").replace("GUARD", "max(abs(a)) <= 2, max(abs(c)) <= 2")
    assert "the two sides are not equal, though the guard holds" in problems(wrong)


def test_data_is_moved_to_where_the_guard_just_holds() -> None:
    rule, guard = parsed(SQUARES.replace("GUARD", "max(abs(a)) <= 1000, min(abs(c)) >= 0.001"))
    [statement] = statements(rule)
    kinds = next(kinds for kinds in kinds_of(statement) if set(kinds.variables.values()) == {"f"})
    instance = Drawer(statement).draw(random.Random(0), kinds, Style("positive"))
    assert instance is not None
    found = list(holding(guard)(instance))
    assert all(holds(guard, one) for one in found)
    largest = max(float(np.max(np.abs(one.values["a"]), initial=0.0)) for one in found)
    smallest = min(float(np.min(np.abs(one.values["c"]), initial=1.0)) for one in found)
    assert 250 < largest <= 1000
    assert 0.001 <= smallest < 0.02


def parsed(text: str) -> tuple[Rule, Guard]:
    [rule] = load_text(text, "my.rules", []).rules
    assert rule.data_guard is not None
    return rule, rule.data_guard.guard
