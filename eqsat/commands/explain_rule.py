"""`eqsat explain-rule`: shows by an example what a rule does, or whether it fires in a function."""

from __future__ import annotations

import argparse

from eqsat.checking.explain import explained
from eqsat.commands.shapes import parse_arguments
from eqsat.commands.statuses import DONE
from eqsat.commands.target import as_called, find_function, import_from_here, told
from eqsat.errors import EqsatError
from eqsat.ir.operations import operations_in_scope
from eqsat.language.syntax import RuleFile
from eqsat.rulesets.files import bound_operations, load_file, shipped_files


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="the name of a rule, alone or after that of its file: file.name"
    )
    parser.add_argument(
        "--in",
        dest="function",
        metavar="FUNCTION",
        help="say whether it fires in this function, or why not: module:function, or script.py:function",
    )
    parser.add_argument(
        "--shapes",
        default="",
        metavar="SHAPES",
        help="the shapes of its arguments: f32[1000,3]...",
    )
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help="a .rules file to read as well"
    )


def run(arguments: argparse.Namespace) -> int:
    import_from_here()
    files = [*(load_file(path) for path in arguments.rules), *shipped_files()]
    operations = bound_operations(files)
    with operations_in_scope(lambda: operations):
        return _explained(arguments, files)


def _explained(arguments: argparse.Namespace, files: list[RuleFile]) -> int:
    if arguments.function is None:
        print(explained(arguments.name, files))
        return DONE
    args, kwargs = as_called(parse_arguments(arguments.shapes))
    function = find_function(arguments.function)
    from eqsat.checking.presence import presence
    from eqsat.frontend.lower import lower
    from eqsat.frontend.trace import trace
    from eqsat.rulesets.selection import rules_for

    try:
        closed = trace(function, args, kwargs).closed
    except Exception as error:
        given = arguments.shapes or "no arguments"
        raise EqsatError(f"{arguments.function} can't be traced with {given}: {told(error)}") from None
    program, _ = lower(closed)
    print(presence(arguments.name, files, program, lambda accuracy: rules_for(arguments.rules, accuracy)))
    return DONE
