"""Each choice of functions and kinds is tried, and the report says if one was not."""

from __future__ import annotations

import pytest

from eqsat.checking import regimes
from eqsat.checking.regimes import Trial
from eqsat.language.parse import parse_rules
from eqsat.language.syntax import Rule
from eqsat.testing import check_rules


def rule(text: str) -> Rule:
    return parse_rules(f"rule r  {text}", "r").rules[0]


def tried(trial: Trial) -> int:
    for _ in trial.failures():
        pass
    return trial.choices - len(trial.untried())


@pytest.mark.parametrize(
    "text", ["eq(a, b)  =>  eq(b, a)", "xor(lt(a, b), lt(c, d))  =>  xor(lt(c, d), lt(a, b))"]
)
def test_every_choice_is_tried_however_few_examples_there_are(text: str) -> None:
    trial = Trial(rule(text), examples=1)
    assert trial.choices > 4
    assert len(trial.untried()) == trial.choices
    assert tried(trial) == trial.choices


def test_choices_of_kinds_that_take_no_turn_in_the_regimes_are_tried_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "and(eq(a, 0), eq(b, 0))  =>  and(eq(a, 0), eq(b, 0))"
    trial = Trial(rule(text), examples=1)
    assert trial.choices > len(trial.sources) == regimes.MOST_ASSIGNMENTS
    assert tried(trial) == trial.choices
    monkeypatch.setattr(regimes, "MOST_COMPLETED", 0)
    assert tried(Trial(rule(text), examples=1)) <= regimes.MOST_ASSIGNMENTS


def test_the_report_says_how_many_choices_were_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "rule r [exact]  and(eq(a, 0), eq(b, 0))  =>  not(or(ne(a, 0), ne(b, 0)))"
    report = check_rules(text, examples=4)
    (found,) = report.rules
    assert found.choices > 12
    assert found.untried == 0
    assert "not tried" not in str(report)
    monkeypatch.setattr(regimes, "MOST_COMPLETED", 2)
    report = check_rules(text, examples=4)
    (found,) = report.rules
    assert found.untried > 0
    assert f"not tried: {found.untried} of {found.choices} choices of functions and kinds" in str(report)
