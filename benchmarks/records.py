"""Writes the results of a benchmark to files: rows as JSON, tables as Markdown, and a picture."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from examples.measure import seconds_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"


def write(
    name: str,
    rows: Sequence[Any],
    text: str = "",
    figure: Figure | None = None,
    folder: Path = RESULTS,
    machine: str | None = None,
) -> Path:
    """Writes `NAME-MACHINE.json`, and beside it `.md` if there is a text, and `.png` if there is a figure.

    **Arguments:**

    - `rows`: data classes or dictionaries whose values JSON can represent.
    - `machine`: the name of the device that the figures are of; by default, the processor.

    **Returns:** the path without a suffix.
    """
    folder.mkdir(exist_ok=True)
    stem = folder / f"{name}-{machine or cpu_name()}"
    plain = [asdict(row) if is_dataclass(row) else row for row in rows]
    record = {"jax": jax.__version__, "cpu": cpu_name(), "rows": plain}
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if text:
        stem.with_suffix(".md").write_text(text)
    if figure:
        figure.savefig(stem.with_suffix(".png"), dpi=110)
    return stem


def read(name: str, folder: Path = RESULTS, machine: str | None = None) -> list[dict[str, Any]]:
    """Returns the rows that were written of a machine (by default, of this processor), or none."""
    file = folder / f"{name}-{machine or cpu_name()}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"] if file.exists() else []
    return rows


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def time_text(seconds: float | None) -> str:
    return "–" if seconds is None else seconds_text(seconds)


def ratio_text(seconds: float | None, base: float | None) -> str:
    """Returns the ratio of two times as text, or a dash if one of them is missing."""
    return "–" if seconds is None or base is None else f"{seconds / base:.2f}"


def device_name() -> str | None:
    """Returns the name of JAX's default device as part of a file name; None if that is a processor.

    Of "NVIDIA H100 80GB HBM3", it is "nvidia-h100".
    """
    device = jax.devices()[0]
    if device.platform == "cpu":
        return None
    return "-".join(re.sub(r"[^a-z0-9]+", " ", device.device_kind.lower()).split()[:2])


def cpu_name() -> str:
    """Returns the processor's name, from /proc/cpuinfo, or else the architecture, as part of a file name."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    name = found.group(1) if found else platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
