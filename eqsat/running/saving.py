"""The plans of a script, or what explains a function, as files, one for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from eqsat.errors import EqsatError
from eqsat.reports.explanation import Explanation
from eqsat.reports.plan import Plan

DRAWN = ("html", "png", "svg", "pdf")
"""The kinds of files that have pictures in them."""

KINDS = (*DRAWN, "txt", "py", "dot", "json")


def check_target(path: Path) -> None:
    """Refuse a file or folder that plans could not be saved to, before there are any.

    **Raises:** `EqsatError`.
    """
    kind = _kind(path)
    if kind not in KINDS:
        known = ", ".join(f".{known}" for known in KINDS)
        raise EqsatError(f"{str(path)!r}: plans are saved as {known}, or in a folder, a page for each")
    if kind in DRAWN and find_spec("matplotlib") is None:
        raise EqsatError(f"{str(path)!r}: pictures need matplotlib: pip install 'eqsat[pictures]'")


def save_reports(reports: Sequence[Plan | Explanation], path: Path) -> list[Path]:
    """Save reports: all of them to a folder, each by its title; or the first to a file, others beside it.

    **Raises:** `EqsatError` if there is no writing there.
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
    """A title as the name of a file."""
    return re.sub(r"\W+", "-", title).strip("-")


def _free(stem: Path, kind: str, taken: Sequence[Path]) -> Path:
    """A name that none of these files has."""
    file, number = stem.with_name(f"{stem.name}.{kind}"), 1
    while file in taken:
        number += 1
        file = stem.with_name(f"{stem.name}-{number}.{kind}")
    return file
