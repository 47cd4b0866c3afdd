"""Values that take long to compute and are the same as long as eqsat is: kept on disk between processes."""

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
    """What `compute` returns, now or in an earlier process.

    **Arguments:**

    - `name`: tells it from other values of this version of eqsat; it may depend on nothing else.
    - `kind`: its type, all of which `codec` can write and read.
    """
    if cache_folder() is None:
        return compute()  # to name and to write what nobody keeps takes a while
    key = hashlib.blake2b(f"{name} {eqsat_version()} {sys.version}".encode(), digest_size=20).hexdigest()
    content = FILES.read(key)
    if content is not None:
        try:
            found: T = codec.read(kind, json.loads(content))
            return found
        except Exception:
            # Whatever is wrong with what was kept, computing it anew makes it right.
            FILES.remove(key)
    value = compute()
    FILES.write(key, json.dumps(codec.write(kind, value)).encode())
    return value
