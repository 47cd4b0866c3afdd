"""Rematerialisation: a large value that a loop only reads is computed inside it, in chunks or slice by slice.

A solver's loop multiplies by one Gram matrix in every iteration. If the matrix does not fit, its elements are
computed where they are used, again in every iteration: this takes more time, but stores no matrix. Both forms
are loaded into the e-graph as equal, and extraction chooses. A rule cannot express this, since it changes the
bodies of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.comparing import compared
from eqsat.ir.control import Body, Scan, Switch, While, carried, sliced, steady
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term, reachable
from eqsat.ir.unused_results import trimmed
from eqsat.planning.branch_values import as_selection
from eqsat.planning.derived_carries import DerivedCarries
from eqsat.planning.rematerialised_values import Operand, Rematerialisation, Rematerialiser, layout_of
from eqsat.planning.repeated_scans import by_passes
from eqsat.planning.saved_carries import Carries
from eqsat.planning.segmented_scans import SegmentedScans

MOST_KEPT = 2
"""At most this many large operands, largest first, get a variant each that keeps only that operand."""


def with_rematerialised_operands(
    program: Program, threshold: float, room: float = 0, exact: bool = False
) -> Program:
    """The program with equalities between its loops and variants that compute large operands inside.

    The operands may be whole or sliced.

    **Arguments:**

    - `threshold`: the size in bytes above which a value is large.
    - `room`: bytes for temporaries. If one of several large operands fits, but not all, variants that keep
      just one operand are added too.
    - `exact`: whether results must stay the same to the last bit.
    """
    variants = _Variants(program, threshold, room, exact)
    pairs = list(variants.passes.pairs)
    loops = filter(_is_control_flow, variants.passes.program.known())
    waiting = list(dict.fromkeys((*loops, *_loops([form for _, form in pairs]))))
    selections = {
        term: other
        for term in waiting
        if term.bytes > threshold and (other := as_selection(program.terms, term)) is not None
    }
    pairs += selections.items()
    pairs += variants.without(selections, waiting)
    seen = set(waiting)
    while waiting:
        for term in waiting:
            # Segments take no longer than what saves the carries of all iterations.
            if not variants.segments.are_leaner(term):
                pairs += [(term, other) for other in variants.forms_of(term)]
        # The variants may have asked for scans that save their carries; these may have large operands too.
        instead = [
            (term, other)
            for made in (variants.carries, variants.segments)
            for term in seen
            if (other := made.instead(term)) is not None
        ]
        fresh = [(term, other) for term, other in instead if other not in seen]
        fresh += [
            (term, other)
            for made in (variants.derived, variants.segments)
            for term in waiting
            if (other := made.form_of(term)) is not None
        ]
        pairs += fresh
        made = [*_loops([other for _, other in fresh]), *variants.carries.given]
        waiting = [term for term in dict.fromkeys(made) if term not in seen]
        seen.update(waiting)
    equalities = dict.fromkeys((*program.equalities, *pairs))
    return replace(program, equalities=tuple(equalities)) if pairs else program


class _Variants:
    """Makes variants of calls.

    **Attributes:**

    - `equalities`: pairs of equal terms that the program knows of.
    - `calls`: the least number that no call of the program has.
    - `leaves`: the number of the next new input of a body, downwards.
    - `passes`: the program with scans that run several times.
    """

    def __init__(self, program: Program, threshold: float, room: float, exact: bool) -> None:
        self.terms = program.terms
        self.equalities = program.equalities
        self.threshold = threshold
        self.room = room
        self._made: dict[tuple[Call, tuple[int, ...]], list[tuple[Call, tuple[Term, ...]]]] = {}
        self.calls, self.leaves = program.next_call(), program.next_input()
        self.passes = by_passes(program, threshold, room, self.numbered, self.next_leaf, exact)
        programs = dict.fromkeys((program, self.passes.program))
        once = frozenset[int]().union(*(compared(one).once for one in programs))
        self.carries = Carries(self.terms, self.numbered, threshold)
        self.rematerialiser = self.rematerialiser_of(program, once)
        roots = [output.term for output in self.passes.program.outputs]
        self.segments = SegmentedScans(
            self.terms, threshold, room, self.numbered, self.next_leaf, once, roots, exact
        )
        self.derived = DerivedCarries(
            self.terms, threshold, self.numbered, self.next_leaf, self.rematerialiser_of
        )

    def rematerialiser_of(self, program: Program, once: frozenset[int] = frozenset()) -> Rematerialiser:
        """What finds how values of a program are computed from less.

        **Arguments:**

        - `once`: numbers of terms that are computed only once, beside those that the program compares.
        """
        forms: dict[int, list[Term]] = {}
        for term, form in program.equalities:
            forms.setdefault(term.number, []).append(form)
        once |= compared(program).once
        largest = max((term.bytes for term in program.reachable()), default=0)
        return Rematerialiser(
            self.terms, self.threshold, self.carries, self.numbered, self.next_leaf, forms, once, largest
        )

    def numbered(self, made: Call, origin: Call) -> Call:
        """A call that was made of another one, with a number of its own.

        Programs that differ in what they know of the same terms may be put together.
        """
        # Calls are compared without their parameters.
        params = repr(made.params) if made.control is None else ""
        key = origin.id, params, replace(made, id=0)
        return replace(made, id=self.terms.call_number(key, self.calls))

    def next_leaf(self) -> int:
        self.leaves -= 1
        return self.leaves + 1

    def without(self, selections: Iterable[Term], results: Iterable[Term]) -> Iterator[tuple[Term, Term]]:
        """Choices that lack the results `selections`, and the operands that only these need."""
        gone: dict[tuple[Call, tuple[Term, ...]], set[int]] = {}
        for term in selections:
            assert isinstance(term.op, Opaque)
            gone.setdefault((term.op.call, term.args), set()).add(term.op.result)
        for (call, args), of_call in gone.items():
            left = {number for number in range(len(call.out_layouts)) if number not in of_call}
            made = trimmed(call, args, left) if left else None
            if made is None:
                continue
            fewer, numbers, places = made
            fewer = self.numbered(fewer, call)
            operands = [args[place] for place in places]
            for term in results:
                assert isinstance(term.op, Opaque)
                if (term.op.call, term.args) == (call, args) and term.op.result in left:
                    yield term, self.terms.make(Opaque(fewer, numbers[term.op.result]), operands)

    def forms_of(self, term: Term) -> list[Term]:
        """All variants of a call's result whose large operands are computed inside."""
        assert isinstance(term.op, Opaque)
        if term.open:
            return []
        made = self.calls_of(term.op.call, term.args)
        return [self.terms.make(Opaque(call, term.op.result), args) for call, args in made]

    def calls_of(self, call: Call, args: tuple[Term, ...]) -> list[tuple[Call, tuple[Term, ...]]]:
        """The variants of a call, with their operands: all large operands computed inside, or all but one."""
        key = (call, tuple(arg.number for arg in args))
        if key not in self._made:
            assert call.control is not None
            rematerialised: dict[int, Rematerialisation] = {}
            axes: dict[int, Axis | None] = dict.fromkeys(steady(call.control, len(args)))
            for place in sliced(call.control):
                along = call.arg_layouts[place][0]
                if not isinstance(along, tuple):
                    axes[place] = along
            for place, along in axes.items():
                large = args[place].bytes > self.threshold
                if large and (along is None or along in args[place].axes):
                    one = self.rematerialiser.find(args[place], along)
                    if one is not None:
                        rematerialised[place] = one
            rematerialised = _worthwhile(rematerialised)
            inside = [rematerialised] if rematerialised else []
            for kept in self.kept_alone([args[place] for place in rematerialised if axes[place] is None]):
                others = {place: found for place, found in rematerialised.items() if args[place] is not kept}
                inside.append(others)
            self._made[key] = [self.variant(call, args, rematerialised) for rematerialised in inside]
        return self._made[key]

    def kept_alone(self, operands: Iterable[Term]) -> list[Term]:
        """The largest of the operands that fit alone, if there are several and they do not fit together."""
        distinct = list(dict.fromkeys(operands))
        if sum(term.bytes for term in distinct) <= self.room:
            return []
        fitting = [term for term in distinct if term.bytes <= self.room]
        return sorted(fitting, key=lambda term: -term.bytes)[:MOST_KEPT] if len(distinct) > 1 else []

    def variant(
        self, call: Call, args: tuple[Term, ...], rematerialised: dict[int, Rematerialisation]
    ) -> tuple[Call, tuple[Term, ...]]:
        """The call with the operands `rematerialised` computed in its bodies, and its new operands."""
        kept = [place for place in range(len(args)) if place not in rematerialised]
        places = {place: number for number, place in enumerate(kept)}
        outside = list(dict.fromkeys(entry for one in rematerialised.values() for entry in one.operands()))
        frontier = {entry: len(kept) + number for number, entry in enumerate(outside)}
        bodies = [self.body(call, body, places, frontier, rematerialised) for body in call.bodies]
        layouts = [call.arg_layouts[place] for place in kept]
        layouts += [
            layout_of(at) if along is None else (along, *layout_of(at, along)) for at, along in outside
        ]
        operands = (*(args[place] for place in kept), *(at for at, _ in outside))
        by_slices = [place for (_, along), place in frontier.items() if along is not None]
        control = _moved(call, places, by_slices)
        made = replace(call, arg_layouts=tuple(layouts), control=control, bodies=())
        return self.numbered(with_bodies(made, bodies, operands), call), operands

    def body(
        self,
        call: Call,
        body: Body,
        places: dict[int, int],
        frontier: dict[Operand, int],
        rematerialised: dict[int, Rematerialisation],
    ) -> Body:
        """The body that computes `rematerialised` from new inputs for the operands `frontier`."""
        inputs, sources = [], []
        inside: dict[Operand, Term] = {}
        replaced: dict[int, Term] = {}
        whole: list[Rematerialisation] = []
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            if source not in rematerialised:
                inputs.append(leaf)
                sources.append(places[source])
                continue
            one = rematerialised[source]
            for entry in one.operands():
                if entry not in inside:
                    at, along = entry
                    inside[entry] = self.terms.make(Leaf(self.next_leaf(), layout_of(at, along), at.dtype))
                    inputs.append(inside[entry])
                    sources.append(frontier[entry])
            replaced[leaf.number] = one.built(self.terms, inside)
            assert call.control is not None
            whole += [one] if source not in sliced(call.control) else []
        program = with_inputs(body.program, tuple(inputs), replaced)
        equal = [pair for one in whole for pair in one.equalities(self.terms, inside, self.equalities)]
        program = replace(program, equalities=(*program.equalities, *dict.fromkeys(equal)))
        return Body(program, tuple(sources))


