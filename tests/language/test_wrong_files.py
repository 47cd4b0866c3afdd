"""What is said about each of the files in `wrong/`, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqsat.errors import RuleError, RuleSyntaxError
from eqsat.language.parse import load_rules

FOLDER = Path(__file__).parent / "wrong"
NAMES = sorted(path.stem for path in FOLDER.glob("*.rules"))


def message_about(name: str) -> str:
    """What is said about a file by someone who stands in its folder."""
    with pytest.raises((RuleError, RuleSyntaxError)) as caught:
        load_rules(f"{name}.rules")
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    assert message_about(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")


@pytest.mark.parametrize("name", NAMES)
def test_message_says_where_what_and_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    first, source, caret, *hint = message_about(name).split("\n")
    found = re.fullmatch(r"([\w./]+\.rules):(\d+):(\d+): \S.*", first)
    assert found
    file, line, column = found[1], int(found[2]), int(found[3])
    margin = f"  {line} | "
    text = (FOLDER / file).read_text(encoding="utf-8").split("\n")[line - 1]
    assert source == margin + text.replace("\t", " ")
    assert caret == "  " + " " * len(str(line)) + " | " + " " * (column - 1) + "^"
    assert hint[0].startswith("  hint: ")
    assert all(len(more) < 140 for more in hint)


def test_there_are_many() -> None:
    assert len(NAMES) >= 30
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == NAMES
