"""Keeps pieces of a chunked dataset in memory: what is read in a row is read, and decompressed, once.

Reads along the first dimension use each piece several times:

    chunks of 30 frames, read 3 frames at a time: the first read takes all 30, and the next nine none
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Slices = tuple[slice, ...]


@dataclass
class BlockCache:
    """The pieces of one dataset that were read last.

    **Attributes:**

    - `shape`: of the dataset; `block`: the lengths of its chunks.
    - `capacity`: bytes that pieces may take.
    """

    shape: Sequence[int]
    block: Sequence[int]
    itemsize: int
    capacity: int
    _pieces: OrderedDict[tuple[tuple[int, int], ...], Array] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, slices: Slices, whole: Callable[[Slices], Array]) -> Array:
        """A slice, of pieces that are in memory, and others.

        **Arguments:**

        - `slices`: with a start and a stop for each dimension.
        - `whole`: reads a slice of the dataset.
        """
        grid = [self._pieces_along(number, one) for number, one in enumerate(slices)]
        sizes = [max(stop - start for start, stop in along) for along in grid]
        aligned = all(along == [(one.start, one.stop)] for along, one in zip(grid, slices, strict=True))
        stepped = any(one.step not in (None, 1) for one in slices)
        if aligned or stepped or math.prod(sizes) * self.itemsize > self.capacity:
            return whole(slices)
        found: Array | None = None
        with self._lock:
            for piece in itertools.product(*grid):
                part = self._piece(piece, whole)
                inside = [
                    slice(max(one.start, start), min(one.stop, stop))
                    for one, (start, stop) in zip(slices, piece, strict=True)
                ]
                if found is None:
                    found = np.empty([one.stop - one.start for one in slices], part.dtype)
                into = tuple(
                    slice(at.start - one.start, at.stop - one.start)
                    for at, one in zip(inside, slices, strict=True)
                )
                of = tuple(
                    slice(at.start - start, at.stop - start)
                    for at, (start, _) in zip(inside, piece, strict=True)
                )
                found[into] = part[of]
        assert found is not None
        return found

    def _pieces_along(self, number: int, one: slice) -> list[tuple[int, int]]:
        """The pieces along a dimension: one where whole chunks are read, else rows of chunks."""
        size, length = self.shape[number], self.block[number]
        first, last = one.start // length * length, min(size, -(-one.stop // length) * length)
        if (first, last) == (one.start, one.stop):
            return [(first, last)]
        return [(start, min(size, start + length)) for start in range(first, last, length)]

    def _piece(self, piece: tuple[tuple[int, int], ...], whole: Callable[[Slices], Array]) -> Array:
        if piece in self._pieces:
            self._pieces.move_to_end(piece)
            return self._pieces[piece]
        found = np.array(whole(tuple(slice(start, stop) for start, stop in piece)))
        room = self.capacity - found.nbytes
        while self._pieces and sum(one.nbytes for one in self._pieces.values()) > room:
            self._pieces.popitem(last=False)
        self._pieces[piece] = found
        return found
