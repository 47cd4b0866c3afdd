"""Windows of an array that is read: rows around rows, which may overlap.

    windows[t, f]  =  x[clip(start + stride t + step f, low, high)]

Where they overlap, rows are read once, in blocks, and copied from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from eqsat.ir.moved_arrays import Array, Moved, Places, Sources

BLOCK = 1 << 20
"""Bytes that are read at once, at most, but for single rows."""

MOST_SKIPPED = 8
"""Rows are read one by one where more than so many are skipped for each."""


@dataclass(frozen=True)
class Windows:
    """Rows of an array along a dimension, which becomes several.

    **Attributes:**

    - `start`, `steps`: the row of the first entry, and how far it is from one position to the next, by
      dimension; `sizes`: the lengths of these.
    - `low`, `high`: the bounds that rows are clipped to.
    """

    of: Moved
    dimension: int
    start: int
    steps: tuple[int, ...]
    sizes: tuple[int, ...]
    low: int
    high: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.of.shape[: self.dimension], *self.sizes, *self.of.shape[self.dimension + 1 :])

    @property
    def sources(self) -> frozenset[int]:
        return self.of.sources

    @property
    def share(self) -> float:
        """How many rows are read, as a share of the entries of all windows."""
        span = 1 + sum(abs(step) * (size - 1) for step, size in zip(self.steps, self.sizes, strict=True))
        return min(1.0, min(span, self.high - self.low + 1) / math.prod(self.sizes))

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        at, count = self.dimension, len(self.sizes)
        before, own, after = where[:at], where[at : at + count], where[at + count :]
        start = self.start + sum(step * one.start for step, one in zip(self.steps, own, strict=True))
        steps = [step * one.step for step, one in zip(self.steps, own, strict=True)]
        self._fill(start, steps, into, (before, after), sources)

    def _fill(
        self,
        start: int,
        steps: Sequence[int],
        into: Array,
        around: tuple[Places, Places],
        sources: Sources,
    ) -> None:
        """Read windows whose first row is `start`, by halves where they are long or far apart."""
        at = self.dimension
        sizes = into.shape[at : at + len(steps)]
        extents = [abs(step) * (size - 1) for step, size in zip(steps, sizes, strict=True)]
        span, single = sum(extents) + 1, math.prod(sizes) == 1
        row = math.prod(map(len, (*around[0], *around[1]))) * into.itemsize
        if single or (span * row <= BLOCK and span <= MOST_SKIPPED * math.prod(sizes)):
            self._copy(start, steps, into, around, sources)
            return
        widest = max(range(len(sizes)), key=lambda number: (extents[number], sizes[number]))
        half = sizes[widest] // 2
        for begin, end in ((0, half), (half, sizes[widest])):
            part = into[(*(slice(None),) * (at + widest), slice(begin, end))]
            self._fill(start + begin * steps[widest], steps, part, around, sources)

    def _copy(
        self,
        start: int,
        steps: Sequence[int],
        into: Array,
        around: tuple[Places, Places],
        sources: Sources,
    ) -> None:
        """Read the rows that windows are of, and copy them to each."""
        at, (before, after) = self.dimension, around
        sizes = into.shape[at : at + len(steps)]
        ends = [step * (size - 1) for step, size in zip(steps, sizes, strict=True)]
        least, most = start + sum(min(0, end) for end in ends), start + sum(max(0, end) for end in ends)
        first, last = (min(max(one, self.low), self.high) for one in (least, most))
        rows = np.empty((*map(len, before), last - first + 1, *map(len, after)), into.dtype)
        self.of.read((*before, range(first, last + 1), *after), rows, sources)
        if (first, last) == (least, most):
            moved = [step * rows.strides[at] for step in steps]
            strides = (*rows.strides[:at], *moved, *rows.strides[at + 1 :])
            begin = rows[(*(slice(None),) * at, slice(start - first, None))]
            into[...] = np.lib.stride_tricks.as_strided(begin, into.shape, strides, writeable=False)
            return
        grids = np.ix_(*(np.arange(size) * step for step, size in zip(steps, sizes, strict=True)))
        places = np.clip(start + sum(grids), self.low, self.high) - first
        into[...] = np.take(rows, places, axis=at)
