"""Names of plans: eqsat itself is known by what the system says of its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eqsat.storage import keys


def test_a_file_that_is_written_to_is_another_edition(tmp_path: Path) -> None:
    (tmp_path / "inside" / "__pycache__").mkdir(parents=True)
    file = tmp_path / "inside" / "module.py"
    for other in ("notes.txt", "__pycache__/module.py"):
        (tmp_path / "inside" / other).write_text("")
    file.write_text("LIMIT = 1\n")
    before = os.stat(file)
    (found,) = keys.sources(str(tmp_path))
    assert found[0] == str(file)
    file.write_text("LIMIT = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened
    assert list(keys.sources(str(tmp_path))) != [found]


def test_the_version_is_that_of_the_contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    version = keys.eqsat_version.__wrapped__()
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    assert [keys.eqsat_version.__wrapped__() for _ in range(2)] == [version] * 2
    (kept,) = (tmp_path / "versions").iterdir()
    keys.VERSIONS.write(kept.name, b"another")
    assert keys.eqsat_version.__wrapped__() == "another"  # nothing else is read
