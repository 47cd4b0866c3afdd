"""The command `eqsat`: what it prints, and its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.cli import main

RIGHT = """
rule negated-difference
  -(a - b)  =>  b - a
  example  a: i   b: j
  source "rules of signs"
"""

WRONG = RIGHT.replace("b - a", "a - b")


def written(folder: Path, text: str) -> str:
    file = folder / "mine.rules"
    file.write_text(text)
    return str(file)


def test_a_right_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(tmp_path, RIGHT)]) == 0
    printed = capsys.readouterr().out
    assert "mine.negated-difference" in printed
    assert "none failed" in printed


def test_a_wrong_rule_comes_with_arrays_to_paste(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(tmp_path, WRONG)]) == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "mine.rules:2:6: the two sides are not equal" in printed
    assert "a = np.array(" in printed


def test_what_does_not_parse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(tmp_path, "rule r  a + => b")]) == 2
    assert "mine.rules:1:13" in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.rules"]) == 2
    assert "nowhere.rules" in capsys.readouterr().err


def test_one_rule_of_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--rule", "pull-factor", "--examples", "5"]) == 0
    assert "1 checked" in capsys.readouterr().out


def test_a_rule_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-rule", "woodbury"]) == 0
    printed = capsys.readouterr().out
    assert "Matrix Cookbook" in printed
    assert "def before(" in printed
    assert "def after(" in printed
    assert "largest intermediate" in printed


def test_a_rule_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-rule", "woodburry"]) == 2
    assert "woodbury" in capsys.readouterr().err
