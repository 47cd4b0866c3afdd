"""Arrays whose entries are those of others, at other places: slices, flips, joins, reshapes.

None is ever made. What is read of one is read of the arrays that it is of, and no more of them than that:

    flip(x)[2:5]  =  flip(x[n-5:n-2])
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from eqsat.ir.moved_windows import Windows
from eqsat.ir.spec import parse_const

Array = np.ndarray[Any, Any]

Places = tuple[range, ...]
"""Which entries are read: for each dimension their indices, in ascending order."""

MOST_SKIPPED = 8
"""Of a reshaped array, single entries are read where more than so many are skipped between two."""


class Readable(Protocol):
    """What can be read by slices."""

    def read(self, slices: tuple[slice, ...], into: Array) -> None: ...


Sources = Mapping[int, Readable]
"""What is read, by position."""


@dataclass(frozen=True)
class Whole:
    """An array that is read, by its position."""

    source: int
    shape: tuple[int, ...]

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        """Read some entries.

        **Arguments:**

        - `into`: where to, an array as long in each dimension as there are indices.
        """
        sources[self.source].read(tuple(slice(one.start, one[-1] + 1, one.step) for one in where), into)

    @property
    def sources(self) -> frozenset[int]:
        """The positions of what is read."""
        return frozenset({self.source})


@dataclass(frozen=True)
class Filled:
    """An array all of whose entries are one value, whose text tells -0.0 from 0.0."""

    text: str
    dtype: str
    shape: tuple[int, ...]

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        into[...] = parse_const(self.text, self.dtype)

    @property
    def sources(self) -> frozenset[int]:
        return frozenset()


@dataclass(frozen=True)
class Taken:
    """Evenly spaced entries along each dimension, in ascending or in descending order."""

    of: Moved
    places: Places

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.places))

    @property
    def sources(self) -> frozenset[int]:
        return self.of.sources

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        inner = [
            whole[one.start : one[-1] + 1 : one.step] for whole, one in zip(self.places, where, strict=True)
        ]
        flips = tuple(slice(None, None, -1 if one.step < 0 else 1) for one in inner)
        ascending = tuple(one[::-1] if one.step < 0 else one for one in inner)
        self.of.read(ascending, into[flips], sources)


@dataclass(frozen=True)
class Joined:
    """Arrays one after the other along a dimension."""

    of: tuple[Moved, ...]
    dimension: int

    @property
    def shape(self) -> tuple[int, ...]:
        shape = list(self.of[0].shape)
        shape[self.dimension] = sum(one.shape[self.dimension] for one in self.of)
        return tuple(shape)

    @cached_property
    def sources(self) -> frozenset[int]:
        return frozenset[int]().union(*(one.sources for one in self.of))

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        at, along = self.dimension, where[self.dimension]
        begin = 0
        for one in self.of:
            end = begin + one.shape[at]
            # The first of the indices that are in this array, and the first behind it.
            first, last = (max(0, -(-(edge - along.start) // along.step)) for edge in (begin, end))
            last = min(last, len(along))
            if first < last:
                inside = range(along[first] - begin, along[last - 1] - begin + 1, along.step)
                part = into[(*(slice(None),) * at, slice(first, last))]
                one.read((*where[:at], inside, *where[at + 1 :]), part, sources)
            begin = end


@dataclass(frozen=True)
class Transposed:
    """An array with its dimensions in another order."""

    of: Moved
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.of.shape[dimension] for dimension in self.order)

    @property
    def sources(self) -> frozenset[int]:
        return self.of.sources

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        back = [self.order.index(dimension) for dimension in range(len(self.order))]
        self.of.read(tuple(where[place] for place in back), into.transpose(back), sources)


@dataclass(frozen=True)
class Repeated:
    """An array with dimensions of one entry repeated."""

    of: Moved
    shape: tuple[int, ...]

    @property
    def sources(self) -> frozenset[int]:
        return self.of.sources

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        inner = tuple(
            range(1) if length == 1 else one for length, one in zip(self.of.shape, where, strict=True)
        )
        found = np.empty(tuple(map(len, inner)), into.dtype)
        self.of.read(inner, found, sources)
        np.copyto(into, found)


@dataclass(frozen=True)
class Reshaped:
    """An array with `count` dimensions from `at` on as dimensions of other lengths, in row-major order."""

    of: Moved
    at: int
    count: int
    lengths: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.of.shape[: self.at], *self.lengths, *self.of.shape[self.at + self.count :])

    @property
    def sources(self) -> frozenset[int]:
        return self.of.sources

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        before, group = where[: self.at], where[self.at : self.at + len(self.lengths)]
        after = where[self.at + len(self.lengths) :]
        last = self._run_dimension(group)
        inner = math.prod(self.lengths[last + 1 :])
        along = group[last]
        singles = along.step > MOST_SKIPPED
        outer = [*group[:last], *([along] if singles else [])]
        for places in itertools.product(*(range(len(one)) for one in outer)):
            start = 0
            for one, place, length in zip(outer, places, self.lengths, strict=False):
                start = start * length + one[place]
            index: tuple[Any, ...] = (*(slice(None),) * self.at, *places, ...)
            part = into[index]
            if singles:
                begin, end = start * inner, (start + 1) * inner
            else:
                begin = (start * self.lengths[last] + along.start) * inner
                end = begin + (along[-1] + 1 - along.start) * inner
            self._read_run(begin, end, before, after, part, 1 if singles else along.step, sources)

    def _run_dimension(self, group: Places) -> int:
        """The first dimension behind which all are read whole: what is read of it is one run of entries."""
        last = len(group) - 1
        while last and group[last] == range(self.lengths[last]):
            last -= 1
        return last

    def _read_run(
        self,
        begin: int,
        end: int,
        before: Places,
        after: Places,
        into: Array,
        step: int,
        sources: Sources,
    ) -> None:
        """Read a run of the entries in row-major order, and take every `step`-th row of it."""
        outside = [len(one) for one in before], [len(one) for one in after]
        # `into` has no dimension any more of those that are gone through one by one.
        rest = into.shape[self.at : into.ndim - len(after)]
        shape = (*outside[0], end - begin, *outside[1])
        flat = into.reshape(shape) if step == 1 else np.empty(shape, into.dtype)
        for start, stop, inner in runs(self.of.shape[self.at : self.at + self.count], begin, end):
            part = flat[(*(slice(None),) * self.at, slice(start, stop))]
            split = part.reshape((*outside[0], *map(len, inner), *outside[1]))
            self.of.read((*before, *inner, *after), split, sources)
        if not np.may_share_memory(flat, into):
            count = math.prod(rest[1:])
            rows = flat.reshape((*outside[0], (end - begin) // count, count, *outside[1]))
            into[...] = rows[(*(slice(None),) * self.at, slice(None, None, step))].reshape(into.shape)


@dataclass(frozen=True)
class Unsqueezed:
    """An array with further dimensions of one entry, or without some."""

    of: Moved
    shape: tuple[int, ...]

    @property
    def sources(self) -> frozenset[int]:
        return self.of.sources

    def read(self, where: Places, into: Array, sources: Sources) -> None:
        rest = (one for one, length in zip(where, self.shape, strict=True) if length != 1)
        inner = tuple(range(1) if length == 1 else next(rest) for length in self.of.shape)
        self.of.read(inner, into.reshape(tuple(map(len, inner))), sources)


Moved = Whole | Filled | Taken | Joined | Transposed | Repeated | Reshaped | Unsqueezed | Windows


def runs(shape: Sequence[int], begin: int, end: int) -> Iterator[tuple[int, int, Places]]:
    """Entries `begin` to `end` of an array in row-major order, as blocks of it: rows, and parts of rows.

    Each comes with where it begins and ends in these entries.

    >>> for found in runs((4, 3), 2, 8): print(found)
    (0, 1, (range(0, 1), range(2, 3)))
    (1, 4, (range(1, 2), range(0, 3)))
    (4, 6, (range(2, 3), range(0, 2)))
    """
    if len(shape) == 1:
        yield 0, end - begin, (range(begin, end),)
        return
    row = math.prod(shape[1:])
    at = begin
    while at < end:
        number, inside = divmod(at, row)
        if inside == 0 and end - at >= row:
            stop = end - end % row
            whole = tuple(range(length) for length in shape[1:])
            yield at - begin, stop - begin, (range(number, stop // row), *whole)
        else:
            stop = min(end, (number + 1) * row)
            for start, to, inner in runs(shape[1:], inside, inside + stop - at):
                yield at - begin + start, at - begin + to, (range(number, number + 1), *inner)
        at = stop


# How they are made


def taken(of: Moved, places: Places) -> Moved:
    """Evenly spaced entries of an array along each dimension."""
    if all(one == range(length) for one, length in zip(places, of.shape, strict=True)):
        return of
    if isinstance(of, Taken):
        return Taken(
            of.of, tuple(_of_range(whole, one) for whole, one in zip(of.places, places, strict=True))
        )
    return Taken(of, places)


def _of_range(whole: range, places: range) -> range:
    step = whole.step * places.step
    start = whole[places.start]
    return range(start, start + len(places) * step, step)


def transposed(of: Moved, order: Sequence[int]) -> Moved:
    """An array with its dimensions in another order."""
    return of if list(order) == list(range(len(order))) else Transposed(of, tuple(order))


def repeated(of: Moved, shape: tuple[int, ...]) -> Moved:
    """An array with dimensions of one entry repeated, to be of a shape."""
    return of if of.shape == shape else Repeated(of, shape)


def reshaped(of: Moved, shape: tuple[int, ...]) -> Moved:
    """An array of another shape, in row-major order."""
    lengths = tuple(length for length in shape if length != 1)
    found = _unsqueezed(of, tuple(length for length in of.shape if length != 1))
    while found.shape != lengths:
        found = _one_group_reshaped(found, lengths)
    return _unsqueezed(found, shape)


def _unsqueezed(of: Moved, shape: tuple[int, ...]) -> Moved:
    return of if of.shape == shape else Unsqueezed(of, shape)


def _one_group_reshaped(of: Moved, lengths: tuple[int, ...]) -> Moved:
    """The array with the first dimensions reshaped that differ from those of a shape."""
    at = next(place for place, length in enumerate(lengths) if length != of.shape[place])
    old = new = at + 1
    while (left := math.prod(of.shape[at:old])) != (right := math.prod(lengths[at:new])):
        old, new = (old + 1, new) if left < right else (old, new + 1)
    return Reshaped(of, at, old - at, lengths[at:new])
