"""The folder where eqsat keeps files between processes: machine calibrations, plans and more."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

VARIABLE = "EQSAT_CACHE_DIR"
"""The environment variable that names the folder. If it is set but empty, nothing is kept."""


def cache_folder() -> Path | None:
    """The folder, which may not exist yet: `EQSAT_CACHE_DIR`, or else `eqsat` in the platform's cache folder.

    The latter is `$XDG_CACHE_HOME` or `~/.cache` on Linux, `~/Library/Caches` on macOS, and `%LOCALAPPDATA%`
    on Windows. None if nothing is to be kept.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    home = Path.home()
    match sys.platform:
        case "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
        case "darwin":
            base = home / "Library" / "Caches"
        case _:
            given = os.environ.get("XDG_CACHE_HOME", "")
            # The XDG convention says to ignore a relative path.
            base = Path(given) if os.path.isabs(given) else home / ".cache"
    return base / "eqsat"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: readers find either the previous content or all of the new content.

    Missing parent folders are made. If several processes write at once, the last one wins.

    **Raises:** `OSError` if the file cannot be written, for example to a read-only or full disk.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
