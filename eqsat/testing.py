"""`check_rules`, which tests the rules of a `.rules` file on random data.

Use it in the tests of your own rules:

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
from eqsat.rulesets.files import bound_operations, load_file, load_rules_from, shipped_files

__all__ = ["CheckReport", "RuleReport", "check_rules"]

TEXT = "rules"
"""The name that stands for the file in errors about rules that were given as text."""


def check_rules(
    rules: str | PathLike[str],
    examples: int = EXAMPLES,
    names: Sequence[str] | None = None,
    strict: bool = False,
    fail: bool = True,
) -> CheckReport:
    """Tests rules on random data, as `rules/README.md` describes, and returns a report.

    **Arguments:**

    - `rules`: the path of a `.rules` file, or the text of rules. A string is a path if it ends in `.rules`.
    - `examples`: the base number of instances. Each regime (a kind of data) draws its share of them: 0.2
      to 0.5 times as many in most regimes, up to 6 times as many in those of hostile data, an eighth of
      that if calls have to be compiled for each shape, and always a few.
    - `names`: the names of the rules, facts and monoids to check; without it, all of them.
    - `strict`: whether conditions that nothing needs, rules that never end, and missing examples are errors.
    - `fail`: whether to raise an error if a rule is wrong.

    **Raises:** `RuleError` if there is no such file, if a rule is not valid, or if a rule is wrong and `fail`
    is set: then the message has all failures. `RuleSyntaxError` if the rules do not parse.

    >>> check_rules("rule double [rescales]  a + a => 2 * a").ok
    True
    >>> check_rules("rule double [rescales]  a + a => 3 * a", fail=False).ok
    False
    """
    file = load(rules)
    operations = bound_operations([file])
    report = FileCheck(file, shipped_files(), examples, strict, operations=operations).report(names or ())
    if fail and not report.ok:
        raise RuleError("\n\n".join(text for rule in report.failed for text in rule.failures))
    return report


def load(rules: str | PathLike[str]) -> RuleFile:
    """Reads the rules of a file or of a text, which may use the declarations of the shipped files.

    **Raises:** `RuleError` if there is no such file, or if a rule is not valid; `RuleSyntaxError` if the
    rules do not parse.
    """
    text = fspath(rules)
    if isinstance(rules, str) and not text.endswith(".rules"):
        return load_rules_from(text, TEXT)
    shipped = {file.file: file for file in shipped_files()}
    return shipped[text] if text in shipped else load_file(text)
