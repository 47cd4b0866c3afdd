"""For tests of `.rules` files: `check_rules` tries every rule, and says what is wrong with one.

A test of a file of your own:

    from eqsat.testing import check_rules

    def test_my_rules():
        check_rules("my.rules")
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath

from eqsat.checking.filecheck import FileCheck
from eqsat.checking.regimes import EXAMPLES
from eqsat.checking.report import CheckReport, RuleReport
from eqsat.errors import RuleError
from eqsat.language.syntax import RuleFile
from eqsat.rulesets.files import load_file, load_rules_from, shipped_files

__all__ = ["CheckReport", "RuleReport", "check_rules"]

TEXT = "rules"
"""What the position of an error in rules that were given as a text begins with."""


def check_rules(
    rules: str | PathLike[str],
    examples: int = EXAMPLES,
    names: Sequence[str] | None = None,
    strict: bool = False,
    fail: bool = True,
) -> CheckReport:
    """Checks rules by test: see `rules/README.md` for what is tried.

    **Arguments:**

    - `rules`: the path of a `.rules` file, or rules as a text.
    - `examples`: how many instances are drawn in the regime that draws most.
    - `names`: check only the rules, facts and monoids of these names.
    - `strict`: whether conditions that nothing needs, rules that never end, and missing examples are errors.
    - `fail`: whether to raise if a rule is wrong.

    **Raises:** `RuleError` with all that is wrong; `RuleSyntaxError` if the text is no rules.

    >>> check_rules("rule double  a + a => 2 * a").ok
    True
    >>> check_rules("rule double  a + a => 3 * a", fail=False).ok
    False
    """
    file = load(rules)
    report = FileCheck(file, shipped_files(), examples, strict).report(names or ())
    if fail and not report.ok:
        raise RuleError("\n\n".join(text for rule in report.failed for text in rule.failures))
    return report


def load(rules: str | PathLike[str]) -> RuleFile:
    """The rules of a file or of a text, which may use what the shipped ones declare.

    **Raises:** `RuleError`, `RuleSyntaxError`.
    """
    text = fspath(rules)
    if isinstance(rules, str) and not text.endswith(".rules"):
        return load_rules_from(text, TEXT)
    shipped = {file.file: file for file in shipped_files()}
    return shipped[text] if text in shipped else load_file(text)
