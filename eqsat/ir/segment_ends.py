"""What a program computes of a scan's history segment by segment: reductions, and small functions.

A segment has several iterations. So whatever is computed for each entry of the history can be computed for
those of a segment at once: products, calls, and reductions over other axes. If the dimension of the
iterations is several axes (`h.reshape(n, l, ...)`), the first one is that of the segments, and what is
computed along the others is computed in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis, parts
from eqsat.ir.control import Scan
from eqsat.ir.control_axes import keeps
from eqsat.ir.dtypes import is_extended, is_inexact
from eqsat.ir.history_ends import SMALLER, End, History, histories
from eqsat.ir.history_functions import ROUNDED, goes_inside
from eqsat.ir.history_parts import (
    is_of_scan,
    parts_read,
    row_of_iteration,
    some_iterations,
    where_read,
)
from eqsat.ir.ops import Const, Dot, Opaque, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.reduction_monoids import MERGES, identity_text
from eqsat.ir.sliced_calls import SlicedTerms, has_slices
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term

SMALL = 64
"""A function of a history is kept, and what reads it is computed of it, if it is smaller by this factor."""


def iterations_of(stack: Term) -> tuple[Axis, ...]:
    """The axes that make up the dimension of iterations of a stacked result, slowest first."""
    assert isinstance(stack.op, Opaque)
    return parts(stack.op.call.out_layouts[stack.op.result][0])


def segmented_histories(
    program: Program, threshold: float, exact: bool, needed: bool = True
) -> Iterator[Sequence[History]]:
    """Yields the histories of each scan of which all that is read can be computed segment by segment.

    **Arguments:**

    - `threshold`: the size in bytes above which a history is large. Scans without one are left out.
    - `exact`: whether results must stay the same to the last bit.
    - `needed`: whether scans of which each iteration can carry all that is read are left out.
    """
    carried: dict[Term, End] = {}
    for history in histories(program, exact, functions=True):
        carried |= {end.term: end for end in history.ends}
    seen: set[tuple[object, ...]] = set()
    for term in program.reachable():
        if not isinstance(term.op, Opaque) or not isinstance(term.op.call.control, Scan):
            continue
        call = term.op.call
        key = call, tuple(arg.number for arg in term.args)
        if key in seen or term.bytes <= threshold or not is_stacked(term) or term.open:
            continue
        seen.add(key)
        found = (
            _Walk(program, term, threshold, exact, carried).histories() if _has_one_dimension(term) else []
        )
        if found and not (needed and all(end.term in carried for end in found[0].ends)):
            yield found


def is_of_entries(end: End) -> bool:
    """Whether an end is carried in iterations of segments, too: single entries, and where the best one is."""
    return end.takes_rows or isinstance(end.term.op, Opaque | Select)


def is_stacked(result: Term) -> bool:
    """Whether a result of a scan is stacked, and no carry."""
    assert isinstance(result.op, Opaque)
    assert isinstance(result.op.call.control, Scan)
    return result.op.result >= len(result.op.call.control.carried)


def _has_one_dimension(stack: Term) -> bool:
    """Whether the iterations of all arrays are along axes of the same lengths, or along one axis."""
    assert isinstance(stack.op, Opaque)
    call = stack.op.call
    assert isinstance(call.control, Scan)
    layouts = [call.arg_layouts[place] for place in call.control.sliced]
    layouts += call.out_layouts[len(call.control.carried) :]
    lengths = {tuple(axis.size for axis in parts(layout[0])) for layout in layouts}
    return len(lengths - {(call.control.length,)}) <= 1 and not any(map(is_extended, call.out_dtypes))


def is_segmentwise(term: Term, axis: Axis, stack: Term, exact: bool) -> bool:
    """Whether the entries of a term of a segment are computed of those of its operands."""
    if exact:
        return goes_inside(term, axis, stack, exact)
    return has_slices(term, axis) if isinstance(term.op, Opaque) else keeps(term, axis)


def _adds_up(term: Term, axis: Axis, exact: bool) -> bool:
    """Whether a term is a reduction over the iterations that adds up those of segments."""
    match term.op:
        case Reduce(kind=kind, axes=axes, dtype=dtype):
            rounds = kind in ROUNDED and is_inexact(dtype)
            return axis in axes and kind in MERGES and not (rounds and exact)
        case Dot(axes=axes, dtype=dtype):
            return axis in axes and all(arg.dtype == dtype for arg in term.args) and not exact
    return False


class _Walk:
    """All that is read of what a scan stacks.

    **Attributes:**

    - `carried`: what each iteration can carry, or stack, of the histories of all scans.
    - `along`: of what is computed for each entry of the history, the axis of its entries.
    - `sliced`: the axes of slices of the history.
    - `of_scan`: the numbers of the terms that depend on the scan.
    - `kept`: the stacked results that are small, and read as they are.
    """

    def __init__(
        self, program: Program, stack: Term, threshold: float, exact: bool, carried: Mapping[Term, End]
    ) -> None:
        self.program = program
        self.stack = stack
        self.threshold = threshold
        self.exact = exact
        self.carried = carried
        self.along: dict[Term, Axis] = {}
        self.sliced: set[Axis] = set()
        self.of_scan: set[int] = set()
        self.ends: dict[Term, End] = {}
        self.kept: set[Term] = set()

    def histories(self) -> list[History]:
        """The stacked results of the scan with what they end in; none if a large one is needed whole."""
        outputs = {output.term for output in self.program.outputs}
        stacks: list[Term] = []
        for term in self.program.reachable():
            if is_of_scan(term, self.stack):
                self.of_scan.add(term.number)
                if is_stacked(term):
                    stacks.append(term)
                    self.along[term] = iterations_of(term)[0]
            elif not self._reads(term):
                return []
            if term in outputs and term in self.along and not self._keep(term):
                return []
        if not self.ends:
            return []
        ends = list(self.ends.values())
        others = {stack: [(stack, self.along[stack])] if stack in self.kept else [] for stack in stacks}
        return [History(stack, self.along[stack], ends, others[stack], False) for stack in stacks]

    def _reads(self, term: Term) -> bool:
        """Notes what a term is of the history; False if it needs all of it."""
        if not any(arg.number in self.of_scan for arg in term.args):
            return True
        self.of_scan.add(term.number)
        inside = [arg for arg in term.args if arg in self.along]
        if not inside:
            return True
        if term in self.carried and is_of_entries(self.carried[term]):
            self.ends[term] = self.carried[term]
            return True
        along = self.along[inside[0]]
        part = some_iterations(term, self.stack)
        if part is not None:
            self.along[term] = part[0]
            self.sliced.add(part[0])
            return True
        if isinstance(term.op, Rename) and term.op.old == along and along not in self.sliced:
            self.along[term] = term.op.new
            return True
        if all(self.along[arg] == along for arg in inside):
            if _adds_up(term, along, self.exact):
                end = self._end(term, along)
                if end is not None:
                    self.ends[term] = end
                    return True
            elif is_segmentwise(term, along, self.stack, self.exact):
                if not self._is_small(term, along, SMALL) or not self._stack(term, along):
                    self.along[term] = along
                return True
        return all(map(self._keep, inside))

    def _keep(self, term: Term) -> bool:
        """Keeps a result that is small, or a small function of the history; False if neither is possible."""
        if is_of_scan(term, self.stack):
            self.kept.add(term)
            return term.bytes <= self.threshold
        along = self.along[term]
        return term in self.ends or (self._is_small(term, along, SMALLER) and self._stack(term, along))

    def _is_small(self, term: Term, along: Axis, factor: int) -> bool:
        """Whether the entries of a function of the history are smaller than its own by a factor."""
        every = math.prod(axis.size for axis in iterations_of(self.stack))
        read = along.size if along in self.sliced else every
        return factor * term.bytes * every <= self.stack.bytes * read

    def _stack(self, term: Term, along: Axis) -> bool:
        """Stacks a function of the history in its place; False if it is not of slices that can be."""
        end = self._end(term, along, stacked=True)
        if end is not None:
            self.ends[term] = end
        return end is not None

    def _end(self, term: Term, along: Axis, stacked: bool = False) -> End | None:
        """A reduction over the iterations, or a function that is stacked in place of the history."""
        if along not in self.sliced:
            return End(term, along, stacked=stacked)
        read = [term] if stacked else term.args
        # Beside zeros for other iterations, an infinite factor of all of them would be NaN.
        if any(along not in one.axes for one in read):
            return None
        found = parts_read(read, along, self.stack, self.exact, is_segmentwise)
        return None if found is None else End(term, along, found, stacked=stacked)


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """An end, in terms along all iterations.

    **Attributes:**

    - `axis`: that of the iterations, or of segments of them.
    - `read`: what is reduced, or stacked.
    """

    end: End
    axis: Axis
    read: Sequence[Term]


def over_iterations(
    slices: SlicedTerms, end: End, entries: Callable[[Term, int], Term], results: Sequence[Term]
) -> SegmentEnd:
    """An end in terms along all iterations: where it was not reduced, of what changes nothing.

    **Arguments:**

    - `slices`: makes the terms along all iterations of those along a slice.
    - `entries`: what stands for a stacked result, or for its entries some iterations before.
    - `results`: the results of the scan.
    """
    terms = slices.terms
    read = [end.term] if end.stacked else end.term.args
    known = {term.number: entries(term, 0) for term in results}
    if end.parts is None:
        return SegmentEnd(end, end.axis, substituted(terms, read, known))
    # The results that it reads slices of may have axes of their own for the iterations.
    axis = iterations_of(next(iter(end.parts.slices.values()))[0])[0]
    for number, (stack, lag) in end.parts.slices.items():
        value, (own,) = entries(stack, lag), iterations_of(stack)
        known[number] = value if own == axis else terms.make(Rename(own, axis), [value])
    known |= {number: row_of_iteration(terms, end.parts, axis, row) for number, row in end.parts.rows.items()}
    whole = slices.moved(read, known, end.parts.axis, axis)
    if end.stacked:
        return SegmentEnd(end, axis, whole)
    kind = getattr(end.term.op, "kind", "sum")
    nothing = [terms.make(Const(identity_text(kind, term.dtype), term.dtype)) for term in whole]
    masked = [where_read(terms, end.parts, axis, *pair) for pair in zip(whole, nothing, strict=True)]
    return SegmentEnd(end, axis, masked)
