"""Every shipped rule by its own text: what `eqsat check` finds out."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.checking.filecheck import FileCheck
from eqsat.rules import shipped
from eqsat.rulesets.files import shipped_files
from eqsat.rulesets.selection import rules_for
from eqsat.testing import check_rules, load
from tests.nightly import nightly_but

FEW = 1
"""The base number of examples: enough for what is plainly wrong, too few to see whether every condition
is needed, so that is not looked for. `make test-all` draws all, and looks for it."""


LONG = {
    "angles",
    "arithmetic",
    "contraction",
    "determinants",
    "diagonal",
    "distance",
    "factors",
    "kronecker",
    "lookups",
    "low_rank",
    "monoids",
    "properties",
    "reductions",
    "softmax",
    "solves",
    "sorting",
    "statistics",
}
"""Files that take six to thirty seconds each, even so. Their rules have tests of their own here."""


@pytest.mark.parametrize(
    "path",
    nightly_but([path for path in shipped() if path.stem not in LONG], shipped()),
    ids=lambda path: path.stem,
)
def test_a_file_is_right(path: Path) -> None:
    report = FileCheck(load(path), shipped_files(), FEW, brief=True).report()
    assert not [text for rule in report.failed for text in rule.failures]


@pytest.mark.nightly
@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_a_file_is_right_by_all_examples(path: Path) -> None:
    check_rules(path, strict=True)


def test_there_is_a_library() -> None:
    rules = [rule for file in shipped_files() for rule in file.rules]
    named = [rule for rule in rules if rule.source and rule.examples]
    assert len(named) >= 80
    unsourced = {rule.name for rule in rules if not rule.source and rule.space not in LOOPS}
    assert unsourced == set()


LOOPS = {"chunk", "split", "rename"}
"""The files about loops and names of axes, which state no theorem."""


def test_every_rule_is_accepted_by_the_engine_under_a_name_of_its_own() -> None:
    compiled = rules_for((), "amplifies")
    assert len({rule.name for rule in compiled}) == len(compiled)
