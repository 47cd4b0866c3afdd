"""`eqsat check` runs no code that a rules file names, unless it is told to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eqsat.cli import main

RULES = """
operation {name}[i](a: i) -> i  from "{module}:softly"
rule twice-{name} [exact]  {name}[i](a) + {name}[i](a) => 2 * {name}[i](a)
  example  a: i
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    (tmp_path / "importable_once.py").write_text(
        "import pathlib\npathlib.Path('ran').touch()\ndef softly(a):\n    return a\n"
    )
    file = tmp_path / "mine.rules"
    file.write_text(RULES.format(name="softly_checked", module="importable_once"))
    return file


def test_nothing_is_imported_unless_allowed(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(rules)]) == 1
    said = capsys.readouterr().out
    assert "'importable_once:softly', which was not imported" in said
    assert "--allow-imports" in said
    assert not (rules.parent / "ran").exists()
    assert main(["check", "--allow-imports", "--examples", "5", str(rules)]) == 0
    assert (rules.parent / "ran").exists()
