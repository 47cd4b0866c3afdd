"""What `rules/README.md` shows is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.language.accuracies import ACCURACIES
from eqsat.language.check import check_file
from eqsat.language.functions import CLASSES, GUARDS, REDUCTIONS
from eqsat.language.parse import parse_rules

FOLDER = Path(__file__).parents[2] / "rules"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```rules\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_well_formed(text: str) -> None:
    rules = parse_rules(text, "README.md")
    check_file(rules)
    assert rules.rules or rules.facts


def test_the_error_is_the_one_you_get() -> None:
    with pytest.raises(RuleError) as caught:
        check_file(parse_rules("rule r\n  sum[K] (c * a{K})  =>  c * sum[K] a", "my.rules"))
    shown = "\n".join("    " + line for line in str(caught.value).splitlines())
    assert shown in README


@pytest.mark.parametrize("name", [*CLASSES, *GUARDS, *REDUCTIONS, *ACCURACIES])
def test_everything_is_mentioned(name: str) -> None:
    assert re.search(rf"\b{name}\b", README)


def test_all_files_are_listed() -> None:
    listed = re.findall(r"^\| \[`(\w+\.rules)`\]", README, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.rules"))
