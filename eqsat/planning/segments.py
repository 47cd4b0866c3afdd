"""Segments of iterations: one scan as a scan over segments of its iterations, and what is left of them.

A scan of t iterations is a scan over n segments, in each of which a scan of l iterations runs, and one more
scan of the t - n l iterations at the end, if there are any. What the iterations read of other scans is
computed again in each segment, by those scans, from the carries that the segment received.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eqsat.ir.axis import Axis, Dimension, Layout
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Const, Iota, Leaf, Map, Opaque, Operation, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.sliced_calls import SlicedTerms, has_slices
from eqsat.ir.term import Term, Terms
from eqsat.planning.artificial_dependences import with_dependences
from eqsat.planning.rematerialised_values import can_be_cut, is_index, layout_of
from eqsat.planning.rerun_scans import Application, Rerun, scan_of, slices
from eqsat.planning.segment_sums import small_sums


@dataclass(frozen=True, slots=True)
class Segments:
    """The iterations of scans, as segments.

    **Attributes:**

    - `outer`: the axis of the segments.
    - `inner`: the axis of the iterations of a segment.
    - `both`: the axis of the iterations of all segments.
    - `rest`: the axis of the iterations at the end that are in no segment; None if all are in one.
    """

    outer: Axis
    inner: Axis
    both: Axis
    rest: Axis | None


class Surroundings(Protocol):
    """What segments need to know of the program that they are part of."""

    @property
    def terms(self) -> Terms: ...

    @property
    def exact(self) -> bool:
        """Whether floats must be added up in the order of the iterations."""

    def numbered(self, made: Call, origin: Call) -> Call:
        """A call that was made of another one with a number of its own."""

    def next_leaf(self) -> int:
        """The number of a new input of a body."""

    def is_given(self, term: Term) -> bool:
        """Whether segments get slices of a value, rather than what it is computed from."""

    def rerun(self, term: Term, along: Axis) -> Rerun | None:
        """The scan that is run again for a value that it stacks along an axis; None for any other value."""

    def saved(self, one: Rerun, place: int) -> Term:
        """What the segments received of a carry, by the place of its start in `one`."""

    def received(self, one: Rerun, place: int) -> Term:
        """What the iterations that are in no segment received of it."""


class Iterations(ABC):
    """Some iterations, in the terms of where they run: their values, computed from what is there.

    **Attributes:**

    - `again`: the results of the scans that run again for them and have to end where they ended.
    """

    def __init__(self, around: Surroundings, inner: Axis) -> None:
        self.around = around
        self.terms = around.terms
        self.inner = inner
        self._inside: dict[tuple[int, Axis | None], Term] = {}
        self._again: dict[Rerun, Application] = {}
        self.again: list[Term] = []
        self._calls = SlicedTerms(around.terms, around.numbered)

    @abstractmethod
    def _whole(self, term: Term) -> Term:
        """A value that is the same in all iterations."""

    @abstractmethod
    def _slice(self, term: Term, along: Axis) -> Term:
        """What these iterations read of a value."""

    @abstractmethod
    def _start(self, one: Rerun, place: int) -> Term:
        """The carry that these iterations begin with."""

    def _slices(self, call: Call) -> dict[int, Axis]:
        """The axis along which each operand is sliced that a scan goes through, by place."""
        return slices(call)

    def axis(self, along: Axis) -> Axis | None:
        """The axis that values have in place of one along which they are sliced."""
        return self.inner

    def _own(self, dimension: Dimension) -> Dimension:
        """The dimension of these iterations, in place of that of all."""
        return self.inner

    def _length(self, control: Scan) -> int:
        """How many iterations these are."""
        return self.inner.size

    def iterations(self, call: Call, args: Sequence[Term], starts: Mapping[int, Term]) -> Application:
        """A scan over these iterations only.

        **Arguments:**

        - `starts`: the carries that it begins with, by place.
        """
        control = scan_of(call)
        along = self._slices(call)
        inside = [
            starts[place] if place in starts else self.value(arg, along.get(place))
            for place, arg in enumerate(args)
        ]
        layouts = [
            (self._own(layout[0]), *layout[1:]) if place in along else layout
            for place, layout in enumerate(call.arg_layouts)
        ]
        first = len(control.carried)
        stacked = [(self._own(layout[0]), *layout[1:]) for layout in call.out_layouts[first:]]
        made = replace(
            call,
            arg_layouts=tuple(layouts),
            out_layouts=(*call.out_layouts[:first], *stacked),
            control=replace(control, length=self._length(control)),
            unread=frozenset(),
        )
        return self.around.numbered(with_bodies(made, call.bodies, inside), call), tuple(inside)

    def value(self, term: Term, along: Axis | None) -> Term:
        """A value that these iterations read, whole or sliced along an axis."""
        if along not in term.axes:
            along = None
        key = term.number, along
        if key not in self._inside:
            self._inside[key] = self._whole(term) if along is None else self._sliced(term, along)
        return self._inside[key]

    def know(self, term: Term, along: Axis, value: Term) -> None:
        """Says what these iterations have of a term along an axis."""
        self._inside[term.number, along] = value

    def _sliced(self, term: Term, along: Axis) -> Term:
        if self.around.is_given(term):
            return self._slice(term, along)
        one = self.around.rerun(term, along)
        if one is not None:
            if one not in self._again:
                starts = {place: self._start(one, place) for place in one.control.carried}
                self._again[one] = call, inside = self.iterations(one.call, one.args, starts)
                if one.alike:
                    every = range(len(call.out_layouts))
                    self.again += [self.terms.make(Opaque(call, n), inside) for n in every]
            call, inside = self._again[one]
            assert isinstance(term.op, Opaque)
            return self.terms.make(Opaque(call, one.results[term.op.result]), inside)
        if isinstance(term.op, Rename) and term.op.new == along:
            return self.value(term.args[0], term.op.old)
        if can_be_cut(term, along):
            return self.terms.make(term.op, [self.value(arg, along) for arg in term.args])
        if has_slices(term, along):
            operands = [self.value(arg, along) for arg in term.args]
            return self._calls.of(term, along, operands, self.axis(along))
        return self._slice(term, along)


class Rest(Iterations):
    """The iterations at the end that are in no segment."""

    def __init__(self, around: Surroundings, segments: Segments, rest: Axis) -> None:
        super().__init__(around, rest)
        self.first = _number(self.terms, segments.outer.size * segments.inner.size)

    def _whole(self, term: Term) -> Term:
        return term

    def _slice(self, term: Term, along: Axis) -> Term:
        return _taken(self.terms, term, along, self.first, self.inner)

    def _start(self, one: Rerun, place: int) -> Term:
        return self.around.received(one, place)


class Segment(Iterations):
    """The iterations of one segment, as the body of a scan over segments.

    **Attributes:**

    - `inputs`: those of the body.
    - `operands`, `layouts`: those of the scan, in the same order.
    - `by_slices`: the places of the operands that it goes through.
    """

    def __init__(self, around: Surroundings, segments: Segments) -> None:
        super().__init__(around, segments.inner)
        self.segments = segments
        self.inputs: list[Term] = []
        self.operands: list[Term] = []
        self.layouts: list[Layout] = []
        self.by_slices: list[int] = []
        self._first: Term | None = None

    def scan(
        self,
        call: Call,
        args: Sequence[Term],
        saved: Sequence[int],
        alike: bool,
        unread: Collection[int],
    ) -> Application:
        """A scan over all segments.

        Its results are those of a scan, with the axes of segments and of their iterations, and then carries
        as each segment received them.

        **Arguments:**

        - `call`, `args`: the scan.
        - `saved`: the places of the starts of the carries to save.
        - `alike`: whether each segment is the same code as when it runs again.
        - `unread`: the numbers of stacked results that it does not have, though each segment computes them.
        """
        control, outer = scan_of(call), self.segments.outer
        first = len(control.carried)
        leaves = {place: self.input(args[place], call.arg_layouts[place]) for place in control.carried}
        sums = set[int]() if self.around.exact else small_sums(call, args)
        starts = {place: args[place] if place in sums else leaf for place, leaf in leaves.items()}
        inner, inside = self.iterations(call, args, starts)
        computed = [self.terms.make(Opaque(inner, number), inside) for number in range(len(call.out_layouts))]
        results = list(computed)
        for number, place in enumerate(control.carried):
            if place in sums:
                add = Map("add", results[number].dtype)
                results[number] = self.terms.make(add, [leaves[place], results[number]])
        alive = [*(computed if alike else ()), *self.again]
        results = with_dependences(self.around, results, first, alive, unread)
        read = [number for number in range(len(results)) if number not in unread]
        outputs = [Output(results[number], inner.out_layouts[number]) for number in read]
        outputs += [Output(leaves[place], call.arg_layouts[place]) for place in saved]
        program = Program(tuple(self.inputs), tuple(outputs), self.terms)
        made = replace(
            call,
            arg_layouts=tuple(self.layouts),
            out_layouts=(
                *call.out_layouts[:first],
                *((outer, *output.layout) for output in outputs[first:]),
            ),
            out_dtypes=tuple(output.term.dtype for output in outputs),
            control=Scan(tuple(range(first)), tuple(self.by_slices), outer.size, control.reverse, 1),
            bodies=(),
            unread=frozenset(),
        )
        operands = tuple(self.operands)
        body = Body(program, tuple(range(len(operands))))
        return self.around.numbered(with_bodies(made, [body], operands), call), operands

    def _whole(self, term: Term) -> Term:
        return term if is_index(term) else self.input(term, layout_of(term))

    def _slice(self, term: Term, along: Axis) -> Term:
        outer, inner = self.segments.outer, self.segments.inner
        if self.segments.rest is not None:
            # All but the rest would be copied to be split.
            return self._looked_up(term, along)
        split = Operation(OPERATIONS["split"], (along, outer, inner), term.dtype)
        layout = outer, inner, *layout_of(term, along)
        return self.input(self.terms.make(split, [term]), layout, by_slices=True)

    def _looked_up(self, term: Term, along: Axis) -> Term:
        """What these iterations read of a value, which all segments get whole."""
        outer, inner = self.segments.outer, self.segments.inner
        if self._first is None:
            count = self.input(self.terms.make(Iota(outer, "int32")), (outer,), by_slices=True)
            self._first = self.terms.make(Map("mul", "int32"), [count, _number(self.terms, inner.size)])
        return _taken(self.terms, self.value(term, None), along, self._first, inner)

    def _start(self, one: Rerun, place: int) -> Term:
        layout = (self.segments.outer, *one.call.arg_layouts[place])
        return self.input(self.around.saved(one, place), layout, by_slices=True)

    def input(self, term: Term, layout: Layout, by_slices: bool = False) -> Term:
        """A new input for a value, or for its slices along the axis of segments."""
        if by_slices:
            self.by_slices.append(len(self.operands))
        self.operands.append(term)
        self.layouts.append(layout)
        leaf = self.terms.make(Leaf(self.around.next_leaf(), layout[by_slices:], term.dtype))
        self.inputs.append(leaf)
        return leaf


def in_segments(
    around: Surroundings,
    call: Call,
    args: Sequence[Term],
    segments: Segments,
    saved: Sequence[int] = (),
    alike: bool = False,
    unread: Collection[int] = (),
) -> tuple[dict[int, Term], list[Term], list[Term]]:
    """A scan as one over segments, and one over the rest of the iterations.

    **Arguments:**

    - `saved`: the places of the starts of the carries to save.
    - `alike`: whether each segment is the same code as when it runs again.
    - `unread`: the numbers of stacked results that are computed, but not kept.

    **Returns:** the results of the scan, by number; the carries as the segments received them, stacked; and
    as the rest received them, if there is any.
    """
    terms, control, starts = around.terms, scan_of(call), list(args)
    first = len(control.carried)
    read = [number for number in range(len(call.out_layouts)) if number not in unread]
    rest: list[Term] = []
    received: list[Term] = []

    def run_rest() -> None:
        assert segments.rest is not None
        received.extend(starts[place] for place in saved)
        begin = {place: starts[place] for place in control.carried}
        part = Rest(around, segments, segments.rest)
        made, inside = part.iterations(call, args, begin)
        results = [terms.make(Opaque(made, number), inside) for number in range(len(call.out_layouts))]
        alive = [*(results if alike else ()), *part.again]
        rest.extend(with_dependences(around, results, first, alive, unread))

    if segments.rest is not None and control.reverse:
        run_rest()
        for number, place in enumerate(control.carried):
            starts[place] = rest[number]
    made, operands = Segment(around, segments).scan(call, starts, saved, alike, unread)
    found = [terms.make(Opaque(made, number), operands) for number in range(len(made.out_layouts))]
    if segments.rest is not None and not control.reverse:
        for number, place in enumerate(control.carried):
            starts[place] = found[number]
        run_rest()
    last = rest if rest and not control.reverse else found
    results = dict(enumerate(last[:first]))
    for place, number in list(enumerate(read))[first:]:
        along = call.out_layouts[number][0]
        assert isinstance(along, Axis)
        to = along if segments.rest is None else segments.both
        merge = Operation(OPERATIONS["merge"], (segments.outer, segments.inner, to), found[place].dtype)
        stack = terms.make(merge, [found[place]])
        results[number] = joined(terms, stack, segments.both, rest[number], along) if rest else stack
    return results, found[len(read) :], received


def joined(terms: Terms, stack: Term, both: Axis, rest: Term, along: Axis) -> Term:
    """The results of the iterations of all segments, and after them those of the rest, along one axis."""
    (end,) = rest.axes - stack.axes
    place, count = terms.make(Iota(along, "int32")), _number(terms, both.size)
    later = terms.make(Map("sub", "int32"), [place, count])
    entries = [
        terms.make(Operation(OPERATIONS["take"], (axis,), stack.dtype), [value, index])
        for axis, value, index in ((end, rest, later), (both, stack, place))
    ]
    early = terms.make(Map("lt", "bool"), [place, count])
    return terms.make(Map("select_n", stack.dtype), [early, *entries])


def _taken(terms: Terms, term: Term, along: Axis, first: Term, axis: Axis) -> Term:
    """The entries of a value along an axis from `first` on, as many as another axis is long."""
    index = terms.make(Map("add", "int32"), [first, terms.make(Iota(axis, "int32"))])
    return terms.make(Operation(OPERATIONS["take"], (along,), term.dtype), [term, index])


def _number(terms: Terms, value: int) -> Term:
    return terms.make(Const(str(value), "int32"))
