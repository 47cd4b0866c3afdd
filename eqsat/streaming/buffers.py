"""Memory of the host that chunks are read into, used again for later chunks."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes. On a CPU, JAX takes an array of NumPy that begins at a multiple of it as it is, without a copy."""


class Buffers:
    """Buffers by size. One thread takes them, and another gives them back.

    When one of a new size is made, those that nothing is read into go: so there are never more bytes of them
    than are in use at once.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray[Any, Any]]] = {}
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array whose entries are any."""
        count = math.prod(shape) * dtype.itemsize
        with self._lock:
            free = self._free.get(count)
            raw = free.pop() if free else None
            if raw is None:
                self._free.clear()
        if raw is None:
            raw = np.empty(count + ALIGNMENT, np.uint8)
            begin = -raw.ctypes.data % ALIGNMENT
            raw = raw[begin : begin + count]
        return raw.view(dtype).reshape(shape)

    def give_back(self, array: np.ndarray[Any, Any]) -> None:
        """Let later chunks of its size have its memory. Nothing may read it any more."""
        with self._lock:
            self._free.setdefault(array.nbytes, []).append(array.reshape(-1).view(np.uint8))
