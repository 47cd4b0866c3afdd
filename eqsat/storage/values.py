"""Keeps values on disk between processes that take long to compute and depend only on eqsat's version."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from eqsat.storage.files import KeptFiles
from eqsat.storage.keys import eqsat_version
from eqsat.support.cache_folder import cache_folder
from eqsat.support.serialisation import RECORDS, Codec

T = TypeVar("T")

FILES = KeptFiles("values")


def kept(name: str, kind: Any, compute: Callable[[], T], codec: Codec = RECORDS) -> T:
    """The result of `compute`, from this process or an earlier one.

    **Arguments:**

    - `name`: identifies the value, which may depend on nothing else but the versions of eqsat and Python.
    - `kind`: its type, which `codec` can write and read.
    """
    if cache_folder() is None:
        return compute()  # computing the key and writing the value would take time for nothing
    key = hashlib.blake2b(f"{name} {eqsat_version()} {sys.version}".encode(), digest_size=20).hexdigest()
    content = FILES.read(key)
    if content is not None:
        try:
            found: T = codec.read(kind, json.loads(content))
            return found
        except Exception:
            # Whatever is wrong with the stored value, it is computed again.
            FILES.remove(key)
    value = compute()
    FILES.write(key, json.dumps(codec.write(kind, value)).encode())
    return value
