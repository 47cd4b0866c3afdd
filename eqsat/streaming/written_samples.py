"""Samples of what was written to a result, by which a run that goes on knows its place again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.streaming.sources import Slices, let_go, sliced

MOST = 64
"""How many samples are kept, at most twice."""

ENTRIES = 4096
"""How many entries of a slice are a sample, at most."""

Sample = tuple[tuple[tuple[int, int], ...], str]
"""Where a sample begins and ends in each dimension, and the digest of its bytes."""


@dataclass
class WrittenSamples:
    """Samples of slices, spread evenly over those that were written.

    **Attributes:**

    - `every`: one of so many slices is kept.
    - `count`: how many were written.
    """

    kept: list[Sample] = field(default_factory=list)
    every: int = 1
    count: int = 0

    def note(self, slices: Slices, values: np.ndarray[Any, Any]) -> None:
        """Note that a slice was written."""
        if self.count % self.every == 0 and values.size:
            lengths = _corner(values.shape)
            where = tuple((one.start, one.start + n) for one, n in zip(slices, lengths, strict=True))
            self.kept.append((where, _digest(values[tuple(slice(0, n) for n in lengths)])))
        self.count += 1
        if len(self.kept) > 2 * MOST:
            self.kept = self.kept[::2]
            self.every *= 2

    def differing(self, array: Any) -> Slices | None:
        """Where an array is not what was written; None if it is."""
        for where, digest in self.kept:
            slices = tuple(slice(begin, end) for begin, end in where)
            found = sliced(array, slices)
            if _digest(found) != digest:
                return slices
            let_go(found)
        return None

    @property
    def data(self) -> list[Any]:
        """The same as JSON has it."""
        return [self.every, self.count, [[list(map(list, where)), digest] for where, digest in self.kept]]

    @staticmethod
    def of(data: Sequence[Any]) -> WrittenSamples:
        """From what JSON has."""
        every, count, kept = data
        samples = [(tuple((int(a), int(b)) for a, b in where), str(digest)) for where, digest in kept]
        return WrittenSamples(samples, int(every), int(count))


def _corner(shape: Sequence[int]) -> list[int]:
    """The lengths of the first entries of an array, of which the last dimensions come first."""
    left, found = ENTRIES, []
    for length in reversed(shape):
        found.append(min(length, max(left, 1)))
        left //= found[-1]
    return found[::-1]


def _digest(values: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
