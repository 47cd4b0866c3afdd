"""Integer sequences as runs, within each of which the value is affine in the position.

    0 0 0 1 1 2   is three runs that begin at 0, 3 and 5, with the values 0, 1 and 2 and the stride 0
    1 2 3 2 3 3   is the same runs with the values 1, 2 and 3 and the stride 1

These are the two index arrays of all pairs i < j of four points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]

MOST = 1 << 16
"""Runs. A sequence of more is not worth describing: the descriptions are kept as long as the program is."""

SHARE = 8
"""A run has to be this long on average: else the sequence is as well kept as it is."""


class Differences:
    """The differences between the entries of a sequence and the next ones, as stretches of equal ones.

    **Attributes:**

    - `count`: how many entries there are so far.
    - `first`: the first of them.
    - `low`, `high`: the smallest and the largest.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = self.low = self.high = 0
        self._last: int | None = None
        self._starts: list[Integers] = []
        self._steps: list[Integers] = []
        self._stretches = 0

    def add(self, entries: Integers) -> bool:
        """Take the next entries, of which there is at least one; whether runs are still worth while."""
        if self._last is None:
            self.first = self.low = self.high = int(entries[0])
            known, place = entries, 0
        else:
            known, place = np.concatenate([[self._last], entries]), self.count - 1
        self.low, self.high = min(self.low, int(entries.min())), max(self.high, int(entries.max()))
        self._last = int(entries[-1])
        self.count += len(entries)
        steps = np.diff(known)
        if len(steps):
            before = self._steps[-1][-1] if self._steps else None
            changed = np.concatenate([[before is None or steps[0] != before], steps[1:] != steps[:-1]])
            (where,) = np.nonzero(changed)
            if len(where):
                self._starts.append(where + place)
                self._steps.append(steps[where])
                self._stretches += len(where)
        return self._stretches <= 2 * min(MOST, max(self.count // SHARE, 1))

    def stretches(self) -> tuple[Integers, Integers]:
        """The positions from which on the differences are others, and these differences."""
        none = [np.zeros(0, np.int64)]
        return np.concatenate(self._starts or none), np.concatenate(self._steps or none)


@dataclass(frozen=True)
class Runs:
    """A sequence as runs.

    **Attributes:**

    - `starts`: the positions at which they begin, the first of which is 0.
    - `bases`: the values there.
    - `strides`: the differences between neighbours within each run.
    """

    starts: Integers
    bases: Integers
    strides: Integers


def runs_of(differences: Differences) -> Runs | None:
    """The sequence as few runs, or None if it takes too many. Runs of one stride are preferred."""
    starts, steps = differences.stretches()
    lengths = np.diff(np.append(starts, differences.count - 1))
    values = differences.first + np.cumsum(steps * lengths) - steps * lengths
    most = min(MOST, max(differences.count // SHARE, 1))
    alike = _of_one_stride(starts, steps, lengths, values, differences.first, most)
    others = _of_own_strides(starts, steps, lengths, differences, most)
    if alike is None or (others is not None and len(others.starts) < len(alike.starts) // 2):
        return others
    return alike


def _of_one_stride(
    starts: Integers, steps: Integers, lengths: Integers, values: Integers, first: int, most: int
) -> Runs | None:
    """The runs between all differences that are not the most frequent one."""
    kinds, inverse = np.unique(steps, return_inverse=True)
    stride = kinds[np.argmax(np.bincount(inverse, weights=lengths))] if len(kinds) else np.int64(0)
    odd = steps != stride
    if lengths[odd].sum() >= most:
        return None
    stretch = np.repeat(np.flatnonzero(odd), lengths[odd])
    begins = np.cumsum(lengths[odd]) - lengths[odd]
    inside = np.arange(len(stretch)) - np.repeat(begins, lengths[odd]) + 1
    zero, base = np.zeros(1, np.int64), np.asarray([first], np.int64)
    return Runs(
        np.concatenate([zero, starts[stretch] + inside]),
        np.concatenate([base, values[stretch] + steps[stretch] * inside]),
        np.full(len(stretch) + 1, stride),
    )


def _of_own_strides(
    starts: Integers, steps: Integers, lengths: Integers, differences: Differences, most: int
) -> Runs | None:
    """The runs of at least three entries, found from the left, and one by one what is between them."""
    found: list[tuple[int, int, int]] = []
    free, value = 0, differences.first  # the first position that is in no run, and what is there

    def alone(stop: int, at: int, base: int, step: int) -> None:
        found.extend((place, base + step * (place - at), 0) for place in range(at, stop))

    for start, step, length in zip(starts.tolist(), steps.tolist(), lengths.tolist(), strict=True):
        # The stretch is of the positions from `start` to `start + length`, of which the first may be taken.
        if len(found) > most:
            return None
        stop = start + length + 1
        base = value + step * (max(free, start) - start)
        if stop - max(free, start) >= 3:
            found.append((max(free, start), base, step))
            free = stop
        else:
            alone(start + length, max(free, start), base, step)
            free = max(free, start + length)
        value += step * length
    alone(differences.count, free, value, 0)
    if len(found) > most:
        return None
    table = np.asarray(found, np.int64).reshape(-1, 3)
    return Runs(table[:, 0], table[:, 1], table[:, 2])
