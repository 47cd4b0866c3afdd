"""What integer programs without inputs compute, piece by piece.

The indices of all pairs i < j of n points are found among the entries of an n x n array. Arrays of that size
are not made here: whatever is elementwise, and a cumulative sum, is computed for some rows at a time. Only
what other operations need whole, or count into, is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from eqsat.frontend.running_counts import Pieces, Remembered, RunningCounts, never_falls
from eqsat.frontend.runs import Differences
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.interpret import Interpreter
from eqsat.ir.jax_calls import called
from eqsat.ir.numpy_arrays import Array, aligned, laid_out
from eqsat.ir.numpy_functions import OWN, apply
from eqsat.ir.ops import Call, Const, Iota, Map, Opaque
from eqsat.ir.term import Term, reachable

PIECE = 1 << 17
"""Entries. A few arrays of them lie in a core's cache, and what Python does for each piece takes no time."""

MOST_KEPT = 1 << 26
"""Bytes of arrays that are kept at a time."""

MOST_WORK = 3_000_000_000
"""Entries of all arrays of an evaluation, whether they are kept or not. They take about five seconds."""

LONG = 1 << 23
"""Counts. So many are not kept, if the numbers that are counted come in order."""

DENSE = 4
"""Indices that lie closer than this to one another, on average, are counted in a table of all between."""


class TooLarge(Exception):
    """Something takes too much memory or time to be evaluated while a program is planned."""


def _size(term: Term) -> int:
    return math.prod(axis.size for axis in term.axes)


