"""Counts of a sequence that never falls, in order: how often 0 is in it, how often 1, and so on.

`jnp.nonzero` finds the places of the true entries of a mask so: a running sum of the mask numbers them, and
how often each number occurs says how far it is to the next one. The sequence is as long as the mask. It is
read piece by piece, and its counts are remembered as runs: the second time, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from eqsat.frontend.runs import Differences, Integers
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.dtypes import numpy_dtype
from eqsat.ir.ops import Const, Map, Opaque
from eqsat.ir.term import Term


class Pieces(Protocol):
    """Something whose entries are read in order."""

    def until(self, stop: int) -> Integers:
        """The entries from the last one read on, up to number `stop`."""


class RunningCounts:
    """How often each number occurs in pieces of a sequence that never falls.

    **Arguments:**

    - `pieces`: numbers of at least 0; those that are no longer of interest are left out.
    - `size`: how many numbers there are.
    """

    def __init__(self, pieces: Iterator[Integers], size: int) -> None:
        self._pieces = pieces
        self._size = size
        self._start = 0
        self._pending = np.zeros(0, np.int64)
        self._differences: Differences | None = Differences()

    def until(self, stop: int) -> Integers:
        counts = np.zeros(stop - self._start, np.int64)
        pending: Integers | None = self._pending
        while pending is not None:
            cut = int(np.searchsorted(pending, stop))
            if cut:
                low = int(pending[0]) - self._start
                found = np.bincount(pending[:cut] - pending[0])
                counts[low : low + len(found)] += found
            self._pending = pending[cut:]
            pending = next(self._pieces, None) if cut == len(pending) else None
        self._start = stop
        if self._differences is not None and not self._differences.add(counts):
            self._differences = None
        return counts

    @property
    def found(self) -> Differences | None:
        """The counts as runs, once all have been read; None if they take too many."""
        return self._differences if self._start == self._size else None


class Remembered:
    """A sequence that is known by the differences between its entries."""

    def __init__(self, differences: Differences) -> None:
        self._starts, self._steps = differences.stretches()
        self._place, self._next = 0, differences.first

    def until(self, stop: int) -> Integers:
        place = self._place
        first = int(np.searchsorted(self._starts, place, side="right")) - 1
        last = int(np.searchsorted(self._starts, stop))
        begins = np.maximum(self._starts[max(first, 0) : last], place)
        steps = np.repeat(self._steps[max(first, 0) : last], np.diff(np.append(begins, stop)))
        values = self._next + np.cumsum(steps)
        found = np.concatenate([[self._next], values[:-1]]) if stop > place else values
        self._place, self._next = stop, int(values[-1]) if len(values) else self._next
        return found


def never_falls(term: Term, order: Sequence[Axis]) -> bool:
    """Whether the entries of a term, in row-major order of its axes in the given order, never get smaller.

    It is a running sum of truth values along all of them, or what becomes of one as an index. Indexing adds
    the length to negative indices, of which there are none: `select_n(i < 0, i, i + n)`.
    """
    op, args = term.op, term.args
    match op:
        case Opaque(call=call) if call.primitive.name == "cumsum":
            (summed,), (layout,) = args, call.arg_layouts
            along = len(layout) == 1 and layout_axes(layout) == tuple(order) and not call.params["reverse"]
            of_truths = isinstance(summed.op, Map) and summed.op.name == "convert"
            return (
                along and of_truths and summed.args[0].dtype == "bool" and _holds(term.dtype, term.elements)
            )
        case Map(name="convert", dtype=dtype):
            return never_falls(args[0], order) and _holds(dtype, term.elements)
        case Map(name="max" | "min"):
            bounds = [arg for arg in args if isinstance(arg.op, Const)]
            others = [arg for arg in args if not isinstance(arg.op, Const)]
            return len(bounds) == 1 and _value(bounds[0]) >= 0 and never_falls(others[0], order)
        case Map(name="select_n") if len(args) == 3:
            test, kept, _ = args
            if not isinstance(test.op, Map) or test.op.name != "lt" or test.args[0] is not kept:
                return False
            bound = test.args[1]
            return isinstance(bound.op, Const) and _value(bound) <= 0 and never_falls(kept, order)
        case _:
            return False


def _holds(dtype: str, count: int) -> bool:
    """Whether a dtype is one of integers that has this number: sums up to it do not wrap."""
    kind = numpy_dtype(dtype)
    return kind.kind in "iu" and count <= np.iinfo(kind).max


def _value(term: Term) -> float:
    assert isinstance(term.op, Const)
    return float(term.op.text)
