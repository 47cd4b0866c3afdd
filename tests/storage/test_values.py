"""Values that are kept are computed once, by the first process that wants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat import rulesets
from eqsat.storage.values import FILES, kept


def test_a_value_is_computed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    computed: list[int] = []

    def value(number: int) -> int:
        computed.append(number)
        return number

    assert [kept("one", lambda: value(1)), kept("one", lambda: value(2))] == [1, 1]
    assert kept("other", lambda: value(3)) == 3
    assert computed == [1, 3]
    for entry in (tmp_path / "values").iterdir():
        FILES.write(entry.name, b"no pickle")
    assert kept("one", lambda: value(4)) == 4


def test_rules_that_were_kept_are_those_that_were_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    compiled = [rulesets._compiled.__wrapped__((), "exact") for _ in range(2)]
    assert compiled[0] == compiled[1]
    assert compiled[0] is not compiled[1]
    files = [rulesets.shipped_files.__wrapped__() for _ in range(2)]
    assert files[0] == files[1]
    assert len(list((tmp_path / "values").iterdir())) == 2
