"""`eqsat explain`: shows where the memory of a function goes, and what budgets would cost.

With `--budget`, it shows the plan for that budget instead, and what wider accuracy classes would gain.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from eqsat.commands import planning
from eqsat.commands.statuses import DONE
from eqsat.reports.showing import Report
from eqsat.running.saving import check_target, save_reports

EXAMPLES = """\
  eqsat explain train.py:loss --shapes "f32[20000,3], f32[30000,3]"       # what would budgets cost?
  eqsat explain train.py:loss --shapes "f32[20000,3], f32[30000,3]" --budget 100MB
  eqsat explain package.model:loss --shapes "f32[20000,3]" --budget 100MB --save loss.html
  eqsat explain train.py:loss --shapes "f32[800000,3], f32[800000,3]" --target h100 --mesh data=8
  eqsat explain train.py:loss --shapes "f32[1000000000,3], f32[500,3]" --budget 1GB --stream x
"""


def declare(parser: argparse.ArgumentParser) -> None:
    planning.declare(parser, EXAMPLES, "several, to compare what they cost")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="save the report, as .html, .png, .svg, .txt, .json..."
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.save is not None:
        check_target(arguments.save)
    report: Report
    if arguments.mesh is not None:
        report = planning.planned(arguments)
        print(report)
    elif arguments.budget is None:
        report = planning.explained(arguments)
        print(report)
    else:
        report, comparison = planning.compared(arguments)
        print(f"{report}\n\n{comparison}")
    if arguments.save is not None:
        for file in save_reports([report], arguments.save):
            print(f"eqsat: wrote {file}", file=sys.stderr)
    return DONE
