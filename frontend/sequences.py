"""Integer sequences as expressions of the position, which give any slice of them without the rest.

A sequence of runs is

    base[r] + stride[r] * (p - start[r])    for the run r that the position p is in

`base` and `stride` are sequences again. The run is found by arithmetic where all runs are of one length, or
each is longer than the one before by the same number, as those of the pairs i < j are; else in a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from eqsat.frontend.runs import Differences, Integers, Runs, runs_of

Array = jax.Array
Table = np.ndarray[Any, np.dtype[np.int32]]
Tables = dict[int, Array]
"""The tables that an expression takes entries of, by their ids."""

LAST = 2**31 - 1
"""Positions, and what is computed of them, are integers of 32 bits."""

MOST_ROUNDED = 1 << 18
"""Runs that grow are this long at most. The number of a run is off by less than its length times a few
roundings of single precision: far less than one."""

ENTRIES = 2
"""The table of blocks, where the search for a run begins, has about this many entries for each run."""


def _int(value: int) -> Any:
    return np.int32(value)


def _taken(table: Array, places: Array) -> Array:
    """The entries at places that are in the table."""
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    where = lax.expand_dims(places, (places.ndim,))
    return lax.gather(table, where, numbers, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


@dataclass(frozen=True)
class Even:
    """Runs of one length, but for the last, which may be shorter."""

    length: int

    def place(self, position: Array, tables: Tables) -> tuple[Array, Array]:
        """The number of the run that a position is in, and where it begins."""
        run = lax.div(position, lax.full_like(position, self.length))
        return run, run * _int(self.length)


@dataclass(frozen=True)
class Growing:
    """Runs of which each is `growth` longer than the one before.

    The run r begins at s(r) = first * r + growth * r (r - 1) / 2. So the run at p is the root of a quadratic
    equation, rounded down. The root in single precision may be on the other side of an integer: the start of
    that run, and of the next, tell. Runs that get shorter are counted from the end.

    **Attributes:**

    - `count`: how many there are. The last may be shorter than that.
    """

    first: int
    growth: int
    count: int

    @property
    def rising(self) -> Growing:
        """The same from the end, if they get shorter."""
        if self.growth > 0:
            return self
        return Growing(self.first + self.growth * (self.count - 1), -self.growth, self.count)

    def start(self, run: int) -> int:
        """Where a run begins."""
        return self.first * run + self.growth * (run * (run - 1) // 2)

    def root(self, position: Any, numpy: Any) -> Any:
        """The run at a position, in single precision, if they get longer. It is one off at most."""
        middle = np.float32(2 * self.first - self.growth)
        inside = position * np.float32(8 * self.growth) + middle * middle
        return (numpy.sqrt(inside) - middle) * np.float32(0.5 / self.growth)

    def place(self, position: Array, tables: Tables) -> tuple[Array, Array]:
        """The number of the run that a position is in, and where it begins."""
        rising = self.rising
        end = self.start(self.count)
        counted = position if rising is self else _int(end - 1) - position
        root = rising.root(lax.convert_element_type(counted, np.float32), lax)
        run = lax.clamp(_int(0), lax.convert_element_type(root, np.int32), _int(self.count - 1))
        run = run - lax.convert_element_type(rising._start(run) > counted, np.int32)
        run = run + lax.convert_element_type(rising._start(run + _int(1)) <= counted, np.int32)
        if rising is not self:
            run = _int(self.count - 1) - run
        return run, self._start(run)

    def _start(self, run: Array) -> Array:
        half = lax.shift_right_logical(run * (run - _int(1)), lax.full_like(run, 1))
        start: Array = run * _int(self.first) + half * _int(self.growth)
        return start

    def is_exact(self) -> bool:
        """Whether all that is computed fits into 32 bits, and roots are one off at most."""
        rising = self.rising
        longest = rising.first + rising.growth * (self.count - 1)
        fits = rising.start(self.count + 1) <= LAST and (self.count + 1) * self.count <= LAST
        return rising.first > 0 and fits and longest <= MOST_ROUNDED


@dataclass(frozen=True, eq=False)
class Blocks:
    """Runs of any lengths: of each block of positions, the run at its start; from there on, a search.

    **Attributes:**

    - `starts`: where the runs begin, and after them, 2^steps that no position reaches.
    - `firsts`: the run that the block number p >> shift begins in.
    - `steps`: of the binary search among the runs of one block.
    """

    starts: Table
    firsts: Table
    shift: int
    steps: int

    def place(self, position: Array, tables: Tables) -> tuple[Array, Array]:
        """The number of the run that a position is in, and where it begins."""
        starts = tables[id(self.starts)]
        block = lax.shift_right_logical(position, lax.full_like(position, self.shift))
        run = _taken(tables[id(self.firsts)], block)
        for step in reversed(range(self.steps)):
            later = run + _int(1 << step)
            run = lax.select(_taken(starts, later) <= position, later, run)
        return run, _taken(starts, run)


@dataclass(frozen=True)
class Affine:
    """A first value, and a step from each position to the next."""

    first: int
    step: int

    def at(self, position: Array, tables: Tables) -> Array:
        """The values at positions."""
        if self.step == 0:
            return lax.full_like(position, self.first)
        scaled = position if self.step == 1 else position * _int(self.step)
        return scaled if self.first == 0 else scaled + _int(self.first)


@dataclass(frozen=True, eq=False)
class Listed:
    """Any values, in a table."""

    values: Table

    def at(self, position: Array, tables: Tables) -> Array:
        """The values at positions."""
        return _taken(tables[id(self.values)], position)


@dataclass(frozen=True)
class Piecewise:
    """Runs; what they begin with and how they go on are sequences over the runs."""

    search: Even | Growing | Blocks
    bases: Described
    strides: Described

    def at(self, position: Array, tables: Tables) -> Array:
        """The values at positions."""
        run, start = self.search.place(position, tables)
        base = self.bases.at(run, tables)
        if self.strides == Affine(0, 0):
            return base
        inside = position - start
        if self.strides != Affine(1, 0):
            inside = inside * self.strides.at(run, tables)
        return base + inside


Described = Affine | Listed | Piecewise


def tables_of(sequence: Described) -> Iterator[Table]:
    """The tables that an expression takes entries of, each once."""
    found: dict[int, Table] = {}
    stack: list[Described] = [sequence]
    while stack:
        part = stack.pop()
        if isinstance(part, Listed):
            found[id(part.values)] = part.values
        elif isinstance(part, Piecewise):
            stack += [part.bases, part.strides]
            if isinstance(part.search, Blocks):
                for table in (part.search.starts, part.search.firsts):
                    found[id(table)] = table
    return iter(found.values())


def described(differences: Differences) -> Described | None:
    """The sequence as an expression of the position; None if it takes too many runs or too large numbers."""
    if not -LAST - 1 <= differences.low <= differences.high <= LAST or differences.count > LAST:
        return None
    _, steps = differences.stretches()
    if len(steps) <= 1:
        return Affine(differences.first, int(steps[0]) if len(steps) else 0)
    runs = runs_of(differences)
    if runs is None or len(runs.starts) == 1:
        return None
    return Piecewise(
        _search(runs, differences.count), *(_over_runs(values) for values in (runs.bases, runs.strides))
    )


def _over_runs(values: Integers) -> Described:
    """What is computed by arithmetic alone, or a table."""
    differences = Differences()
    differences.add(values)
    found = described(differences)
    if found is not None and not any(True for _ in tables_of(found)):
        return found
    return Listed(values.astype(np.int32))


def _search(runs: Runs, count: int) -> Even | Growing | Blocks:
    starts = runs.starts
    full = np.diff(starts)  # the lengths of all runs but the last
    last = count - int(starts[-1])
    if (full == full[0]).all() and last <= full[0]:
        return Even(int(full[0]))
    if len(full) > 1:
        growing = Growing(int(full[0]), int(full[1] - full[0]), len(starts))
        due = growing.start(len(starts)) - int(starts[-1])
        if growing.growth and (np.diff(full) == growing.growth).all() and last <= due and growing.is_exact():
            return growing
    return _blocks(starts, count)


def _blocks(starts: Integers, count: int) -> Blocks:
    shift = max(count // (ENTRIES * len(starts)), 1).bit_length() - 1
    begins = np.arange(0, count, 1 << shift)
    ends = np.minimum(begins + (1 << shift), count) - 1
    firsts, lasts = (np.searchsorted(starts, places, side="right") - 1 for places in (begins, ends))
    steps = int((lasts - firsts).max()).bit_length()
    beyond = np.full(1 << steps, LAST, np.int64)
    return Blocks(np.concatenate([starts, beyond]).astype(np.int32), firsts.astype(np.int32), shift, steps)


def function_of(sequence: Described, shape: Sequence[int], dtype: Any) -> Any:
    """A function of the sequence's tables, to the sequence as an array of that shape, in row-major order."""
    ids = [id(table) for table in tables_of(sequence)]

    def computed(*tables: Array) -> Array:
        position = lax.full(tuple(shape), _int(0))
        stride = 1
        for dimension in reversed(range(len(shape))):
            along = lax.broadcasted_iota(np.int32, tuple(shape), dimension)
            position = position + (along if stride == 1 else along * _int(stride))
            stride *= shape[dimension]
        value = sequence.at(position, dict(zip(ids, tables, strict=True)))
        return lax.convert_element_type(value, dtype)

    return computed
