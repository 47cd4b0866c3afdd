"""What loops inside of loops compute again: values that are open in the inner one, and not in the outer one.

A loop whose result is open in another loop runs inside of it. Of its body, what is not open in the outer loop
is the same in all of its iterations, but is computed in each: stored, it would have to be whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from types import MappingProxyType

from eqsat.engine.weights import Weights

Repeated = Mapping[int, int]
"""By a set of loops, the classes that are computed again in each of their iterations. Both are bits."""

NOTHING_REPEATED: Repeated = MappingProxyType({})


def merged(first: Repeated, second: Repeated) -> Repeated:
    """What either of two programs computes again."""
    if not second or first is second:
        return first
    if not first:
        return second
    found = dict(first)
    for loops, classes in second.items():
        found[loops] = found.get(loops, 0) | classes
    return _once(found)


def _once(again: dict[int, int]) -> dict[int, int]:
    """Without the classes under some loops that are computed again under these and more.

    Otherwise, a loop around both would seem to spare the former, and to make the program faster.
    """
    for loops, others in combinations(sorted(again), 2):  # As numbers, sets come before what contains them.
        if loops & others == loops:
            again[loops] &= ~again[others]
    return again


def bits(mask: int) -> list[int]:
    """The single bits of a set.

    >>> bits(13)
    [1, 4, 8]
    """
    found = []
    while mask:
        found.append(mask & -mask)
        mask &= mask - 1
    return found


class Nests:
    """Which classes are open in which loops.

    **Arguments:**

    - `opened`: by class, the loops that are open in it, as bits.
    - `trips`: by bit, how often that loop runs.
    """

    def __init__(self, opened: Sequence[int], trips: Mapping[int, float]) -> None:
        self.opened = opened
        self.trips = trips
        self._open_in: dict[int, int] = {}
        for index, loops in enumerate(opened):
            for loop in bits(loops):
                self._open_in[loop] = self._open_in.get(loop, 0) | 1 << index

    def nested(self, loops: Iterable[int]) -> bool:
        """Whether any of the loops that classes close, one for each class or none, is inside of another."""
        return any(loop and opened for loop, opened in zip(loops, self.opened, strict=True))

    def closed(self, index: int, loop: int, mask: int, again: Repeated) -> Repeated:
        """What is computed again in the program of a class that closes a loop; else what was before.

        **Arguments:**

        - `mask`: the classes of the program.
        - `again`: those that loops inside compute again.
        """
        around = bits(self.opened[index] & ~loop)
        if not loop or not around:
            return again
        inside = mask & self._open_in.get(loop, 0)
        found = dict(again)
        for missing in chain.from_iterable(combinations(around, n) for n in range(1, len(around) + 1)):
            lacking = self._lacking(missing, around)
            outer = sum(missing)
            once = inside & lacking
            if once:
                found[outer] = found.get(outer, 0) | once
            for loops, classes in again.items():
                moved = classes & lacking
                # What is repeated in this loop is repeated for each iteration of those around it, too.
                if moved and loops & loop and not loops & outer:
                    found[loops] &= ~moved
                    found[loops | outer] = found.get(loops | outer, 0) | moved
        return _once(found) if found != again else again

    def _lacking(self, missing: Sequence[int], around: Sequence[int]) -> int:
        """The classes that are open in all loops around, but for those that are missing."""
        found = -1
        for loop in around:
            opened = self._open_in.get(loop, 0)
            found &= ~opened if loop in missing else opened
        return found

    def seconds(self, again: Repeated, weights: Weights) -> float:
        """The time that repetitions take."""
        total = 0.0
        for loops, classes in again.items():
            if classes:
                times = 1.0
                for loop in bits(loops):
                    times *= self.trips[loop]
                total += (times - 1) * weights.sum(classes)
        return total
