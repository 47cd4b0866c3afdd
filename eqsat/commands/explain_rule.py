"""`eqsat explain-rule`: what a rule does, by an example."""

from __future__ import annotations

import argparse

from eqsat.checking.explain import explained
from eqsat.commands.statuses import DONE
from eqsat.rule_files import load_file, shipped_files


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a rule's name, plain or with its file's: file.name")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help="a .rules file that the rule may be in"
    )


def run(arguments: argparse.Namespace) -> int:
    files = [*(load_file(path) for path in arguments.rules), *shipped_files()]
    print(explained(arguments.name, files))
    return DONE
