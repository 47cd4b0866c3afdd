"""The command line, which runs every case in a process of its own, and writes the results after each."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import date
from itertools import islice
from pathlib import Path

import benchmarks.speed as package
from benchmarks.fresh import ROOT
from benchmarks.records import RESULTS, cpu_name, write
from benchmarks.speed import attention, contractions, growth, kernels, models, neighbours, programs
from benchmarks.speed.case import Measurable, Row
from benchmarks.speed.table import figure, table, text
from eqsat.support.cache_folder import VARIABLE

GROUPS: dict[str, Callable[[bool], Iterator[Measurable]]] = {
    kernels.GROUP: kernels.cases,
    neighbours.GROUP: neighbours.cases,
    attention.GROUP: attention.cases,
    models.GROUP: models.cases,
    contractions.GROUP: contractions.cases,
    programs.GROUP: programs.cases,
    programs.PLANNING: programs.planning_cases,
    growth.GROUP: growth.cases,
}

LONGEST = 900.0
"""The seconds after which a case is given up."""


def rows_of(group: str, number: int, title: str, options: argparse.Namespace) -> list[Row]:
    """Measures a case in a fresh process, which neither stores plans nor reads stored ones."""
    command = [sys.executable, "-m", "benchmarks.speed", "--alone", group, str(number)]
    command += ["--runs", str(options.runs), *(["--quick"] if options.quick else [])]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, VARIABLE: ""},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Row(group, title, "eqsat", note=f"given up after {LONGEST:.0f} s")]
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return [Row(group, title, "eqsat", note=f"failed with {done.returncode}")]
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def measured_before(name: str, folder: Path) -> list[Row]:
    path = folder / f"{name}-{cpu_name()}.json"
    return [Row(**row) for row in json.loads(path.read_text())["rows"]] if path.exists() else []


def merged(before: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """Returns the earlier rows of cases that were not measured again, and the new rows, with today's date."""
    again = {(row.group, row.case) for row in found}
    today = date.today().isoformat()
    kept = [row for row in before if (row.group, row.case) not in again]
    return [*kept, *(replace(row, day=today) for row in found)]


def places(quick: bool) -> Callable[[Row], tuple[int, int]]:
    """Returns a function that gives the position of a row in the tables, by its group and its case."""
    titles = {group: [case.title for case in cases(quick)] for group, cases in GROUPS.items()}

    def place(row: Row) -> tuple[int, int]:
        of_group = titles[row.group]
        longest = max(of_group, key=lambda title: len(title) if row.case.startswith(title) else 0)
        return list(titles).index(row.group), of_group.index(longest)

    return place


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=package.__doc__)
    parser.add_argument("--quick", action="store_true", help="a few small cases of each group")
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, metavar="GROUP", help=f"some of {', '.join(GROUPS)}; the others'"
        " results are left as they are"
    )  # fmt: skip
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="of each group, the first case and every Nth after it; what was found of others is kept",
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="K", help="begin each group with its case K, counted from 0"
    )
    parser.add_argument("--runs", type=int, default=5, help="timed calls of each way (default 5)")
    parser.add_argument("--alone", nargs=2, metavar=("GROUP", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    if options.alone:
        group, number = options.alone
        found = list(GROUPS[group](options.quick))[int(number)].measure(options.runs)
        print(json.dumps([asdict(row) for row in found]))
        return found
    name = "speed-quick" if options.quick else "speed"
    partly = options.only or options.every > 1 or options.first
    rows = measured_before(name, folder) if partly else []
    place = places(options.quick)
    for group in options.only or GROUPS:
        cases = enumerate(GROUPS[group](options.quick))
        for number, case in islice(cases, options.first, None, options.every):
            found = rows_of(group, number, case.title, options)
            print(table(found), flush=True)
            rows = sorted(merged(rows, found), key=place)
            write(name, rows, text(rows), folder=folder)
    write(name, rows, text(rows), figure(rows), folder)
    print(text(rows).split("\n## ")[0])
    return rows


if __name__ == "__main__":
    main()
