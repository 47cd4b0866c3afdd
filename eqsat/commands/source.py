"""`eqsat source`: prints the JAX source of the program that computes a function within a budget."""

from __future__ import annotations

import argparse
from pathlib import Path

from eqsat.commands import planning
from eqsat.commands.statuses import DONE
from eqsat.errors import EqsatError

EXAMPLES = """\
  eqsat source train.py:loss --shapes "f32[20000,3], f32[30000,3]" --budget 100MB
  eqsat source package.model:loss --shapes "f32[20000,3]" --budget 100MB -o loss_small.py
"""


def declare(parser: argparse.ArgumentParser) -> None:
    planning.declare(parser, EXAMPLES)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the source to a file")


def run(arguments: argparse.Namespace) -> int:
    plan = planning.planned(arguments)
    if arguments.output is None:
        print(plan.source, end="")
        return DONE
    try:
        Path(arguments.output).write_text(plan.source, encoding="utf-8")
    except OSError as error:
        raise EqsatError(f"{arguments.output} can't be written: {error.strerror}") from None
    return DONE
