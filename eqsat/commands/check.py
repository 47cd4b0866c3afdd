"""`eqsat check`: tests rules on random data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from eqsat.checking.filecheck import FileCheck
from eqsat.checking.regimes import EXAMPLES
from eqsat.checking.report import CheckReport
from eqsat.commands.statuses import DONE, WRONG
from eqsat.commands.target import import_from_here
from eqsat.errors import EqsatError
from eqsat.language.syntax import RuleFile
from eqsat.rulesets.files import bound_operations, load_file, shipped_files


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help=".rules files (default: the shipped ones)")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME", help="check only this rule")
    parser.add_argument(
        "--examples",
        type=int,
        default=EXAMPLES,
        metavar="N",
        help=f"the base number of instances (default: {EXAMPLES}): each kind of data draws 0.2 to 6 times as"
        " many, or an eighth of that if calls have to be compiled for each shape",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="treat conditions that nothing needs, rules that never end, and missing examples as errors",
    )
    parser.add_argument(
        "--allow-imports",
        action="store_true",
        help="import the functions of operations that the files name, which runs the code of their modules",
    )
    parser.add_argument(
        "--notes", action="store_true", help="show notes, too, which are neither errors nor warnings"
    )


def run(arguments: argparse.Namespace) -> int:
    # Without files, the shipped rules are checked, and these must pass the strict check.
    strict = arguments.strict or not arguments.files
    if arguments.allow_imports:
        import_from_here()
    files = [load_file(path) for path in arguments.files] or list(shipped_files())
    operations = bound_operations(_known(files), arguments.allow_imports)
    reports: list[CheckReport] = []
    for file in files:
        check = FileCheck(file, _known(files), arguments.examples, strict, operations=operations)
        reports.append(check.report(arguments.rule))
    whole = CheckReport(tuple(rule for report in reports for rule in report.rules))
    if arguments.rule and not whole.rules:
        raise EqsatError(f"there is no rule called {' or '.join(arguments.rule)}")
    print(whole)
    if arguments.notes and whole.notes():
        print(f"\n{whole.notes()}")
    return DONE if whole.ok else WRONG


def _known(files: Sequence[RuleFile]) -> list[RuleFile]:
    """Returns the given files, after the shipped files that are not among them."""
    names = {file.file for file in files}
    return [*(file for file in shipped_files() if file.file not in names), *files]
