"""Segments of a scan with what is computed of its history: each keeps the entries of its own iterations.

    C = sum_t h_t h_t',  h = scan(...)[1]        one product of tall matrices, if h fits

    C = sum_s H_s' H_s,  where each segment s of iterations runs the scan, and H_s is what it stacks

Products of single entries take a pass over C for each iteration, and calls such as Fourier transforms of
windows need several iterations at once. If the dimension of the iterations was split
(`h.reshape(n, l, ...)`), its first part is that of the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis, Dimension, as_dimension, parts
from eqsat.ir.carrying_scans import Carry, Function
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.dtypes import accumulator
from eqsat.ir.earlier_entries import with_earlier_entries
from eqsat.ir.history_carries import reduction_carries
from eqsat.ir.history_ends import History
from eqsat.ir.history_functions import ROUNDED
from eqsat.ir.history_parts import is_of_scan
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Dot, Leaf, Map, Opaque, Operation, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.reduction_monoids import MERGES
from eqsat.ir.segment_ends import SegmentEnd, iterations_of, over_iterations
from eqsat.ir.sliced_calls import SlicedTerms
from eqsat.ir.term import Term, Terms, reachable
from eqsat.planning.rematerialised_values import layout_of
from eqsat.planning.rerun_scans import Rerun, scan_of
from eqsat.planning.segments import Iterations, Rest, Segment, Segments, joined

LONGEST = 1024
"""Iterations of a segment at most: products of more rows take no less time for each. A choice."""

SHARE = 8
"""What a segment stacks takes at most this part of the memory: what is computed of it takes more."""


@dataclass(frozen=True, slots=True)
class Histories:
    """Makes segments of scans, with what is computed of their histories.

    **Attributes:**

    - `threshold`: the size in bytes above which a value is large.
    - `room`: bytes for temporaries.
    - `exact`: whether results must stay the same to the last bit.
    - `once`: the numbers of terms that must be computed only once.
    - `number`: returns a call that was made of another one with a number of its own.
    - `leaf`: returns the number of a new input of a body.
    """

    terms: Terms
    threshold: float
    room: float
    exact: bool
    once: frozenset[int]
    number: Callable[[Call, Call], Call]
    leaf: Callable[[], int]

    def in_segments(self, program: Program, histories: Sequence[History]) -> dict[int, Term] | None:
        """What is read of a scan, by number, as results of a scan over segments; None if there is none.

        **Arguments:**

        - `histories`: those of one scan of a program.
        """
        stacks = [history.stack for history in histories]
        ends = {end.term: end for end in histories[0].ends}
        assert not any(end.takes_rows for end in ends.values())
        lags: dict[Term, set[int]] = {stack: set() for stack in stacks}
        for end in ends.values():
            for stack, lag in end.parts.slices.values() if end.parts is not None else ():
                lags[stack].add(lag)
        entries = with_earlier_entries(self.terms, lags, self.number, self.leaf)
        if entries is None:
            return None
        slices = SlicedTerms(self.terms, self.number)
        results = [term for term in program.reachable() if is_of_scan(term, stacks[0])]
        read = [over_iterations(slices, end, entries, results) for end in ends.values()]
        made = _Scan(self, [entries(result, 0) for result in results], read)
        segments = made.segments()
        if segments is None:
            return None
        found = made.over(segments)
        known = {result.number: value for result, value in zip(results, found, strict=False)}
        return known | {end.number: value for end, value in zip(ends, found[len(results) :], strict=True)}


@dataclass
class _Around:
    """What segments need to know of the program: no scan is run again for them.

    **Attributes:**

    - `of_scan`: the numbers of the terms that are computed from what the scan gives.
    """

    made: Histories
    of_scan: frozenset[int]

    @property
    def terms(self) -> Terms:
        return self.made.terms

    @property
    def exact(self) -> bool:
        return self.made.exact

    @property
    def threshold(self) -> float:
        return self.made.threshold

    def numbered(self, made: Call, origin: Call) -> Call:
        return self.made.number(made, origin)

    def next_leaf(self) -> int:
        return self.made.leaf()

    def is_given(self, term: Term) -> bool:
        small = term.bytes <= self.made.threshold or term.number in self.made.once
        return isinstance(term.op, Leaf) or (small and term.number not in self.of_scan)

    def rerun(self, term: Term, along: Axis) -> None:
        return None

    def saved(self, one: Rerun, place: int) -> Term:
        raise NotImplementedError("no scan runs again")

    received = saved


class _Block(Segment):
    """A segment that is an entry along the first of the axes that the dimension of iterations is made of.

    Operands that the scan goes through may still have one axis for all iterations.
    """

    around: _Around

    def axis(self, along: Axis) -> Axis | None:
        return None if along.size == self.segments.outer.size else self.inner

    def _slices(self, call: Call) -> dict[int, Axis]:
        return {place: parts(call.arg_layouts[place][0])[0] for place in scan_of(call).sliced}

    def _own(self, dimension: Dimension) -> Dimension:
        return as_dimension(parts(dimension)[1:]) or self.inner

    def _slice(self, term: Term, along: Axis) -> Term:
        if self.axis(along) is None:
            return self.input(term, (along, *layout_of(term, along)), by_slices=True)
        # A block may be long: then its iterations look up what they read one by one.
        long = term.bytes / self.segments.outer.size > self.around.threshold
        return self._looked_up(term, along) if long else super()._slice(term, along)


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan, with what is computed of what it stacks.

    **Attributes:**

    - `results`: those that are read.
    - `read`: reductions of its histories, and functions that are stacked in their place.
    """

    made: Histories
    results: Sequence[Term]
    read: Sequence[SegmentEnd]

    @property
    def call(self) -> Call:
        assert isinstance(self.results[0].op, Opaque)
        return self.results[0].op.call

    @property
    def stacked(self) -> list[Term]:
        """All that it stacks."""
        first, args = len(scan_of(self.call).carried), self.results[0].args
        numbers = range(first, len(self.call.out_layouts))
        return [self.made.terms.make(Opaque(self.call, number), args) for number in numbers]

    @property
    def blocks(self) -> int | None:
        """How many blocks the iterations of a history are split into, if they are."""
        split = [axes for axes in map(iterations_of, self.stacked) if len(axes) > 1]
        return split[0][0].size if split else None

    def segments(self) -> Segments | None:
        """The segments of its iterations; None if there are too few, or each is large."""
        control = scan_of(self.call)
        if self.blocks is not None:
            return self._segments(self.blocks, control.length // self.blocks)
        entry = sum(term.bytes for term in self.stacked) / control.length
        most = int(min(LONGEST, control.length // 2, self.made.room / SHARE / entry))
        lengths = [length for length in range(2, most + 1) if control.length % length != 1]
        if not lengths:
            return None
        even = [length for length in lengths if not control.length % length and 2 * length > most]
        length = max(even or lengths)
        return self._segments(control.length // length, length)

    def _segments(self, count: int, length: int) -> Segments:
        """So many segments of a length."""
        left = scan_of(self.call).length - count * length
        origin = "history segments", self.call.id, count
        sizes = (count, length, count * length)
        outer, inner, both = (self.made.terms.axis((origin, place), size) for place, size in enumerate(sizes))
        return Segments(outer, inner, both, self.made.terms.axis((origin, 3), left) if left else None)

    def over(self, segments: Segments) -> list[Term]:
        """The results that are read, and all reductions and functions, of a scan over segments."""
        terms, call, args = self.made.terms, self.call, self.results[0].args
        control = scan_of(call)
        of_scan = {result.number for result in self.results} | {term.number for term in self.stacked}
        for term in reachable([term for one in self.read for term in one.read]):
            if any(arg.number in of_scan for arg in term.args):
                of_scan.add(term.number)
        around = _Around(self.made, frozenset(of_scan))
        starts, rest = list(args), list[Term]()

        def run_rest() -> None:
            assert segments.rest is not None
            part = Rest(around, segments, segments.rest)
            inner, inside = part.iterations(call, args, {place: starts[place] for place in control.carried})
            given = [terms.make(Opaque(inner, number), inside) for number in range(len(call.out_layouts))]
            rest.extend(given)
            rest.extend(self._computed(part, given))

        if segments.rest is not None and control.reverse:
            run_rest()
            for number, place in enumerate(control.carried):
                starts[place] = rest[number]
        kind = Segment if self.blocks is None else _Block
        made, operands, merged = self._scan(kind(around, segments), starts)
        found = [terms.make(Opaque(made, number), operands) for number in range(len(made.out_layouts))]
        if segments.rest is not None and not control.reverse:
            for number, place in enumerate(control.carried):
                starts[place] = found[number]
            run_rest()
        return self._all(segments, found, merged, rest)

    def _computed(self, part: Iterations, given: Sequence[Term]) -> list[Term]:
        """What some iterations compute of what they stack.

        **Arguments:**

        - `given`: all that they give.
        """
        terms, first = self.made.terms, len(scan_of(self.call).carried)
        for whole, own in zip(self.stacked, given[first:], strict=True):
            part.know(whole, iterations_of(whole)[0], own)
        found: list[Term] = []
        for one in self.read:
            values, op = [part.value(term, one.axis) for term in one.read], one.end.term.op
            if one.end.stacked:
                found += values
                continue
            assert isinstance(op, Reduce | Dot)
            inner = part.axis(one.axis)
            axes = (op.axes - {one.end.axis}) | ({inner} if inner is not None else set())
            # Sums of narrow floats are rounded once, in the end.
            dtype = accumulator(op.dtype) if isinstance(op, Dot) or op.kind in ROUNDED else op.dtype
            if not axes or isinstance(op, Reduce):
                values = [
                    value if value.dtype == dtype else terms.make(Map("convert", dtype), [value])
                    for value in values
                ]
            if axes:
                found.append(terms.make(replace(op, axes=axes, dtype=dtype), values))
            else:
                found.append(terms.make(Map("mul", dtype), values) if isinstance(op, Dot) else values[0])
        return found

    def _scan(
        self, part: Segment, starts: Sequence[Term]
    ) -> tuple[Call, tuple[Term, ...], Sequence[int | None]]:
        """The scan over segments, its operands, and by what is computed, the number of its carry.

        Its results are the carries of the scan, those of reductions, what it stacks, and functions.
        """
        terms, call, outer = self.made.terms, self.call, part.segments.outer
        control = scan_of(call)
        count = len(control.carried)
        leaves = {place: part.input(starts[place], call.arg_layouts[place]) for place in control.carried}
        inner, inside = part.iterations(call, starts, leaves)
        given = [terms.make(Opaque(inner, number), inside) for number in range(len(call.out_layouts))]
        values = self._computed(part, given)
        carries: list[Carry] = []
        merged: list[int | None] = []
        functions: list[Output] = []
        axes: list[Axis] = []
        for one, value in zip(self.read, values, strict=True):
            if one.end.stacked:
                merged.append(None)
                functions.append(Output(value, tuple(sorted(value.axes))))
                axes.append(one.axis)
            else:
                merged.append(count + len(carries))
                carries += reduction_carries(terms, self.made.leaf, one.end.term, value, outer.size)
        begin = len(part.operands)
        for carry in carries:
            assert carry.before is not None
            part.inputs.append(carry.before)
            part.operands.append(carry.start)
            part.layouts.append(carry.output.layout)
        stacked = [Output(value, layout) for value, layout in zip(given, inner.out_layouts, strict=True)]
        outputs = [*stacked[:count], *(carry.output for carry in carries), *stacked[count:], *functions]
        along = [iterations_of(term)[0] for term in self.stacked] + axes
        along = [axis if part.axis(axis) is None else outer for axis in along]
        first = count + len(carries)
        operands = tuple(part.operands)
        made = replace(
            call,
            arg_layouts=tuple(part.layouts),
            out_layouts=(
                *(output.layout for output in outputs[:first]),
                *((axis, *output.layout) for axis, output in zip(along, outputs[first:], strict=True)),
            ),
            out_dtypes=tuple(output.term.dtype for output in outputs),
            control=Scan(
                (*range(count), *range(begin, begin + len(carries))),
                tuple(part.by_slices),
                outer.size,
                control.reverse,
                1,
            ),
            bodies=(),
            unread=frozenset(),
        )
        program = Program(tuple(part.inputs), tuple(outputs), terms)
        body = Body(program, tuple(range(len(operands))))
        return self.made.number(with_bodies(made, [body], operands), call), operands, merged

    def _all(
        self, segments: Segments, found: Sequence[Term], merged: Sequence[int | None], rest: Sequence[Term]
    ) -> list[Term]:
        """The results that are read, and all reductions and functions: of all segments, and of the rest.

        **Arguments:**

        - `found`: the results of the scan over segments.
        - `merged`: by what is computed, the number of its carry; None for what is stacked.
        - `rest`: the results of the iterations in no segment, and what is computed of them, if there are any.
        """
        terms, count = self.made.terms, len(scan_of(self.call).carried)
        every = len(self.call.out_layouts)
        functions = sum(one.end.stacked for one in self.read)
        stacks = iter(found[len(found) - functions - (every - count) :])

        def whole(value: Term, along: Axis, last: Term | None) -> Term:
            """What is stacked of all iterations."""
            if along.size == self.blocks:
                return value
            to = along if last is None else segments.both
            merge = Operation(OPERATIONS["merge"], (segments.outer, segments.inner, to), value.dtype)
            stack = terms.make(merge, [value])
            return stack if last is None else joined(terms, stack, segments.both, last, along)

        last: list[Term | None] = [*rest] if rest else [None] * (every + len(self.read))
        carried = rest if rest and not scan_of(self.call).reverse else found
        given = list(carried[:count])
        for number, term in enumerate(self.stacked, start=count):
            given.append(whole(next(stacks), iterations_of(term)[0], last[number]))
        values: list[Term] = []
        for one, place, left in zip(self.read, merged, last[every:], strict=True):
            if place is None:
                value = whole(next(stacks), one.axis, left)
                output = Output(value, ())
                values.append(
                    Function(one.end, output).of(terms, value, one.axis) if one.end.parts else value
                )
                continue
            value = found[place]
            if left is not None:
                kind = getattr(one.end.term.op, "kind", "sum")
                value = terms.make(Map(MERGES[kind], value.dtype), [value, left])
            if value.dtype != one.end.term.dtype:
                value = terms.make(Map("convert", one.end.term.dtype), [value])
            values.append(value)
        return [*(given[_number_of(result)] for result in self.results), *values]


def _number_of(result: Term) -> int:
    """Which of a call's results a term is."""
    assert isinstance(result.op, Opaque)
    return result.op.result
