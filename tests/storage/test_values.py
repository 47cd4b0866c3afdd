"""Values that are kept are computed once, by the first process that wants them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from eqsat.rulesets import files, selection
from eqsat.storage import values
from eqsat.storage.values import COMPILED, FILES, kept


def test_a_value_is_computed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    computed: list[int] = []

    def value(number: int) -> int:
        computed.append(number)
        return number

    assert [kept("one", int, lambda: value(1)), kept("one", int, lambda: value(2))] == [1, 1]
    assert kept("other", int, lambda: value(3)) == 3
    assert computed == [1, 3]
    for entry in (tmp_path / "values").iterdir():
        FILES.write(entry.name, b"no json")
    assert kept("one", int, lambda: value(4)) == 4
    for entry in (tmp_path / "values").iterdir():
        FILES.write(entry.name, b'"no int"')
    assert kept("one", int, lambda: value(5)) == 5


def test_rules_that_were_kept_are_those_that_were_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    compiled = [selection._shipped.__wrapped__("exact", "", frozenset()) for _ in range(2)]
    assert compiled[0] == compiled[1]
    assert compiled[0] is not compiled[1]
    read = [files.shipped_files.__wrapped__() for _ in range(2)]
    assert read[0] == read[1]
    assert len(list((tmp_path / "values").iterdir())) == 2


READS = """
import sys
from eqsat.compiler.planners import rules_for
print(len(rules_for((), "exact")) > 100, [name in sys.modules for name in ("lark", "eqsat.language.syntax")])
"""


def test_who_finds_rules_compiled_imports_nothing_that_reads_them(tmp_path: Path) -> None:
    """Reading them takes seconds, and what it takes to read them tenths of a second to import."""
    command, environment = [sys.executable, "-c", READS], {**os.environ, "EQSAT_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["True [True, True]\n", "True [False, False]\n"]


def test_without_a_cache_values_are_beside_the_compiled_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", "")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    Path(cache_from_source(values.__file__)).parent.mkdir(parents=True)
    computed: list[int] = []

    def value(number: int) -> int:
        computed.append(number)
        return number

    assert [kept("one", int, lambda: value(1)), kept("one", int, lambda: value(2))] == [1, 1]
    (file,) = (path for path in tmp_path.rglob("values/*") if path.is_file())
    assert file.name in COMPILED.names("")
    file.write_bytes(b"damaged")
    assert kept("one", int, lambda: value(3)) == 3
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert kept("one", int, lambda: value(4)) == 4
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    Path(cache_from_source(values.__file__)).parent.chmod(0o777)  # Anybody may write what eqsat would read.
    assert kept("one", int, lambda: value(5)) == 5
    assert computed == [1, 3, 4, 5]
