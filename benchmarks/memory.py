"""Certified and measured memory, program by program, each in a fresh process.

    python -m benchmarks.memory

Certified is what the plan says on top of the arguments; measured, by how much the resident memory of a
process grows at most when it runs the program for the first time. The aim is measured within 5 % + 20 MB of
certified. Prints a table and writes `benchmarks/results/memory-<cpu>.json` and `.md`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.chunking import cpu_name
from benchmarks.fresh import SLACK, in_fresh_process
from benchmarks.memory_programs import PROGRAMS

RESULTS = Path(__file__).parent / "results"


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The figures in MB, as Markdown."""
    lines = [
        "| program | arguments | as written | certified | of it scratch | measured | ratio | options |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        names = ("arguments", "plain", "certified", "scratch", "measured")
        figures = [f"{row[key] / 1e6:,.1f}" for key in names]
        ratio = f"{row['measured'] / row['certified']:.2f}"
        lines.append("| " + " | ".join([name, *figures, ratio, row["options"]]) + " |")
    return "\n".join(lines)


def within(row: dict[str, Any]) -> bool:
    """Whether what was measured is within 5 % + 20 MB of what was certified."""
    return bool(row["measured"] <= 1.05 * row["certified"] + SLACK)


def main() -> None:
    rows: dict[str, dict[str, Any]] = {}
    for name in PROGRAMS:
        code, lines, complaint = in_fresh_process(name, timeout=900)
        if code or not lines:
            raise SystemExit(f"{name} failed with {code}:\n{complaint[-2000:]}")
        rows[name] = lines[-1]
        print(f"{name}: {'within' if within(rows[name]) else 'MORE THAN'} 5 % + 20 MB", flush=True)
    text = table(rows)
    print(text)
    path = RESULTS / f"memory-{cpu_name()}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n")
    path.with_suffix(".md").write_text(text + "\n")


if __name__ == "__main__":
    main()
