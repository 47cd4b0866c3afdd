"""Keeps values on disk between processes that take long to compute and depend only on eqsat's version.

Where the user's cache is turned off, they are kept as Python keeps compiled modules: in `__pycache__` beside
this module, if Python may write there.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, TypeVar

from eqsat.storage.files import KeptFiles, changeable
from eqsat.storage.keys import eqsat_edition, eqsat_version
from eqsat.support.cache_folder import cache_folder
from eqsat.support.serialisation import RECORDS, Codec

T = TypeVar("T")


def _beside_modules() -> Path | None:
    """The folder of the compiled modules; None if Python writes none, or if others may write there."""
    folder = Path(cache_from_source(__file__)).parent
    try:
        return None if sys.dont_write_bytecode or changeable(folder) is not None else folder
    except OSError:
        return None


FILES = KeptFiles("values")

COMPILED = KeptFiles("values", 16 << 20, _beside_modules)
"""Values by the sizes and times of eqsat's files, as compiled modules are."""


def kept(name: str, kind: Any, compute: Callable[[], T], codec: Codec = RECORDS) -> T:
    """The result of `compute`, from this process or an earlier one.

    **Arguments:**

    - `name`: identifies the value, which may depend on nothing else but the versions of eqsat and Python.
    - `kind`: its type, which `codec` can write and read.
    """
    if cache_folder() is not None:
        files, version = FILES, eqsat_version()
    elif COMPILED.around() is not None:
        files, version = COMPILED, eqsat_edition()
    else:
        return compute()  # computing the key and writing the value would take time for nothing
    key = hashlib.blake2b(f"{name} {version} {sys.version}".encode(), digest_size=20).hexdigest()
    content = files.read(key)
    if content is not None:
        try:
            found: T = codec.read(kind, json.loads(content))
            return found
        except Exception:
            # Whatever is wrong with the stored value, it is computed again.
            files.remove(key)
    value = compute()
    files.write(key, json.dumps(codec.write(kind, value)).encode())
    return value
