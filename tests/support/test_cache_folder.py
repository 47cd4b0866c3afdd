"""Where files are kept follows the environment; whoever reads one finds all of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eqsat.support.cache_folder import cache_folder, write_atomically


def test_the_folder_is_the_one_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"


@pytest.mark.parametrize(
    ("platform", "variable", "value", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "/var/caches", "/var/caches/eqsat"),
        ("linux", "XDG_CACHE_HOME", "relative", "/home/me/.cache/eqsat"),
        ("linux", "XDG_CACHE_HOME", "", "/home/me/.cache/eqsat"),
        ("darwin", "XDG_CACHE_HOME", "/var/caches", "/home/me/Library/Caches/eqsat"),
        ("win32", "LOCALAPPDATA", "/local", "/local/eqsat"),
    ],
)
def test_else_it_is_where_the_platform_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, value: str, expected: str
) -> None:
    monkeypatch.delenv("EQSAT_CACHE_DIR", raising=False)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    monkeypatch.setenv(variable, value)
    assert cache_folder() == Path(expected)


def test_a_reader_never_finds_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    contents = [bytes([number]) * 100_000 for number in range(8)]
    write_atomically(path, contents[0])
    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write_atomically, path, content) for content in contents]
        while not all(future.done() for future in writing):
            assert path.read_bytes() in contents
        for future in writing:
            future.result()
    assert list(path.parent.iterdir()) == [path], "nothing is left behind"


def test_nothing_is_left_of_a_failed_write(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
