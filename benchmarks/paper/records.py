"""Rows of a benchmark as a table and as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from benchmarks.chunking import cpu_name
from examples.measure import seconds_text

RESULTS = Path(__file__).parent.parent / "results"


def write(name: str, rows: Sequence[Any], text: str, folder: Path) -> Path:
    """Write the rows, data classes, as JSON and the text as Markdown; gives their path without a suffix."""
    folder.mkdir(exist_ok=True)
    stem = folder / f"paper-{name}-{cpu_name()}"
    record = {"jax": jax.__version__, "cpu": cpu_name(), "rows": [asdict(row) for row in rows]}
    stem.with_suffix(".json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    stem.with_suffix(".md").write_text(text)
    return stem


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def time_text(seconds: float | None) -> str:
    return "–" if seconds is None else seconds_text(seconds)
