"""The command `eqsat`: `eqsat check FILE...` and `eqsat explain-rule NAME`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.checking.explain import explained
from eqsat.checking.filecheck import FileCheck
from eqsat.checking.report import Report
from eqsat.checking.tiers import EXAMPLES
from eqsat.errors import EqsatError
from eqsat.language.syntax import RuleFile
from eqsat.rulesets import load_file, shipped_files

WRONG, UNUSABLE = 1, 2
"""Exit status: a rule is wrong; the command, or a file, makes no sense."""


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command.

    **Attributes:**

    - `help`: what it does, in a line.
    - `declare`: adds its arguments to a parser.
    - `run`: does it; returns the exit status.
    """

    help: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with the arguments of the command line, or with those given."""
    parser = argparse.ArgumentParser(prog="eqsat", description="Rewrites of JAX programs: tools for rules.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.declare(commands.add_parser(name, help=command.help, description=command.help))
    chosen = parser.parse_args(arguments)
    try:
        return COMMANDS[chosen.command].run(chosen)
    except EqsatError as error:
        print(error, file=sys.stderr)
        return UNUSABLE


# ------------------------------------------------------------------------------------------- check


def _declare_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help=".rules files; without any: the shipped ones"
    )
    parser.add_argument("--rule", action="append", default=[], metavar="NAME", help="check only this rule")
    parser.add_argument(
        "--examples",
        type=int,
        default=EXAMPLES,
        metavar="N",
        help=f"how many instances to draw in the tier that draws most (default: {EXAMPLES})",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="conditions that nothing needs, and missing examples, are errors",
    )
    parser.add_argument("--notes", action="store_true", help="show what is worth knowing, too")


def _check(arguments: argparse.Namespace) -> int:
    # The shipped rules are held to more.
    strict = arguments.strict or not arguments.files
    files = [load_file(path) for path in arguments.files] or list(shipped_files())
    reports: list[Report] = []
    for file in files:
        check = FileCheck(file, _known(files), arguments.examples, strict)
        reports.append(check.report(arguments.rule))
    whole = Report(tuple(rule for report in reports for rule in report.rules))
    if arguments.rule and not whole.rules:
        raise EqsatError(f"there is no rule called {' or '.join(arguments.rule)}")
    print(whole)
    if arguments.notes and whole.notes():
        print(f"\n{whole.notes()}")
    return 0 if whole.ok else WRONG


def _known(files: Sequence[RuleFile]) -> list[RuleFile]:
    """The shipped files, and those given."""
    names = {file.file for file in files}
    return [*(file for file in shipped_files() if file.file not in names), *files]


# ------------------------------------------------------------------------------------- explain-rule


def _declare_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a rule's name, plain or with its file's: file.name")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help="a .rules file that the rule may be in"
    )


def _explain(arguments: argparse.Namespace) -> int:
    files = [*(load_file(path) for path in arguments.rules), *shipped_files()]
    print(explained(arguments.name, files))
    return 0


COMMANDS: dict[str, Command] = {
    "check": Command("check rules by test", _declare_check, _check),
    "explain-rule": Command("what a rule does, by an example", _declare_explain, _explain),
}
"""The sub-commands by name."""


if __name__ == "__main__":
    raise SystemExit(main())
