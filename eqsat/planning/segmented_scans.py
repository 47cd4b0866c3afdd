"""Segmented checkpointing: scans over segments of iterations, of which a later scan runs each one again.

    c', r = scan f over t,  then  b' = scan g over r, backward        residuals r of all t are kept

    c', s = scan (scan f over l) over n                               s: the carry that each segment received
    b' = scan (r = scan f over l, from s;  scan g over r) over n, backward

A loop over time and its backward pass keep one carry for each segment and the residuals of one segment, in
place of the residuals of all iterations. With about sqrt(t) segments this is O(sqrt(t)), for one more run
of the forward loop (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, section 3). What is
computed in each iteration stays the same. Segments may have segments again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan
from eqsat.ir.discontinuities import is_discontinuous
from eqsat.ir.dtypes import is_extended
from eqsat.ir.ops import Call, Leaf, Opaque, Rename
from eqsat.ir.sliced_calls import has_slices
from eqsat.ir.term import Term, Terms
from eqsat.ir.unused_results import trimmed
from eqsat.planning.rematerialised_values import can_be_cut
from eqsat.planning.rerun_scans import Rerun, scan_of, slices
from eqsat.planning.segments import Segments, in_segments

FEWEST = 32
"""Scans of fewer iterations have no segments: what they carry is saved for every iteration, if need be."""

SMALLER = 2
"""What segments keep has to be so many times smaller than the results of all iterations."""

EVEN = 1.25
"""Segments that leave no iterations over may need so many times the memory of others."""

SHARE = 4
"""Results of all iterations that take less than this part of the memory are kept."""


@dataclass(frozen=True, slots=True)
class _Forward:
    """A scan over segments that saves carries, in place of large results.

    **Attributes:**

    - `results`: the results of the original scan that are left, by their number in it.
    - `saved`: by place of the start of a carry, what the segments received of that carry.
    - `received`: the same of the iterations that are in no segment.
    """

    segments: Segments
    results: Mapping[int, Term]
    saved: Mapping[int, Term]
    received: Mapping[int, Term]


@dataclass
class SegmentedScans:
    """Scans over segments, made on demand.

    **Arguments:**

    - `threshold`: the size in bytes above which a value is large.
    - `room`: bytes for temporaries.
    - `numbered`: returns a call that was made of another one with a number of its own.
    - `next_leaf`: returns the number of a new input of a body.
    - `once`: the numbers of terms that must be computed only once.
    - `roots`: what the program computes.
    - `exact`: whether floats must be added up in the order of the iterations.
    """

    terms: Terms
    threshold: float
    room: float
    numbered: Callable[[Call, Call], Call]
    next_leaf: Callable[[], int]
    once: frozenset[int]
    roots: InitVar[Iterable[Term]]
    exact: bool
    _kept: set[int] = field(init=False, default_factory=set)
    _readers: dict[tuple[Call, tuple[int, ...]], Mapping[int, Term] | None] = field(default_factory=dict)
    _reruns: dict[tuple[Call, tuple[int, ...]], Rerun | None] = field(default_factory=dict)
    _forward: dict[tuple[Call, tuple[int, ...]], _Forward] = field(default_factory=dict)

    def __post_init__(self, roots: Iterable[Term]) -> None:
        self._kept |= self._read_whole(roots)

    def form_of(self, term: Term) -> Term | None:
        """The result of a scan that reads large results of another one, from scans over segments."""
        assert isinstance(term.op, Opaque)
        call, args = term.op.call, term.args
        key = _key(call, args)
        if key not in self._readers:
            self._readers[key] = None if term.open else self._segmented(call, args)
        made = self._readers[key]
        return made[term.op.result] if made else None

    def are_leaner(self, term: Term) -> bool:
        """Whether a scan over segments is known, and needs far less than the carries of all iterations."""
        assert isinstance(term.op, Opaque)
        if self.form_of(term) is None:
            return False
        reruns = dict.fromkeys(self._read(term.op.call, term.args))
        segments = next(self._forward[_key(*one.whole)].segments for one in reruns)
        carries = sum(one.carry_bytes() for one in reruns)
        needed = segments.outer.size * carries + segments.inner.size * sum(map(Rerun.iteration_bytes, reruns))
        return SMALLER * needed <= scan_of(term.op.call).length * carries

    def instead(self, term: Term) -> Term | None:
        """The same value as a result of the scan over segments, if that was asked for."""
        assert isinstance(term.op, Opaque)
        made = self._forward.get(_key(term.op.call, term.args))
        return made.results.get(term.op.result) if made else None

    def rerun(self, term: Term, along: Axis) -> Rerun | None:
        """The scan that stacks a large value along an axis, to be run again for that.

        None if the value is no such result, or kept whole in any case.
        """
        if not _is_stack(term, along) or term.number in self._kept:
            return None
        assert isinstance(term.op, Opaque)
        key = _key(term.op.call, term.args)
        if key not in self._reruns:
            self._reruns[key] = self._large_results(term.op.call, term.args)
        return self._reruns[key]

    def saved(self, one: Rerun, place: int) -> Term:
        """What the segments received of a carry, by the place of its start in `one`."""
        return self._forward[_key(*one.whole)].saved[one.places[place]]

    def received(self, one: Rerun, place: int) -> Term:
        """What the iterations that are in no segment received of it."""
        return self._forward[_key(*one.whole)].received[one.places[place]]

    def is_given(self, term: Term) -> bool:
        """Whether a scan over segments gets slices of the value, rather than what it is computed from."""
        return isinstance(term.op, Leaf) or term.bytes <= self.threshold or term.number in self.once

    def _segmented(self, call: Call, args: tuple[Term, ...]) -> Mapping[int, Term] | None:
        """The results of a scan over segments that runs those scans again of which it reads large results."""
        if not _can_be_segmented(call):
            return None
        reruns = list(dict.fromkeys(self._read(call, args)))
        segments = self._segments(scan_of(call).length, reruns)
        if segments is None:
            return None
        for one in reruns:
            if _key(*one.whole) not in self._forward:
                self._forward[_key(*one.whole)] = self._saving(one, segments)
        results, _, _ = in_segments(self, call, args, segments)
        return results

    def _read_whole(self, roots: Iterable[Term]) -> set[int]:
        """The numbers of the values that are read by more than the iterations of scans back over them.

        What the next layer of a network reads of all iterations of the last one is kept.
        """
        found: set[int] = set()
        seen: set[int] = set()
        stack = [(root, True) for root in roots]
        while stack:
            term, whole = stack.pop()
            if whole:
                found.add(term.number)
            if term.number in seen:
                continue
            seen.add(term.number)
            along = (
                slices(term.op.call)
                if isinstance(term.op, Opaque) and _can_be_segmented(term.op.call)
                else {}
            )
            for place, arg in enumerate(term.args):
                stacks = [at for at, _ in self._stacks(arg, along[place])] if place in along else []
                back = [at for at in stacks if _is_reverse(at) != _is_reverse(term)]
                stack += [(at, at not in back) for at in stacks] if back else [(arg, True)]
        return found

    def _stacks(self, term: Term, along: Axis) -> Iterator[tuple[Term, Axis]]:
        """The large stacked results of scans that slices of a value are computed from, and their axes."""
        stack, seen = [(term, along)], set[tuple[int, Axis]]()
        while stack:
            at, axis = stack.pop()
            if (at.number, axis) in seen or axis not in at.axes or self.is_given(at):
                continue
            seen.add((at.number, axis))
            if _is_stack(at, axis):
                yield at, axis
            elif isinstance(at.op, Rename) and at.op.new == axis:
                stack.append((at.args[0], at.op.old))
            elif can_be_cut(at, axis) or has_slices(at, axis):
                stack += ((arg, axis) for arg in at.args)

    def _read(self, call: Call, args: Sequence[Term]) -> Iterator[Rerun]:
        """The scans to run again for what a scan reads, each after those that it reads in turn."""
        for place, along in slices(call).items():
            for term, axis in self._stacks(args[place], along):
                one = self.rerun(term, axis)
                if one is not None:
                    yield from self._read(one.call, one.args)
                    yield one

    def _segments(self, iterations: int, reruns: Sequence[Rerun]) -> Segments | None:
        """The segments for scans that are run again together; None if there are none, or they save little.

        The memory of n segments of l iterations is n carries and the residuals of l iterations.
        """
        if iterations < FEWEST or not reruns or any(one.control.length != iterations for one in reruns):
            return None
        known = {made.segments for one in reruns if (made := self._forward.get(_key(*one.whole))) is not None}
        if known:
            return known.pop() if len(known) == 1 else None
        carries = sum(one.carry_bytes() for one in reruns)
        residuals = sum(one.iteration_bytes() for one in reruns)
        if iterations * residuals < self.room / SHARE:
            return None

        def needed(length: int) -> int:
            return iterations // length * carries + length * residuals

        # One iteration alone has no axis.
        lengths = [length for length in range(2, iterations // 2 + 1) if iterations % length != 1]
        length = min(lengths, key=needed, default=None)
        if length is None:
            return None
        even = [
            other for other in lengths if not iterations % other and needed(other) <= EVEN * needed(length)
        ]
        length = min(even, key=needed, default=length)
        if SMALLER * needed(length) > iterations * residuals:
            return None
        count, left = divmod(iterations, length)
        sizes = count, length, count * length, left
        origin = reruns[0].whole[0].id, *sizes
        outer, inner, both = (self.terms.axis((origin, place), size) for place, size in enumerate(sizes[:3]))
        return Segments(outer, inner, both, self.terms.axis((origin, 3), left) if left else None)

    def _large_results(self, call: Call, args: tuple[Term, ...]) -> Rerun | None:
        if not _can_be_segmented(call):
            return None
        (body,) = call.bodies
        if any(term.number in self.once for term in body.program.reachable()):
            return None
        large = self._large(call, args)
        alike = self._is_rounded_alike(call)
        made = None if alike else trimmed(call, args, large)
        if made is None:
            numbers = {number: number for number in range(len(call.out_layouts))}
            return Rerun((call, args), call, args, numbers, range(len(args)), alike)
        fewer, results, places = made
        return Rerun((call, args), fewer, tuple(args[place] for place in places), results, places)

    def _is_rounded_alike(self, call: Call) -> bool:
        """Whether a scan that runs again has to end where it ended: then it runs with all of its results."""
        (body,) = call.bodies
        return self.exact or is_discontinuous(body.program)

    def _large(self, call: Call, args: Sequence[Term]) -> set[int]:
        """The large stacked results of a scan that only iterations of scans read."""
        stacked = range(len(scan_of(call).carried), len(call.out_layouts))
        terms = {number: self.terms.make(Opaque(call, number), args) for number in stacked}
        return {
            number
            for number, term in terms.items()
            if not self.is_given(term) and term.number not in self._kept
        }

    def _saving(self, one: Rerun, segments: Segments) -> _Forward:
        """The scan over segments that saves the carries that a scan needs to be run again."""
        whole, args = one.whole
        large = self._large(whole, args)
        kept = set(range(len(whole.out_layouts))) - large
        made = None if one.alike else trimmed(whole, args, kept)
        every = {number: number for number in range(len(whole.out_layouts))}
        call, results, places = made or (whole, every, list(range(len(args))))
        wanted = [one.places[place] for place in one.control.carried]
        given = [args[place] for place in places]
        found, saved, received = in_segments(
            self,
            call,
            given,
            segments,
            [places.index(place) for place in wanted],
            one.alike,
            large if one.alike else (),
        )
        self._kept |= {term.number for term in found.values()}
        left = {number: found[result] for number, result in results.items() if number in kept}
        # Without a rest, nothing is received.
        return _Forward(
            segments, left, dict(zip(wanted, saved, strict=True)), dict(zip(wanted, received, strict=False))
        )


def _key(call: Call, args: Sequence[Term]) -> tuple[Call, tuple[int, ...]]:
    return call, tuple(arg.number for arg in args)


def _can_be_segmented(call: Call) -> bool:
    """Whether a scan has one axis of iterations for each array, and no arrays of keys."""
    if not isinstance(call.control, Scan):
        return False
    layouts = [call.arg_layouts[place] for place in call.control.sliced]
    layouts += call.out_layouts[len(call.control.carried) :]
    one_axis = all(isinstance(layout[0], Axis) for layout in layouts)
    return one_axis and not any(map(is_extended, call.out_dtypes))


def _is_stack(term: Term, along: Axis) -> bool:
    """Whether the value is a result that a scan stacks along an axis."""
    if not isinstance(term.op, Opaque) or not isinstance(term.op.call.control, Scan):
        return False
    call, result = term.op.call, term.op.result
    return result >= len(scan_of(call).carried) and call.out_layouts[result][0] == along


def _is_reverse(result: Term) -> bool:
    """Whether the scan of a result starts with the last iteration."""
    assert isinstance(result.op, Opaque)
    return scan_of(result.op.call).reverse
