"""`eqsat run`: runs an unchanged script, and optimises the functions that it compiles."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from eqsat.commands.statuses import WRONG
from eqsat.errors import EqsatError
from eqsat.running.imports import when_imported
from eqsat.running.saving import check_target, save_reports
from eqsat.running.script import Script
from eqsat.running.session import Session
from eqsat.support.units import parse_budget

VARIABLE = "EQSAT_BUDGET"
"""The environment variable that holds the default of `--budget`."""

VALUED = ("--budget", "--accuracy", "--rules", "--planning-seconds", "--max-slowdown", "--report")
"""The options that take a value."""

DESCRIPTION = """
Runs an unchanged script, optimises the functions that it gives to jax.jit, and reports at the end what was
done.
"""

EPILOG = """
examples:
  eqsat run --budget 2GB train.py --epochs 10
  eqsat run --budget 500MB -m package.train
  eqsat run --budget 500MB -m pytest -q tests
  eqsat run --budget 2GB --report plans train.py
  EQSAT_BUDGET=2GB python -m eqsat.run train.py

A function that another compiled function calls becomes part of that one. If no program within the budget is
found for a function, the smallest program that was found runs, with a warning; with --strict, this is an
error, and the script stops. A function whose values all together are well within the budget is left alone.

The exit status is the script's own, or 2 if there is no such script or an option is not valid.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.usage = "%(prog)s [options] [-m MODULE | -c TEXT | SCRIPT] [arguments of the script]"
    parser.add_argument(
        "--budget",
        metavar="AMOUNT",
        default=os.environ.get(VARIABLE) or None,
        help="the memory that each compiled function may need: 2GB, 512MiB..."
        f" (default: ${VARIABLE}, or else the free memory)",
    )
    parser.add_argument(
        "--accuracy", default="reassociates", help="what rewriting may do to rounding (default: %(default)s)"
    )
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help="a .rules file to use as well"
    )
    parser.add_argument(
        "--planning-seconds", type=float, metavar="S", help="the time limit of planning, for each function"
    )
    parser.add_argument(
        "--max-slowdown",
        type=_factor,
        default=10.0,
        metavar="X",
        help="the largest predicted slowdown that a plan may have over the function, or none (default: 10)",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="time the best few programs of each function; take the fastest",
    )
    parser.add_argument("--strict", action="store_true", help="stop at a function that does not fit")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="PATH",
        help="save the plans: as pages in a folder, or as plan.html, plan.png, plan.txt...",
    )
    parser.add_argument("--progress", action="store_true", help="show the progress of loops, too")
    parser.add_argument("--quiet", action="store_true", help="show no progress, and no report at the end")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as python -m does")
    what.add_argument("-c", dest="text", metavar="TEXT", help="run Python code, as python -c does")
    parser.add_argument("script", nargs="*", help=argparse.SUPPRESS)


def separated(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line into the options of `eqsat run`, and the script with its own arguments.

    Everything after the script belongs to the script, even if it starts with a dash.

    >>> separated(["--budget", "2GB", "-m", "pytest", "-q"])
    (['--budget', '2GB', '-m', 'pytest'], ['-q'])
    >>> separated(["--strict", "train.py", "--budget", "9"])
    (['--strict'], ['train.py', '--budget', '9'])
    """
    place = 0
    while place < len(given):
        word = given[place]
        if word.startswith(("-m", "-c")):
            place += 2 if len(word) == 2 else 1
            break
        if not word.startswith("-"):
            break
        place += 2 if word in VALUED else 1
    return list(given[:place]), list(given[place:])


def _factor(text: str) -> float | None:
    return None if text == "none" else float(text)


def run(arguments: argparse.Namespace) -> int:
    script = _script(arguments)
    script.check()
    session = _session(arguments)
    if arguments.report is not None:
        check_target(arguments.report)

    def replace(_: ModuleType) -> None:
        from eqsat.running.jitted import replace_jit

        replace_jit(session)

    when_imported("jax", replace)
    status = script.run()
    sys.stdout.flush()
    if not arguments.quiet:
        print(session.report(), file=sys.stderr)
    if arguments.report is not None:
        try:
            for file in save_reports(session.plans(), arguments.report):
                print(f"eqsat: wrote {file}", file=sys.stderr)
        except EqsatError as error:
            print(f"eqsat: {error}", file=sys.stderr)
            return status or WRONG  # the script has run, so its status takes precedence
    return status


def _script(arguments: argparse.Namespace) -> Script:
    if arguments.module is not None:
        return Script("module", arguments.module, arguments.script)
    if arguments.text is not None:
        return Script("text", arguments.text, arguments.script)
    if not arguments.script:
        raise EqsatError("run what? eqsat run [options] script.py [arguments]; see eqsat run --help")
    file, *rest = arguments.script
    return Script("file", file, rest)


def _session(arguments: argparse.Namespace) -> Session:
    """Returns the session that the options describe, and checks them before the script starts.

    **Raises:** `EqsatError` if an option has a value that it can't have.
    """
    from eqsat.language.accuracies import ACCURACIES

    if arguments.accuracy not in ACCURACIES:
        raise EqsatError(
            f"accuracy {arguments.accuracy!r} is not known: choose one of {', '.join(ACCURACIES)}"
        )
    for path in arguments.rules:
        if not os.path.isfile(path):
            raise EqsatError(f"there is no rules file {path!r}")
    if arguments.planning_seconds is not None and not arguments.planning_seconds > 0:
        raise EqsatError("--planning-seconds takes a number of seconds above 0")
    if arguments.max_slowdown is not None and not arguments.max_slowdown >= 1:
        raise EqsatError("--max-slowdown takes a number from 1 on, or none")
    options = {
        "max_slowdown": arguments.max_slowdown,
        "accuracy": arguments.accuracy,
        "planning_seconds": arguments.planning_seconds,
        "rules": tuple(map(os.path.abspath, arguments.rules)),
        "tune": arguments.tune,
        "progress": True if arguments.progress else False if arguments.quiet else None,
    }
    budget = None if arguments.budget is None else parse_budget(arguments.budget)
    return Session(budget, options, arguments.strict)
