"""Failures made small stay the failures that they were."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.checking.regimes import Trial
from eqsat.checking.shrinking import differences, shrunk
from eqsat.language.parse import parse_rules

RULES = {
    "value": "a / b  =>  a * b  where float(a)",
    "right is no number": "a * b  =>  (a * b) * (b / b)  where float(a)",
    "left is no number": "(a * b) / b  =>  a  where float(a)",
}
"""By what is wrong with it, rules that are wrong in another way, too, on other data."""


@pytest.mark.parametrize("way", RULES)
def test_a_failure_stays_of_its_kind(way: str) -> None:
    (rule,) = parse_rules(f"rule tried  {RULES[way]}", "tried").rules
    trial = Trial(rule, 40)
    failures = [failure for failure in trial.failures() if differences(failure)[:1] == [way]]
    assert failures
    for failure in failures[:3]:
        small = shrunk(failure, trial.judge)
        assert differences(small)[:1] == [way]
        assert set(differences(small)) <= set(differences(failure))
        assert sum(v.size for v in small.instance.values.values()) <= 2


def test_the_gravest_difference_comes_first() -> None:
    (rule,) = parse_rules("rule tried  a / b  =>  a * b  where float(a)", "tried").rules
    failure = next(Trial(rule, 40).failures())
    object.__setattr__(failure, "left", np.array([1.0, 2.0, np.nan]))
    object.__setattr__(failure, "right", np.array([np.nan, 2.5, 0.0]))
    assert differences(failure) == ["right is no number", "left is no number", "value", "digits"]
