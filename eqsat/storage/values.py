"""Values that take long to compute and are the same as long as eqsat is: kept on disk between processes."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from typing import TypeVar

from eqsat.cache_folder import cache_folder
from eqsat.storage.files import KeptFiles
from eqsat.storage.keys import eqsat_version

T = TypeVar("T")

FILES = KeptFiles("values")


def kept(name: str, compute: Callable[[], T]) -> T:
    """What `compute` returns, now or in an earlier process.

    **Arguments:**

    - `name`: tells it from other values of this version of eqsat; it may depend on nothing else.
    """
    if cache_folder() is None:
        return compute()  # to name and to pickle what nobody keeps takes a while
    key = hashlib.blake2b(f"{name} {eqsat_version()} {sys.version}".encode(), digest_size=20).hexdigest()
    content = FILES.read(key)
    if content is not None:
        try:
            found: T = pickle.loads(content)
            return found
        except Exception:
            # Whatever is wrong with what was kept, computing it anew makes it right.
            FILES.remove(key)
    value = compute()
    FILES.write(key, pickle.dumps(value))
    return value
