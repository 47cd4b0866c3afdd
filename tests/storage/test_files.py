"""Files between processes: a damaged one is no file, and neither is one that others could have written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from eqsat.storage.files import KeptFiles, changeable


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "things"


FILES = KeptFiles("things", most_bytes=10_000)


def test_what_was_written_is_read(folder: Path) -> None:
    assert FILES.read("one") is None
    FILES.write("one", b"content")
    assert FILES.read("one") == b"content"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    FILES.write("one", b"other")
    assert FILES.read("one") == b"other"


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: b"x" + raw[1:]])
def test_a_damaged_file_is_removed(folder: Path, damage: object) -> None:
    assert callable(damage)
    FILES.write("one", b"content")
    (folder / "one").write_bytes(damage((folder / "one").read_bytes()))
    assert FILES.read("one") is None
    assert list(folder.iterdir()) == []


def test_the_files_not_used_for_longest_go_first(folder: Path) -> None:
    for number in range(4):
        FILES.write(f"{number}", bytes(2_000))
        os.utime(folder / f"{number}", (number, number))
    assert FILES.read("0") is not None  # and so it is the one that was used last
    FILES.write("large", bytes(4_000))
    assert {path.name for path in folder.iterdir()} == {"0", "large"}
    FILES.write("too large", bytes(8_000))
    assert {path.name for path in folder.iterdir()} == {"0", "large"}


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    FILES.write("one", b"content")
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="chmod 700"):
        assert FILES.read("one") is None


def test_a_folder_in_one_that_others_can_write_to_is_not_used(folder: Path) -> None:
    FILES.write("one", b"content")
    folder.parent.chmod(0o777)
    with pytest.warns(UserWarning, match="chmod 700"):
        assert FILES.read("one") is None
    folder.parent.chmod(0o1777)  # as of /tmp: nobody can rename what is another's
    assert FILES.read("one") == b"content"


def test_a_folder_behind_a_link_that_others_can_change_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where others can write, they can make the link lead to another folder of the user's."""
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.mkdir(mode=0o700)
    shared.mkdir()
    (shared / "link").symlink_to(mine)
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(shared / "link" / "cache"))
    FILES.write("one", b"content")
    assert FILES.read("one") == b"content"
    shared.chmod(0o777)
    with pytest.warns(UserWarning, match="shared"):
        assert FILES.read("one") is None


def test_links_that_lead_nowhere_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        changeable(tmp_path / "one" / "cache")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_not_used(folder: Path) -> None:
    FILES.write("one", b"content")
    os.chown(folder.parent, 12345, 12345)
    with pytest.warns(UserWarning, match="others than you"):
        assert FILES.read("one") is None


def test_a_link_in_place_of_a_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    FILES.write("one", b"content")
    (folder / "one").rename(tmp_path / "elsewhere")
    (folder / "one").symlink_to(tmp_path / "elsewhere")
    assert FILES.read("one") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder: Path) -> None:
    FILES.write("one", b"content")
    (folder / "one").unlink()
    os.mkfifo(folder / "one")
    found: list[bytes | None] = []
    reading = threading.Thread(target=lambda: found.append(FILES.read("one")), daemon=True)
    reading.start()
    reading.join(10)
    assert found == [None]
    FILES.write("one", b"another")
    assert FILES.read("one") == b"another"


def test_nothing_is_kept_where_no_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", "")
    FILES.write("one", b"content")
    assert FILES.read("one") is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "file"))
    FILES.write("one", b"content")
    assert FILES.read("one") is None
