"""Compares the certified memory of programs with the measured memory, each in a fresh process.

    python -m benchmarks.memory

The certified memory is the plan's peak without the arguments. The measured memory is the peak growth of a
process's resident memory when it runs the program for the first time. It should exceed the certified memory
by at most 5 % + 20 MB. Prints a table and writes `benchmarks/results/memory-<cpu>.json` and `.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.fresh import SLACK, in_fresh_process
from benchmarks.memory_programs import PROGRAMS
from benchmarks.records import markdown, write


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a table of the figures, in MB, as Markdown."""
    names = ("arguments", "plain", "certified", "scratch", "measured")
    heading = ["program", "arguments", "as written", "certified", "of it scratch", "measured", "ratio",
               "options"]  # fmt: skip
    lines = []
    for row in rows:
        figures = [f"{row[key] / 1e6:,.1f}" for key in names]
        ratio = f"{row['measured'] / row['certified']:.2f}"
        lines.append([row["program"], *figures, ratio, row["options"]])
    return markdown(heading, lines)


def within(row: dict[str, Any]) -> bool:
    """Returns whether the measured memory exceeds the certified memory by at most 5 % + 20 MB."""
    return bool(row["measured"] <= 1.05 * row["certified"] + SLACK)


def main() -> None:
    rows: list[dict[str, Any]] = []
    for name in PROGRAMS:
        code, lines, complaint = in_fresh_process(name, timeout=900)
        if code or not lines:
            raise SystemExit(f"{name} failed with {code}:\n{complaint[-2000:]}")
        rows.append({"program": name, **lines[-1]})
        print(f"{name}: {'within' if within(rows[-1]) else 'MORE THAN'} 5 % + 20 MB", flush=True)
    print(table(rows))
    write("memory", rows, table(rows))


if __name__ == "__main__":
    main()