class Evaluation:
    """The values of terms of integers and truth values that have no inputs but given arrays.

    A value has a dimension for each of its term's axes, in the order of the axes' ids, as in the interpreter.
    """

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._kept = self._work = 0
        self._interpreter = Interpreter([], {}, OWN)
        self._counted_before: dict[int, Differences] = {}

    def holds(self, leaf: Term, value: Array) -> None:
        """Says what a given array is. It is somebody else's, and does not count as kept."""
        self._values[leaf.number] = value

    def pieces(self, term: Term, order: Sequence[Axis]) -> Iterator[Array]:
        """The entries of a term, in row-major order of its axes in the given order.

        **Raises:** `TooLarge` if it takes too much.
        """
        for (piece,) in self._together([term], order):
            yield piece.reshape(-1)

    def _together(self, roots: Sequence[Term], order: Sequence[Axis]) -> Iterator[list[Array]]:
        """The entries of several terms, whose axes are among the given ones, each broadcast over all."""
        steps: dict[int, Term] = {}
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            term, leaving = stack.pop()
            if term.number in steps or term.number in self._values:
                continue
            if leaving:
                steps[term.number] = term
            elif self._goes_along(term, order):
                stack.append((term, True))
                stack.extend((arg, False) for arg in _read_with(term))
            else:
                self.whole(term)
        self._add_work(sum(map(_size, steps.values())))
        sums: dict[int, Any] = {}
        for ranges in _ranges(order):
            lengths = {axis: where.stop - where.start for axis, where in ranges.items()}
            values: dict[int, Array] = {}

            def value(term: Term, ranges: Mapping[Axis, slice] = ranges, known: Any = values) -> Array:
                if term.number in known:
                    return np.asarray(known[term.number])
                cut = tuple(ranges.get(axis, slice(None)) for axis in sorted(term.axes))
                return np.asarray(self._values[term.number][cut])

            for term in steps.values():
                args = list(map(value, _read_with(term)))
                values[term.number] = self._piece(term, order, args, ranges, sums)
            layout = tuple(order)
            yield [laid_out(value(root), sorted(root.axes), layout, lengths) for root in roots]

    def _goes_along(self, term: Term, order: Sequence[Axis]) -> bool:
        """Whether a term is computed with the pieces of others: not if it is small, or needed whole."""
        op = term.op
        if not term.axes.issubset(order):
            return False
        match op:
            case Iota():
                return True
            case Opaque(call=call) if call.primitive.name == "cumsum":
                return _is_running_sum(call) and list(layout_axes(call.arg_layouts[0])) == list(order)
            case Opaque(call=call) if _counts(call) and _size(term) >= LONG:
                return list(layout_axes(call.out_layouts[0])) == list(order) and _counts_in_order(term, call)
            case _ if _size(term) <= PIECE:
                return False
            case Map():
                return True
            case Opaque(call=call) if call.primitive.name == "gather":
                mentioned = (axis for layout in call.arg_layouts for axis in layout_axes(layout))
                return call.passing.issuperset(frozenset(mentioned).intersection(order))
            case _:
                return False

    def _piece(
        self,
        term: Term,
        order: Sequence[Axis],
        args: Sequence[Array],
        ranges: Mapping[Axis, slice],
        sums: dict[int, Any],
    ) -> Array:
        op = term.op
        match op:
            case Iota(axis=axis, dtype=dtype):
                return np.arange(ranges[axis].start, ranges[axis].stop).astype(dtype)
            case Map(name=name, dtype=dtype, params=params):
                axes = sorted(term.axes)
                operands = [
                    aligned(value, sorted(arg.axes), axes) for value, arg in zip(args, term.args, strict=True)
                ]
                return apply(name, dtype, operands, dict(params), OWN)
            case Opaque(call=call) if call.primitive.name == "cumsum":
                lengths = {axis: where.stop - where.start for axis, where in ranges.items()}
                flat = laid_out(args[0], sorted(term.args[0].axes), tuple(order), lengths)
                total = np.cumsum(flat.reshape(-1), dtype=flat.dtype)
                with np.errstate(over="ignore"):
                    total += sums.get(term.number, flat.dtype.type(0))
                sums[term.number] = total[-1]
                moved = total.reshape(flat.shape)
                return moved.transpose([list(order).index(axis) for axis in sorted(term.axes)])
            case Opaque(call=call) if _counts(call):
                (stop,) = (where.stop for where in ranges.values())
                if term.number not in sums:
                    sums[term.number] = self._counts_of(term, call)
                counts: Pieces = sums[term.number]
                entries = counts.until(stop)
                if isinstance(counts, RunningCounts) and counts.found is not None:
                    self._counted_before[term.number] = counts.found
                return entries.astype(call.out_dtypes[0])
            case _:
                assert isinstance(op, Opaque)
                cut = frozenset(ranges)
                (found,) = called(
                    op.call, args, term.args, ranges, OWN, self._interpreter.inside, cut, self._short(ranges)
                )
                return np.asarray(found)

    def _counts_of(self, term: Term, call: Call) -> Pieces:
        """The results of a scatter that counts numbers that never fall, piece by piece."""
        if term.number in self._counted_before:
            return Remembered(self._counted_before[term.number])
        (size,) = (axis.size for axis in layout_axes(call.out_layouts[0]))
        _, indices, _ = term.args
        pieces = (
            _bounded(places, size, call)
            for (places,) in self._together([indices], layout_axes(call.arg_layouts[1]))
        )
        return RunningCounts(pieces, size)

    @staticmethod
    def _short(ranges: Mapping[Axis, slice]) -> dict[Axis, int]:
        return {axis: where.stop - where.start for axis, where in ranges.items()}

    def whole(self, term: Term) -> Array:
        """The value of a term.

        **Raises:** `TooLarge` if it takes too much.
        """
        if term.number not in self._values:
            value = self._computed(term)
            self._kept += value.nbytes
            self._values[term.number] = value
            self._check(0)
        return np.asarray(self._values[term.number])

    def _computed(self, term: Term) -> Array:
        op = term.op
        self._check(term.bytes)
        self._add_work(_size(term))
        if isinstance(op, Opaque) and _counts(op.call):
            return self._counted(term, op.call)
        order = next((order for order in _orders(term) if frozenset(order) == term.axes), sorted(term.axes))
        if self._goes_along(term, order):
            whole: Array | None = None
            done = 0
            for piece in self.pieces(term, order):
                whole = np.empty(_size(term), piece.dtype) if whole is None else whole
                whole[done : done + len(piece)] = piece
                done += len(piece)
            assert whole is not None
            shaped = whole.reshape([axis.size for axis in order])
            return shaped.transpose([order.index(axis) for axis in sorted(term.axes)])
        for arg in term.args:
            self.whole(arg)
        if isinstance(op, Opaque):
            self._check(term.bytes + sum(arg.bytes for arg in term.args))
        return np.asarray(self._interpreter.value(term, {}, self._values))  # type: ignore[arg-type]

    def _counted(self, term: Term, call: Call) -> Array:
        """A scatter that adds to single entries of one dimension."""
        table, indices, updates = term.args
        result = np.array(laid_out(self.whole(table), sorted(table.axes), call.arg_layouts[0]))
        (size,) = result.shape
        order = layout_axes(call.arg_layouts[1])
        for places, added in self._together([indices, updates], order):
            flat, values = _bounded(places, size, call), added.reshape(-1)
            if len(flat) < len(values):
                values = values[_inside(places.reshape(-1), size)]
            low, high = (int(flat.min()), int(flat.max())) if len(flat) else (0, size)
            if high - low < DENSE * len(flat) and (values == values[0]).all():
                times = np.bincount(flat - low).astype(result.dtype)
                result[low : low + len(times)] += times * values[0]
            else:
                np.add.at(result, flat, values)
        return result

    def _check(self, more: int) -> None:
        if self._kept + more > MOST_KEPT:
            raise TooLarge

    def _add_work(self, entries: int) -> None:
        self._work += entries
        if self._work > MOST_WORK:
            raise TooLarge


