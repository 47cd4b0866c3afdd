"""Where eqsat keeps files between processes: what the machine can do, and plans."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

VARIABLE = "EQSAT_CACHE_DIR"
"""The environment variable that names the folder. If it is set to nothing, nothing is kept."""


def cache_folder() -> Path | None:
    """The folder, which may not exist yet: `EQSAT_CACHE_DIR`, or `eqsat` where the platform keeps caches.

    That is `$XDG_CACHE_HOME` or `~/.cache` on Linux, `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on
    Windows. None if nothing is to be kept.
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
            # A relative path there is to be ignored, as the convention says.
            base = Path(given) if os.path.isabs(given) else home / ".cache"
    return base / "eqsat"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that whoever reads it finds all of it, or what was there before.

    Folders above it are made. Of several writers at once, the last one counts.

    Raises an `OSError` where that is not possible: a read-only or full disk.
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
