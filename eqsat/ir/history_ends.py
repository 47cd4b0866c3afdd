"""What stacked results of scans end in: reductions over the iterations, single entries, and small functions.

A function is small if its entries are, such as the energy of each state of a simulation,

    e_t = sum_i f(scan(...)[1][t, i])

and is stacked in place of the states (`carried_histories`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from eqsat.ir.axis import Axis
from eqsat.ir.comparing import compared
from eqsat.ir.control import Scan
from eqsat.ir.dtypes import is_extended
from eqsat.ir.history_functions import adds_up, goes_inside
from eqsat.ir.history_parts import Parts, is_of_scan, parts_read, row_taken, some_iterations
from eqsat.ir.looked_up_rows import LookUp, look_up
from eqsat.ir.ops import Dot, Map, Opaque, Rename
from eqsat.ir.program import Program
from eqsat.ir.scalar_expansion import LARGE
from eqsat.ir.term import Term, Terms, reachable

SMALLER = 8
"""A function of a history is stacked in its place if its entries are smaller by this factor: a choice."""

MOST_ENTRIES = 8
"""At most so many single entries of a history are carried, each of which an iteration reads and writes."""


@dataclass(frozen=True, slots=True)
class End:
    """A reduction over the iterations, or over some of them; an entry, or a few; or a function of each entry.

    **Attributes:**

    - `axis`: that of the iterations in what it is of.
    - `parts`: the slices of the stacked result that are read, if it is not all of it.
    - `rows`: the iterations of which it is the entries, or the entry if it lacks the axis.
    - `looked_up`: the rows that indices give, if it is these.
    - `source`: what these are entries of: the stacked result, or a function of it.
    - `stacked`: whether it has an entry for each iteration.
    """

    term: Term
    axis: Axis
    parts: Parts | None = None
    rows: range | None = None
    looked_up: LookUp | None = None
    source: Term | None = None
    stacked: bool = False

    @property
    def takes_rows(self) -> bool:
        """Whether it is an entry, or a few."""
        return self.rows is not None or self.looked_up is not None


@dataclass(frozen=True, slots=True)
class History:
    """A stacked result, with what is read of it.

    **Attributes:**

    - `axis`: that of the iterations.
    - `ends`: reductions over the iterations, single entries, and functions that are stacked in its place.
    - `others`: what else reads it, or a function of it, and the axis that has the iterations there.
    - `given`: whether the program gives it, or a function of it.
    """

    stack: Term
    axis: Axis
    ends: Sequence[End]
    others: Sequence[tuple[Term, Axis]]
    given: bool

    @property
    def is_whole(self) -> bool:
        """Whether anything needs more of it than the ends."""
        return self.given or bool(self.others)

    def is_read_back(self) -> bool:
        """Whether all else that reads it are iterations of scans in the other direction: backward passes."""
        back = (reads_slices(reader, along) and not self.is_beside(reader) for reader, along in self.others)
        return not self.given and all(back)

    def is_read_on(self) -> bool:
        """Whether all else that reads it are iterations of scans in the same direction."""
        beside = (reads_slices(reader, along) and self.is_beside(reader) for reader, along in self.others)
        return not self.given and all(beside)

    def is_beside(self, reader: Term) -> bool:
        """Whether another scan could run beside this one: with as many iterations, in the same direction."""
        one, other = scan_of(self.stack), scan_of(reader)
        return (one.reverse, one.length) == (other.reverse, other.length)


def reads_slices(reader: Term, along: Axis) -> bool:
    """Whether a term is a result of a scan that reads slices along an axis alone."""
    if not isinstance(reader.op, Opaque) or not isinstance(reader.op.call.control, Scan):
        return False
    sliced, layouts = reader.op.call.control.sliced, reader.op.call.arg_layouts
    read = [place for place, arg in enumerate(reader.args) if along in arg.axes]
    return bool(read) and all(place in sliced and layouts[place][0] == along for place in read)


def scan_of(result: Term) -> Scan:
    """The control of the scan that a term is a result of."""
    assert isinstance(result.op, Opaque)
    assert isinstance(result.op.call.control, Scan)
    return result.op.call.control


def place_of(row: int, stack: Term) -> int:
    """How many iterations of a scan come before the one that makes a row of what it stacks."""
    control = scan_of(stack)
    return control.length - 1 - row if control.reverse else row


def is_last(end: End, stack: Term) -> bool:
    """Whether an end is the entry of the last iteration."""
    rows = end.rows
    return rows is not None and len(rows) == 1 and place_of(rows[0], stack) == scan_of(stack).length - 1


def iterations_axis(stack: Term) -> Axis | None:
    """The axis of the iterations in a stacked result."""
    assert isinstance(stack.op, Opaque)
    axis = stack.op.call.out_layouts[stack.op.result][0]
    return axis if isinstance(axis, Axis) else None


def histories(
    program: Program, exact: bool = False, wide: bool = False, functions: bool = False
) -> Iterator[History]:
    """Yields the stacked results of scans.

    **Arguments:**

    - `exact`: whether results must stay the same to the last bit.
    - `wide`: whether products may be larger than what an iteration adds to the history.
    - `functions`: whether small functions of a large result, and a few of its entries, are ends, too.
    """
    terms = list(program.reachable())
    readers: dict[int, list[Term]] = {}
    for term in terms:
        for arg in dict.fromkeys(term.args):
            readers.setdefault(arg.number, []).append(term)
    outputs = {output.term.number for output in program.outputs}
    once: frozenset[int] | None = None
    largest = max((term.bytes for term in terms), default=0)
    for term in terms:
        if not isinstance(term.op, Opaque) or is_extended(term.dtype):
            continue
        control = term.op.call.control
        if isinstance(control, Scan) and control.length and term.op.result >= len(control.carried):
            axis = iterations_axis(term)
            if axis is None:
                continue
            large = functions and LARGE * term.bytes >= largest
            if large and once is None:
                once = compared(program).once
            known = once if large else None
            yield _Ends(program.terms, readers, outputs, exact, wide, known).of(term, axis)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What is made of stacked results in the end.

    **Attributes:**

    - `readers`: by number of a term, the terms that read it.
    - `outputs`: the numbers of what the program gives.
    - `once`: the numbers of what may be computed in one place only; None if functions are no ends.
    """

    terms: Terms
    readers: Mapping[int, Sequence[Term]]
    outputs: set[int]
    exact: bool
    wide: bool
    once: frozenset[int] | None

    def of(self, stack: Term, axis: Axis) -> History:
        """What all that is made of a stacked result ends in."""
        found: dict[int, End] = {}
        read: dict[Term, list[Term]] = {}
        walked = {stack: axis}
        every = {axis}
        waiting = [stack]
        seen = {stack.number}
        while waiting:
            term = waiting.pop()
            along = walked[term]
            if term.number in self.outputs:
                read.setdefault(term, [])
            for reader in self.readers.get(term.number, ()):
                if reader.number in seen:
                    continue
                seen.add(reader.number)
                part = some_iterations(reader, stack)
                end = self._entry(reader, term, along, stack) or self._look_up(
                    reader, term, along, stack, every
                )
                end = end or self._reduction(reader, along, stack, every)
                if end is not None:
                    found[reader.number] = end
                elif part is not None:
                    walked[reader] = part[0]
                elif isinstance(reader.op, Rename) and reader.op.old == along:
                    walked[reader] = reader.op.new
                    if along in every:
                        every.add(reader.op.new)
                elif self._goes_inside(reader, along, stack):
                    walked[reader] = along
                else:
                    read.setdefault(term, []).append(reader)
                if reader in walked:
                    waiting.append(reader)
        if self.once is None or not self.once.isdisjoint(term.number for term in walked):
            for end in [end for end in found.values() if end.takes_rows and not is_last(end, stack)]:
                assert end.source is not None
                read.setdefault(end.source, []).append(found.pop(end.term.number).term)
        for term in list(read):
            end = self._function(term, walked, every, stack)
            ends = [end] if end is not None else self._entries(term, walked, every, stack)
            if ends:
                found |= {end.term.number: end for end in ends}
                del read[term]
        if self.wide:
            # What else reads a large function of them can compute it of these.
            for function in self._inside(read, walked, every, stack):
                found.setdefault(function.term.number, function)
        others = [(reader, walked[term]) for term, readers in read.items() for reader in readers]
        given = any(term.number in self.outputs for term in read)
        return History(stack, axis, list(found.values()), others, given)

    def _adds_up(self, reader: Term, along: Axis, stack: Term) -> bool:
        return adds_up(reader, along, stack, self.exact, self.wide)

    def _parts(self, read: Sequence[Term], along: Axis, stack: Term) -> Parts | None:
        """The slices of stacked results that terms read."""
        return parts_read(read, along, stack, self.exact, partial(goes_inside, wide=self.wide))

    def _goes_inside(self, reader: Term, along: Axis, stack: Term) -> bool:
        inside = goes_inside(reader, along, stack, self.exact, self.wide)
        return inside and not self._adds_up(reader, along, stack)

    def _reduction(self, reader: Term, along: Axis, stack: Term, every: Set[Axis]) -> End | None:
        """A reduction over the iterations, or over those of a slice.

        **Arguments:**

        - `every`: the axes that have all iterations.
        """
        if not self._adds_up(reader, along, stack):
            return None
        if isinstance(reader.op, Opaque) and any(is_of_scan(at, stack) for at in reachable(reader.args[:1])):
            # It accumulates into what only the end of the scan gives.
            return None
        if along in every:
            return End(reader, along)
        # Over all iterations, other operands of slices would be other entries.
        parts = self._parts(summands(self.terms, reader, along), along, stack)
        return None if parts is None else End(reader, along, parts)

    def _entry(self, reader: Term, source: Term, along: Axis, stack: Term) -> End | None:
        """A single entry of the stacked result, of a slice of it, or of a function of it."""
        row = row_taken(reader, along)
        if row is None:
            return None
        part = some_iterations(source, stack)
        if part is not None and part[2] is stack:
            row, source = part[1][row], stack
        elif along != iterations_axis(stack):
            return None
        end = End(reader, along, rows=range(row, row + 1), source=source)
        few = self.once is not None and scan_of(stack).length >= MOST_ENTRIES
        return end if few or (source is stack and is_last(end, stack)) else None

    def _look_up(self, reader: Term, source: Term, along: Axis, stack: Term, every: Set[Axis]) -> End | None:
        """Rows that are looked up in the stacked result, or in a function of it."""
        found = look_up(reader, along) if self.once is not None and along in every else None
        if found is None or reader.args[0] is not source or not self._are_few(found.count, along, reader):
            return None
        given = [arg for arg in reader.args if arg is not source]
        if any(is_of_scan(at, stack) for at in reachable(given)):
            return None
        return End(reader, along, looked_up=found, source=source)

    def _inside(
        self, read: Iterable[Term], walked: Mapping[Term, Axis], every: Set[Axis], stack: Term
    ) -> Iterator[End]:
        """The largest functions that are small and from which others, which are read, are computed."""
        waiting, seen = list(read), set(read)
        while waiting:
            for arg in waiting.pop().args:
                if arg in walked and arg not in seen:
                    seen.add(arg)
                    end = self._function(arg, walked, every, stack)
                    if end is not None and end.stacked:
                        yield end
                    else:
                        waiting.append(arg)

    def _entries(self, term: Term, walked: Mapping[Term, Axis], every: Set[Axis], stack: Term) -> list[End]:
        """A few entries of a stacked result that a term is computed from; none if it needs others, too."""
        found: list[End] = []
        waiting, seen = [term], {term}
        while waiting:
            at = waiting.pop()
            part = some_iterations(at, stack)
            end = None if part is None else self._function(at, walked, every, stack, reader=term)
            if end is not None:
                found.append(end)
                continue
            inner = [arg for arg in at.args if arg in walked]
            if is_of_scan(at, stack) or not inner:
                return []
            waiting += [arg for arg in inner if arg not in seen]
            seen.update(inner)
        return found

    def _are_few(self, count: int, axis: Axis, reader: Term) -> bool:
        """Whether so many entries are carried: at most half of them, which the program has to give anyway.

        Of others, there are fewer: what reads them may be computed in the iterations, too.
        """
        most = axis.size if reader.number in self.outputs else max(MOST_ENTRIES, axis.size // SMALLER)
        return count <= min(most, axis.size // 2)

    def _function(
        self,
        term: Term,
        walked: Mapping[Term, Axis],
        every: Set[Axis],
        stack: Term,
        reader: Term | None = None,
    ) -> End | None:
        """A few entries of a stacked result, or a function that is stacked in its place.

        **Arguments:**

        - `reader`: what reads the entries in the end, if that is not the term.
        """
        if self.once is None or term is stack or not self.once.isdisjoint(one.number for one in walked):
            return None
        axis, along, part = walked[stack], walked[term], some_iterations(term, stack)
        if part is not None:
            few = part[2] is stack and self._are_few(len(part[1]), axis, reader or term)
            return End(term, along, rows=part[1], source=stack) if few else None
        if SMALLER * term.bytes * axis.size > stack.bytes * along.size:
            return None
        if along in every:
            return End(term, along, stacked=True)
        parts = self._parts([term], along, stack)
        return None if parts is None else End(term, along, parts, stacked=True)


def summands(terms: Terms, end: Term, axis: Axis) -> Sequence[Term]:
    """What a reduction over the iterations reduces: of a call that accumulates, its other operands."""
    if isinstance(end.op, Opaque):
        return end.args[1:]
    if not isinstance(end.op, Dot):
        return end.args
    others = end.op.axes - {axis}
    op = replace(end.op, axes=others) if others else Map("mul", end.op.dtype)
    return [terms.make(op, end.args)]
