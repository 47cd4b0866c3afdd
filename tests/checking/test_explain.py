"""What rules do, shown on examples: of every fifth shipped rule, or of all:

EQSAT_EXPLAINED=all python -m pytest tests/checking/test_explain.py
"""

from __future__ import annotations

import os

import pytest

from eqsat.checking.explain import explained
from eqsat.errors import RuleError
from eqsat.language.traverse import variables
from eqsat.rulesets.files import shipped_files

RULES = [rule for file in shipped_files() for rule in file.rules]
CHOSEN = RULES if os.environ.get("EQSAT_EXPLAINED") == "all" else RULES[::5]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", [rule.qualified for rule in CHOSEN])
def test_a_shipped_rule_is_explained(name: str) -> None:
    (rule,) = (rule for rule in RULES if rule.qualified == name)
    text = explained(name, shipped_files())
    assert text.startswith(f"{name}  (")
    assert f"rule {rule.name}" in text
    assert ("def after(" in text) == any(variables(rule.left))


def test_what_is_no_rule_is_called_by_what_it_is() -> None:
    for name, what in {
        "nonnegative-square": "'nonnegative-square' is a fact, not a rule: it rewrites nothing",
        "averaged": "'averaged' is a monoid, not a rule: it is used by split-softmax-average",
        "averages": "there is no rule 'averages'",
    }.items():
        with pytest.raises(RuleError, match=what):
            explained(name, shipped_files())
