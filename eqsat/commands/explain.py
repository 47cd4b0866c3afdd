"""`eqsat explain`: where the memory of a function goes, and what a budget would cost."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from eqsat.commands import planning
from eqsat.commands.statuses import DONE
from eqsat.running.saving import check_target, save_plans

EXAMPLES = """\
  eqsat explain train.py:loss --shapes "f32[20000,3], f32[30000,3]" --budget 100MB
  eqsat explain package.model:loss --shapes "f32[20000,3]" --budget 100MB --save loss.html
"""


def declare(parser: argparse.ArgumentParser) -> None:
    planning.declare(parser, EXAMPLES)
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="save it: .html, .png, .svg, .txt, .json..."
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.save is not None:
        check_target(arguments.save)
    plan = planning.planned(arguments)
    print(plan)
    if arguments.save is not None:
        for file in save_plans([plan], arguments.save):
            print(f"eqsat: wrote {file}", file=sys.stderr)
    return DONE
