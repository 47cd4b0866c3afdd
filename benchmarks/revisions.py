"""Compares another revision of eqsat with this one on the cases of the speed benchmark.

    python -m benchmarks.revisions CHECKOUT [--only GROUP …] [--every N] [--runs N]

`CHECKOUT` is a folder with the other revision, in which `make .venv/.installed` was run. Each revision plans
a case in a process of its own, once within twice what plain JAX may need, and once within a tenth of it. Then
the two are called in turns; one waits while the other runs. Ratios are the time of the other revision over
this one's: above 1, this one is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.fresh import ROOT
from benchmarks.records import RESULTS, markdown, write
from benchmarks.speed.__main__ import GROUPS
from benchmarks.speed.case import SLACK
from eqsat.support.cache_folder import VARIABLE

WORKER = Path(__file__).parent / "revision_worker.py"
SKIPPED = ("planning", "growth")
"""The groups that don't time calls of plans."""

SHARES = {"ample": 2.0, "tight": 0.1}
"""The budgets, as shares of what plain JAX may need."""


class Failed(Exception):
    """A revision has failed to answer; the message says why."""


class Revision:
    """A process that plans one case with the eqsat of a checkout, and calls it when told to."""

    def __init__(self, checkout: Path, group: str, title: str) -> None:
        self._process = subprocess.Popen(
            [str(checkout / ".venv/bin/python"), "-P", str(WORKER), group, title],
            cwd=checkout,
            env={**os.environ, VARIABLE: "", "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def tell(self, **request: Any) -> None:
        assert self._process.stdin
        print(json.dumps(request), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise Failed("its process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        self.tell(**request)
        return self.answer()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def planned(revisions: Sequence[Revision], budget: int) -> tuple[int, list[dict[str, Any]]]:
    """Lets all revisions plan at the same time; returns the budget and their plans.

    If one finds no plan within the budget, all plan again for little more than the leanest programs need.
    """
    for revision in revisions:
        revision.tell(what="plan", budget=budget)
    plans = [revision.answer() for revision in revisions]
    smallest = [plan["smallest"] for plan in plans if "smallest" in plan]
    if not smallest:
        return budget, plans
    if max(smallest) * SLACK <= budget:
        raise Failed("refused what it said would do")
    return planned(revisions, int(SLACK * max(smallest)))


def row(revisions: Sequence[Revision], kind: str, budget: int, runs: int) -> dict[str, Any]:
    """Plans a case within a budget, times calls of it in turns, and returns the row of the results."""
    budget, (other, this) = planned(revisions, budget)
    walls: list[list[float]] = [[], []]
    works: list[list[float]] = [[], []]
    for turn in range(runs):
        for which in (0, 1) if turn % 2 else (1, 0):
            found = revisions[which].ask(what="call")
            walls[which].append(found["seconds"])
            works[which].append(found["processor_seconds"])
        if sum(map(sum, walls)) > 20 and turn >= 2:
            break
    return {
        "kind": kind,
        "budget": budget,
        "ratio": median(a / b for a, b in zip(*walls, strict=True)),
        "processor_ratio": median(a / b for a, b in zip(*works, strict=True)),
        "same": other["source"] == this["source"],
        "seconds": median(walls[1]),
        "calls": len(walls[1]),
        "planning_seconds": [other["seconds"], this["seconds"]],
        "peaks": [other["peak"], this["peak"]],
    }


def rows_of(checkout: Path, group: str, title: str, tight: bool, runs: int) -> list[dict[str, Any]]:
    rows = []
    for kind in ("ample", "tight")[: 1 + tight]:
        revisions = [Revision(place, group, title) for place in (checkout, ROOT)]
        try:
            needed = max(revision.ask(what="needed", own=kind == "ample")["needed"] for revision in revisions)
            found = row(revisions, kind, int(SHARES[kind] * needed), runs)
        except Failed as failure:
            found = {"kind": kind, "note": str(failure)}
        finally:
            for revision in revisions:
                revision.end()
        rows.append({"group": group, "case": title, **found})
    return rows


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the geometric means by group, and a table of all rows, in Markdown."""
    timed = [row for row in rows if "ratio" in row]
    groups = {
        name: [r for r in timed if r["group"] == name] for name in dict.fromkeys(r["group"] for r in timed)
    }
    means = [
        [
            name,
            str(len(some)),
            *(f"{geometric_mean(r[key] for r in some):.3f}" for key in ("ratio", "processor_ratio")),
        ]
        for name, some in {**groups, "all": timed}.items()
        if some
    ]
    lines = [
        [row["group"], row["case"], row["kind"], f"{row['seconds']:.3g}", f"{row['ratio']:.2f}",
         f"{row['processor_ratio']:.2f}", "yes" if row["same"] else "no"]
        if "ratio" in row
        else [row["group"], row["case"], row["kind"], "–", row["note"], "–", "–"]
        for row in rows
    ]  # fmt: skip
    head = ["group", "rows", "time of the other revision over this one's", "of processor time"]
    columns = ["group", "case", "budget", "seconds", "ratio", "of processor time", "same program"]
    return markdown(head, means) + "\n" + markdown(columns, lines)


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.revisions", description=__doc__.split("\n")[0]
    )
    parser.add_argument("checkout", type=Path, help="a folder with the other revision, installed")
    groups = [group for group in GROUPS if group not in SKIPPED]
    parser.add_argument("--only", nargs="+", choices=groups, default=groups, metavar="GROUP")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="the first case of each group and every Nth"
    )
    parser.add_argument("--runs", type=int, default=9, help="timed calls of each revision (default 9)")
    options = parser.parse_args(args)
    rows: list[dict[str, Any]] = []
    for group in options.only:
        for case in list(GROUPS[group](False))[:: options.every]:
            tight = getattr(case, "tight", 0.1) is not None
            found = rows_of(options.checkout.resolve(), group, case.title, tight, options.runs)
            print(
                "\n".join(json.dumps(one, ensure_ascii=False) for one in found), file=sys.stderr, flush=True
            )
            rows += found
            write("revisions", rows, text(rows), folder=folder)
    print(text(rows))


if __name__ == "__main__":
    main()