def _is_running_sum(call: Call) -> bool:
    """Whether a cumulative sum is one of the elements in row-major order."""
    return len(call.arg_layouts[0]) == 1 and not call.params["reverse"]


def _counts(call: Call) -> bool:
    """Whether a call adds to single entries of an array of one dimension, which is one axis."""
    if call.primitive.name != "scatter-add":
        return False
    table, indices, updates = call.arg_layouts
    numbers = call.params["dimension_numbers"]
    alone = not numbers.update_window_dims and not numbers.operand_batching_dims
    axes = layout_axes(indices)
    one = len(table) == len(layout_axes(table)) == 1 and indices[-1] is None and axes == layout_axes(updates)
    return alone and one and frozenset(axes).isdisjoint(layout_axes(table))


def _read_with(term: Term) -> Sequence[Term]:
    """The operands of which a piece is needed for the same piece of the term. What is counted has others."""
    return () if isinstance(term.op, Opaque) and _counts(term.op.call) else term.args


def _counts_in_order(term: Term, call: Call) -> bool:
    """Whether a scatter counts, from 0 on, numbers that never fall."""
    table, indices, updates = term.args
    if not isinstance(table.op, Const) or not isinstance(updates.op, Const):
        return False
    from_zero = (float(table.op.text), float(updates.op.text)) == (0, 1)
    return from_zero and never_falls(indices, layout_axes(call.arg_layouts[1]))


def _inside(places: Array, size: int) -> Array:
    return np.asarray((places >= 0) & (places < size))


def _bounded(places: Array, size: int, call: Call) -> Array:
    """The places that a scatter counts at: without those out of bounds, or the nearest instead of these."""
    flat = places.reshape(-1).astype(np.int64)
    if call.params["mode"] == GatherScatterMode.CLIP:
        return np.clip(flat, 0, size - 1)
    return flat[_inside(flat, size)]


def _orders(term: Term) -> Iterator[list[Axis]]:
    """The orders of axes in which cumulative sums below a term go."""
    for below in reachable([term]):
        if isinstance(below.op, Opaque) and below.op.call.primitive.name == "cumsum":
            yield list(layout_axes(below.op.call.arg_layouts[0]))


def _ranges(order: Sequence[Axis]) -> Iterator[dict[Axis, slice]]:
    """Slices of axes that are pieces of all entries, in row-major order: some rows, or parts of one."""
    if not order:
        yield {}
        return
    first, *rest = order
    row = math.prod(axis.size for axis in rest)
    if row <= PIECE:
        step = max(PIECE // max(row, 1), 1)
        whole = {axis: slice(0, axis.size) for axis in rest}
        for start in range(0, first.size, step):
            yield {first: slice(start, min(start + step, first.size)), **whole}
        return
    for index in range(first.size):
        for inner in _ranges(rest):
            yield {first: slice(index, index + 1), **inner}
