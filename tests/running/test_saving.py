"""The plans of a script as files: each has a name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.errors import EqsatError
from eqsat.reports.plan import Plan
from eqsat.running.saving import check_target, save_reports

PLANS = [
    Plan(1, 1, 1, False, "", "", title=title) for title in ("f", "f, for a batch of 2", "f", "<lambda>", "")
]


def test_in_a_folder_each_has_its_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "page", lambda plan: plan.title)
    written = save_reports(PLANS, tmp_path / "plans")
    names = ["f.html", "f-for-a-batch-of-2.html", "f-2.html", "lambda.html", "program.html"]
    assert [file.name for file in written] == names
    assert [file.read_text() for file in written] == [plan.title for plan in PLANS]


def test_beside_a_file_they_are_numbered(tmp_path: Path) -> None:
    written = save_reports(PLANS[:3], tmp_path / "all.txt")
    assert [file.name for file in written] == ["all.txt", "all-2.txt", "all-3.txt"]


def test_where_there_is_no_writing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EqsatError, match="can't be written"):
        save_reports(PLANS, tmp_path / "file" / "plan.txt")
    with pytest.raises(EqsatError, match=r"plans are saved as \.html, \.png"):
        check_target(tmp_path / "plan.doc")
