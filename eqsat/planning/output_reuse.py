"""Finds the temporaries that are placed in buffers of results.

A program's results have buffers from the start. XLA places temporaries in them that die before the result is
written: each, largest first, in the smallest buffer that is large enough and free at that time. Other
temporaries take memory of their own.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)

TRIED = 64
"""At most this many buffers are tried for a temporary, since some programs have thousands of results."""

SMALL = 64
"""Results and temporaries smaller than 1/64 of the largest result are ignored."""


Moment = tuple[float, ...]
"""A point in time: the steps that are running, outermost first. Step 3 lasts from (3,) to (3, inf)."""


@dataclass(frozen=True)
class Temporary:
    """A buffer that is alive from one moment to another, both included."""

    bytes: int
    begin: Moment
    end: Moment


@dataclass
class _Place:
    """The buffer of a result until the result is written."""

    bytes: int
    written: Moment
    taken: list[tuple[Moment, Moment]] = field(default_factory=list)

    def take(self, temporary: Temporary) -> bool:
        """Place a temporary here if it dies in time and the buffer is free; return whether it was placed."""
        if temporary.end >= self.written:
            return False
        number = bisect(self.taken, (temporary.begin, temporary.end))
        if number > 0 and self.taken[number - 1][1] >= temporary.begin:
            return False
        if number < len(self.taken) and self.taken[number][0] <= temporary.end:
            return False
        self.taken.insert(number, (temporary.begin, temporary.end))
        return True


def hosted(
    results: Iterable[tuple[int, Moment]], temporaries: Iterable[tuple[Name, Temporary]]
) -> frozenset[Name]:
    """The names of the temporaries that are placed in buffers of results.

    **Arguments:**

    - `results`: the bytes of each result, and the moment when it is written.

    >>> results = [(12, (5,)), (20, (6,))]
    >>> first, second = Temporary(10, (1,), (3,)), Temporary(15, (2,), (4,))
    >>> late = Temporary(2, (5,), (7,))
    >>> sorted(hosted(results, [("first", first), ("second", second), ("late", late)]))
    ['first', 'second']
    """
    places = sorted((_Place(size, written) for size, written in results), key=lambda place: place.bytes)
    least = places[-1].bytes / SMALL if places else 0
    places = [place for place in places if place.bytes >= least]
    large = [pair for pair in temporaries if pair[1].bytes >= least]
    sizes = [place.bytes for place in places]
    found = []
    for name, temporary in sorted(large, key=lambda pair: (-pair[1].bytes, pair[1].begin, pair[1].end)):
        first = bisect_left(sizes, temporary.bytes)
        if any(place.take(temporary) for place in places[first : first + TRIED]):
            found.append(name)
    return frozenset(found)
