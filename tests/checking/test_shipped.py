"""The shipped rules are true. `eqsat check` also measures their accuracy and asks for every condition."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eqsat.checking.facts import FactTrial
from eqsat.checking.filecheck import FileCheck
from eqsat.checking.firing import outcomes, stays
from eqsat.checking.monoids import check_monoid
from eqsat.checking.showing import shown
from eqsat.checking.shrinking import shrunk
from eqsat.checking.tiers import Trial
from eqsat.language.syntax import RuleFile
from eqsat.rulesets import shipped_files

EXAMPLES = 8
"""Fewer than `eqsat check` draws."""

FILES = pytest.mark.parametrize("file", shipped_files(), ids=lambda file: Path(file.file).stem)


@FILES
def test_rules_are_true(file: RuleFile) -> None:
    trials = [Trial(rule, EXAMPLES) for rule in file.rules]
    trials += [FactTrial(fact, EXAMPLES) for fact in file.facts]
    for trial in trials:
        failure = trial.failure()
        assert failure is None, f"{trial.rule.name}: {shown(shrunk(failure, trial.judge))}"
        assert trial.tally.drawn, f"{trial.rule.name}: nothing was drawn"


@FILES
def test_examples_fire(file: RuleFile) -> None:
    for statement in (*file.rules, *file.facts):
        for example in statement.examples:
            if example.fires:
                found = list(outcomes(statement, example))
                assert any(outcome.fired for outcome in found), f"{statement.name} does not fire"
                assert not any(outcome.wrong() for outcome in found), statement.name
            else:
                assert stays(statement, example), f"{statement.name} fires on a reject"


def test_monoids_are_ones() -> None:
    rules = [rule for file in shipped_files() for rule in file.rules]
    for file in shipped_files():
        for declared in file.monoids:
            tried, failure = check_monoid(declared.monoid, rules)
            assert tried
            assert failure is None, str(failure)


@FILES
def test_the_whole_check(file: RuleFile) -> None:
    """Accuracy and conditions, too: of one file, or of all if `EQSAT_CHECK` is "all", for it takes a while."""
    if Path(file.file).stem != "contraction" and os.environ.get("EQSAT_CHECK") != "all":
        pytest.skip("`eqsat check` does this")
    others = [other for other in shipped_files() if other is not file]
    report = FileCheck(file, others, examples=16, strict=True).report()
    assert report.ok, report.details()
