"""Saves reports, such as the plans of a script or the explanation of a function, as one file each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from eqsat.errors import EqsatError
from eqsat.reports.explanation import Explanation
from eqsat.reports.plan import Plan
from eqsat.reports.stream_explanation import StreamExplanation
from eqsat.reports.stream_plan import StreamPlan

DRAWN = ("html", "png", "svg", "pdf")
"""The kinds of files that contain pictures."""

KINDS = (*DRAWN, "txt", "py", "dot", "json")


def check_target(path: Path) -> None:
    """Checks, before anything is planned, that reports can be saved as files of the path's kind.

    **Raises:** `EqsatError` if the suffix is unknown, or if the kind needs matplotlib and it is missing.
    """
    kind = _kind(path)
    if kind not in KINDS:
        known = ", ".join(f".{known}" for known in KINDS)
        raise EqsatError(f"{str(path)!r}: plans are saved as {known}, or in a folder, a page for each")
    if kind in DRAWN and find_spec("matplotlib") is None:
        raise EqsatError(f"{str(path)!r}: pictures need matplotlib: pip install 'eqsat[pictures]'")


def save_reports(
    reports: Sequence[Plan | StreamPlan | Explanation | StreamExplanation], path: Path
) -> list[Path]:
    """Saves reports, and returns the paths of the files.

    A path without a suffix is a folder, in which each file is named after the title of its report. A path
    with a suffix is the file of the first report; the files of the others lie beside it, with a number.

    **Raises:** `EqsatError` if a file can't be written.
    """
    written: list[Path] = []
    for report in reports:
        stem = path.parent / path.stem if path.suffix else path / (_plain(report.title) or "program")
        file = _free(stem, _kind(path), written)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            report.save(file)
        except OSError as error:
            raise EqsatError(f"{file} can't be written: {error.strerror}") from None
        written.append(file)
    return written


def _kind(path: Path) -> str:
    return path.suffix.removeprefix(".").lower() or "html"


def _plain(title: str) -> str:
    """Returns a title in a form that can name a file."""
    return re.sub(r"\W+", "-", title).strip("-")


def _free(stem: Path, kind: str, taken: Sequence[Path]) -> Path:
    """Returns a path from `stem` that is not among `taken`, with a number if need be."""
    file, number = stem.with_name(f"{stem.name}.{kind}"), 1
    while file in taken:
        number += 1
        file = stem.with_name(f"{stem.name}-{number}.{kind}")
    return file