def _is_control_flow(term: Term) -> bool:
    return isinstance(term.op, Opaque) and bool(term.op.call.bodies)


def _loops(roots: Sequence[Term]) -> Iterator[Term]:
    """Yields the results of control flow that terms are computed from."""
    return filter(_is_control_flow, reachable(roots))


def _worthwhile(rematerialised: dict[int, Rematerialisation]) -> dict[int, Rematerialisation]:
    """The rematerialisations, by operand, that save more bytes than they keep: all if they do so together.

    Values that several residuals of an iteration are computed from are kept once. Arguments exist anyway.
    """

    def kept(found: Iterable[Rematerialisation]) -> int:
        operands = dict.fromkeys(operand for one in found for operand, _ in one.operands())
        return sum(term.bytes for term in operands if not isinstance(term.op, Leaf))

    if kept(rematerialised.values()) < sum(one.term.bytes for one in rematerialised.values()):
        return rematerialised
    return {place: found for place, found in rematerialised.items() if kept([found]) < found.term.bytes}


def _moved(call: Call, places: dict[int, int], by_slices: list[int]) -> Scan | While | Switch:
    """The control of a call whose operands have moved, with added operands that are given by slices."""
    control = call.control
    assert control is not None
    first = tuple(places[place] for place in carried(control))
    match control:
        case Scan():
            kept = [places[place] for place in sliced(control) if place in places]
            return replace(control, carried=first, sliced=(*kept, *by_slices))
        case While():
            return While(first)
        case Switch():
            return control
