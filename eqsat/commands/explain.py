"""`eqsat explain`: where the memory of a function goes, and what a budget would cost."""

from __future__ import annotations

import argparse

from eqsat.commands import planning
from eqsat.commands.statuses import DONE

EXAMPLES = """\
  eqsat explain train.py:loss --shapes "f32[20000,3], f32[30000,3]" --budget 100MB
"""


def declare(parser: argparse.ArgumentParser) -> None:
    planning.declare(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    print(planning.planned(arguments))
    return DONE
