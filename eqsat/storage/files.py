"""Files kept between processes: written atomically, verified when read, and limited in total size."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eqsat.support.cache_folder import cache_folder, write_atomically

MOST_BYTES = 256 << 20
"""The most bytes of all files in one folder together; the least recently used are removed first."""

KEPT_WHEN_FULL = 0.75
"""The part of the limit that remains when files are removed; a file larger than this is never kept."""

DIGEST_BYTES = 20

MOST_LINKS = 40
"""The most symbolic links that are followed on the way to a folder, as on Linux."""

OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The mode bits that let users other than the owner write."""


@dataclass(frozen=True)
class KeptFiles:
    """A folder of files by name, in the user's cache unless something else is said.

    The files determine what eqsat computes. So nobody but the user and root may be able to change them: the
    folder is not used if others can write to it, or can replace any folder on the way to it by another folder
    or a link.

    Every failure (no folder, a full disk, a damaged file) is treated as if the file did not exist.

    **Attributes:**

    - `name`: the name of the folder.
    - `most_bytes`: the most bytes that all files may have together.
    - `around`: finds the folder that it is in; None if nothing is to be kept.
    """

    name: str
    most_bytes: int = MOST_BYTES
    around: Callable[[], Path | None] = cache_folder

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None. A file is removed if its content was damaged."""
        folder = self._folder()
        if folder is None:
            return None
        path = folder / name
        try:
            raw = _content(path)
        except OSError:
            return None
        digest, content = raw[:DIGEST_BYTES], raw[DIGEST_BYTES:]
        if digest != _digest(content):
            self.remove(name)
            return None
        with suppress(OSError):
            os.utime(path)  # marks it as used now
        return content

    def names(self, beginning: str) -> list[str]:
        """The names of the files that start with `beginning`, sorted."""
        folder = self._folder()
        if folder is None:
            return []
        with suppress(OSError):
            return sorted(name for name in os.listdir(folder) if name.startswith(beginning))
        return []

    def write(self, name: str, content: bytes) -> None:
        """Write a file. Processes that read it meanwhile find the previous content."""
        folder = self._folder(make=True)
        if folder is None or len(content) > KEPT_WHEN_FULL * self.most_bytes:
            return
        with suppress(OSError):
            write_atomically(folder / name, _digest(content) + content)
            self._shrink(folder)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        folder = self._folder()
        if folder is not None:
            with suppress(OSError):
                (folder / name).unlink()

    def _folder(self, make: bool = False) -> Path | None:
        """The folder, if it exists (or `make` creates it) and can be trusted."""
        above = self.around()
        if above is None:
            return None
        folder = above / self.name
        try:
            if make:
                above.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.mkdir(mode=0o700, exist_ok=True)
            open_to_others = changeable(folder)
        except OSError:
            return None
        if open_to_others is not None:
            _warn_of(str(folder), str(open_to_others))
            return None
        return folder

    def _shrink(self, folder: Path) -> None:
        """Remove the least recently used files if there are too many bytes."""
        files = []
        for entry in os.scandir(folder):
            with suppress(OSError):  # another process has removed it
                found = entry.stat()
                files.append((found.st_mtime, found.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        if total <= self.most_bytes:
            return
        for _, size, path in sorted(files):
            if total <= KEPT_WHEN_FULL * self.most_bytes:
                break
            with suppress(OSError):
                os.unlink(path)
            total -= size


def _content(path: Path) -> bytes:
    """The content of a regular file; nothing for anything else, such as a pipe, which might block.

    **Raises:** `OSError` if there is no file.
    """
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_BINARY", "O_NOFOLLOW"))
    with open(os.open(path, flags), "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def changeable(folder: Path) -> Path | None:
    """The first path on the way to a folder that others than the user and root can change; None if none is.

    Each folder and link on the way from the root is checked itself, not its target, as OpenSSH does for a
    user's files. It must belong to the user or to root, and no one else may write to it. Others may write to
    a folder with the sticky bit, such as /tmp, where nobody can rename the files of others. The folder itself
    must belong to the user, and no one else may write to it.

    **Raises:** `OSError` if the folder does not exist or is no folder.
    """
    if not hasattr(os, "getuid"):
        return None  # the platform has no such modes; its folder for a user's caches is private
    owners = {0, os.getuid()}
    todo, at = list(reversed(folder.absolute().parts)), Path()
    links = 0
    while todo:
        part = todo.pop()
        at = at.parent if part == os.pardir else at / part
        found = at.lstat()
        if found.st_uid not in owners:
            return at
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            target = at.readlink()
            todo += reversed(target.parts)
            at = Path() if target.is_absolute() else at.parent
            continue
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(at))
        if found.st_mode & OTHERS and (not todo or not found.st_mode & stat.S_ISVTX):
            return at
    return None if found.st_uid == os.getuid() else at


@cache
def _warn_of(folder: str, place: str) -> None:
    where = "it" if folder == place else place
    warnings.warn(
        f"eqsat does not use {folder}: others than you can write to {where}, and what is kept there says what"
        f" eqsat runs. Make it yours alone (chmod 700), or name another folder in EQSAT_CACHE_DIR",
        stacklevel=2,
    )
