"""The command `eqsat`; its sub-commands are the modules of `eqsat.commands`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from eqsat.commands.statuses import DONE, UNUSABLE, WRONG
from eqsat.errors import BudgetError, EqsatError

COMMANDS = {
    "run": "run a script within a memory budget, unchanged",
    "explain": "show where the memory of a function goes, and what a budget would cost",
    "source": "print the JAX source of a function's program within a budget",
    "check": "test rules on random data",
    "explain-rule": "show by an example what a rule does",
}
"""The sub-commands, each with a line of help. The module of a sub-command is imported only when it runs."""

EPILOG = """
exit status: 0 if all is well; 1 if a rule is wrong or a function does not fit its budget; 2 if the command
line, or a file that it names, is not valid. `eqsat run` exits with the script's status.
`eqsat COMMAND --help` describes a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `eqsat` with the given arguments, or else those of the command line; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="eqsat",
        description="Any JAX function, rewritten to fit a memory budget.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_ in COMMANDS.items():
        command = commands.add_parser(name, help=help_, description=help_, allow_abbrev=False)
        if given[:1] == [name]:
            module = import_module(f"eqsat.commands.{name.replace('-', '_')}")
            module.declare(command)
    if given[:1] == ["run"]:
        own, script = module.separated(given[1:])
        chosen = parser.parse_args(["run", *own])
        chosen.script = script
    else:
        chosen = parser.parse_args(given)
    try:
        status: int = module.run(chosen)
    except BudgetError as error:
        print(error, file=sys.stderr)
        return UNUSABLE if error.smallest_peak is None else WRONG
    except EqsatError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:
        # The reader has closed the pipe. Without this, Python would fail to flush the output as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return status


if __name__ == "__main__":
    raise SystemExit(main())
