"""From what is extracted to candidates; where all together is too much, also to others that store less."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.extract import Extractor, Selection
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Call, Chunk, Opaque, Operation
from eqsat.ir.program import Output
from eqsat.ir.substitution import in_chunks
from eqsat.ir.term import Term
from eqsat.ir.widening import widened
from eqsat.planning.candidates import Candidate, rechunk, scheduled, useful_axes
from eqsat.planning.chunks import WORTH_MEMORY
from eqsat.planning.extraction_state import ExtractionState, PlannedCall
from eqsat.planning.liveness import simulate
from eqsat.planning.loops import TooManyStepsError, build
from eqsat.planning.materialisation import with_kept
from eqsat.planning.search_space import SearchSpace
from eqsat.planning.simplified_terms import simplified

MOST_LIVE = 4
"""So many of the values alive at the peak, the largest first, are tried to find one to do without."""

SMALL_SHARE = 64
"""What takes less than this part of the memory for temporaries may be computed before a loop reads it."""

MOST_SPILLED = 6
"""How many values, one after the other, are not to be stored where all of them together are too much."""

REPEATED = 6
"""With more steps than so many times the terms, loops do the same things again, one after the other.
Extraction took them for one loop: the program is far slower than it said."""

FEW_STEPS = 3_000
"""Programs of so many steps are looked at in any case."""

NAMED = "named-operation"
"""What the report calls a named operation that is called instead of its body."""

REMATERIALISED = "rematerialised-in-loop"
"""What it calls control flow that computes a large operand inside."""

REORDERED = "contraction-order"
"""What it calls the steps of a contraction of many factors whose order was found by a path solver."""

KNOWN_AS = {Operation: NAMED, Opaque: REMATERIALISED}
"""What it calls ops that were entered beside what was written."""


@dataclass(frozen=True)
class Extraction:
    """What was extracted under a cap on stored values, with loops over some axes."""

    extractor: Extractor
    cap: float
    split: frozenset[Axis] | None
    one_pass: bool
    selection: Selection

    def again(self, split: frozenset[Axis] | None, without: frozenset[int] = frozenset()) -> Selection | None:
        """The same with loops over other axes, or without storing values of some classes."""
        return self.extractor.extract(self.cap, split, self.one_pass, without)


@dataclass(frozen=True)
class Built:
    """A candidate, and of which class of the e-graph each of its terms is, by number."""

    candidate: Candidate
    classes: Mapping[int, int]

    @staticmethod
    def of(
        space: SearchSpace,
        selection: Selection,
        budget: int,
        planned: Mapping[int, PlannedCall],
        largest_block: float = math.inf,
        most: float = math.inf,
    ) -> Built:
        """The selected nodes as a program of terms, in blocks of at most so many steps, with chunk lengths.

        **Raises:** `TooManyStepsError` if there are more.
        """
        program = space.program
        terms: dict[int, Term] = {}
        makers: dict[int, str] = {}
        calls: dict[tuple[int, frozenset[Axis]], Call] = {}

        def with_plan(call: Call, args: Sequence[Term]) -> Call:
            opened = frozenset[Axis]().union(*(arg.open for arg in args)) & call.cut
            if (call.id, opened) not in calls:
                if call.id in planned:
                    makers.update(planned[call.id].makers)
                    call = planned[call.id].call
                calls[call.id, opened] = in_chunks(call, opened, program.terms)
            return calls[call.id, opened]

        for number, node in selection.nodes.items():
            args = [terms[child] for child in node.children]
            op = node.op
            if isinstance(op, Opaque) and op.call.bodies:
                op = Opaque(with_plan(op.call, args), op.result)
            term = program.terms.make(op, args)
            terms[number] = term
            if node.maker == EQUATED:
                makers[term.number] = KNOWN_AS.get(type(node.op), REORDERED)
            elif node.maker != LOADED:
                makers[term.number] = space.rules[node.maker].name
        class_of = space.saturation.graph.class_of
        makers.update(simplified(space, terms))
        outputs = tuple(
            Output(terms[class_of[output.term.number]], output.layout) for output in program.outputs
        )
        for number, place in space.places.items():
            if number in terms:
                program.terms.origins.setdefault(terms[number].number, place)
        alike = tuple(terms[number] for number in space.families.computed(selection.nodes))
        wide = widened(replace(program, outputs=outputs, equalities=(), facts=(), alike=alike))
        classes: dict[int, int] = {}
        for number, term in terms.items():
            for made in wide.terms.get(term.number, (term,)):
                classes[made.number] = number
                if term.number in makers:
                    makers.setdefault(made.number, makers[term.number])
        block = build(wide.program, most)
        candidate = scheduled(wide.program, block, makers, budget, space.machine, largest_block)
        candidate = with_kept(candidate, budget, space.machine, largest_block)
        return Built(candidate, classes)


class CandidateBuilder:
    """Builds candidates from what has been extracted under a cap.

    **Attributes:**

    - `found`: the candidates, but for those that have been made before.
    - `built`: each with what it was built from.
    - `repetitive`: what was extracted, but is put off.
    """

    def __init__(self, state: ExtractionState, budget: int, largest_block: float = math.inf) -> None:
        self.space = state.space
        self.budget = budget
        self.planned = state.counted
        self.seen = state.seen
        self.largest_block = largest_block
        self.inside = {(-number - 1, id(call)) for number, call in state.counted.items()}
        self.found: list[Candidate] = []
        self.built: list[tuple[Extraction, Built]] = []
        self.repetitive: list[Extraction] = []

    def add(self, extraction: Extraction) -> None:
        """Enter what was extracted."""
        if not self._is_new(extraction.selection):
            return
        try:
            self._add(extraction, max(FEW_STEPS, REPEATED * len(extraction.selection.nodes)))
        except TooManyStepsError:
            self.repetitive.append(extraction)

    def add_repetitive(self) -> None:
        """Enter what was put off, as its loops do most things again and again."""
        for extraction in self.repetitive:
            self._add(extraction)

    def _add(self, extraction: Extraction, most: float = math.inf) -> None:
        built = self._build(extraction.selection, most)
        useful = useful_axes(built.candidate.schedule)
        if useful != {loop.axis for loop in built.candidate.schedule.block.loops}:
            # Some loop iterates only once: better none at all, if the cap allows.
            plainer = extraction.again(useful)
            if plainer is not None:
                extraction = replace(extraction, split=useful, selection=plainer)
                built = self._build(plainer)
        self.found.append(built.candidate)
        self.built.append((extraction, built))

    def computing_inside(self, seconds: float) -> list[Candidate]:
        """A candidate that computes in its loops what others would slice there, so that chunks can be longer.

        That is looked at for what would be the fastest with more memory, if it then took less than `seconds`.
        """
        slicing = [one for one in self.built if _slices(one[0].selection)]
        ample = [rechunk(built.candidate, math.inf, self.space.machine) for _, built in slicing]
        places = range(len(slicing))
        fastest = min(places, key=lambda place: ample[place].predicted_seconds, default=None)
        if fastest is None:
            return []
        extraction, built = slicing[fastest]
        before = min(seconds, built.candidate.predicted_seconds)
        if ample[fastest].predicted_seconds >= WORTH_MEMORY * before:
            return []
        selection = extraction.again(
            extraction.split, self._whole_along(built.candidate, extraction.extractor)
        )
        return [] if selection is None or not self._is_new(selection) else [self._build(selection).candidate]

    def _whole_along(self, candidate: Candidate, extractor: Extractor) -> frozenset[int]:
        """The classes of what has the axis of an outermost loop, computed whole, and is of some size."""
        loops = frozenset(loop.axis for loop in candidate.schedule.block.own_loops)
        some = (self.budget - self.space.program.fixed_bytes) / SMALL_SHARE
        return frozenset(
            number
            for number, eclass in enumerate(self.space.saturation.graph.classes)
            if loops & (eclass.axes - eclass.open)
            and extractor.bytes[number] > some
            and not extractor.given[number]
        )

    def spilling(self, extraction: Extraction, built: Built, seconds: float = math.inf) -> list[Candidate]:
        """Candidates with lower and lower peaks than one that is too big, all of them faster than `seconds`.

        In each, one more of the values alive at the peak is not stored: the largest that need not be, or of
        several, if it is to be faster than something, that with which it is fastest.
        """
        found: list[Candidate] = []
        without: frozenset[int] = frozenset()
        most_tried = 1 if seconds == math.inf else MOST_LIVE
        while len(found) < MOST_SPILLED and built.candidate.predicted_peak > self.budget:
            fewer = list(islice(self._spilling_one(extraction, built, without, seconds), most_tried))
            if not fewer:
                break
            found += [other.candidate for _, other in fewer]
            without, built = min(fewer, key=lambda one: self._ranked(one[1].candidate))
        return found

    def _ranked(self, candidate: Candidate) -> tuple[bool, float]:
        return candidate.predicted_peak > self.budget, candidate.predicted_seconds

    def _spilling_one(
        self, extraction: Extraction, built: Built, without: frozenset[int], seconds: float
    ) -> Iterator[tuple[frozenset[int], Built]]:
        live = simulate(built.candidate.schedule, self.space.machine)[1].live
        numbers = [built.classes[term.number] for term, _ in live if term.number in built.classes]
        for number in [number for number in numbers if number not in without][:MOST_LIVE]:
            fewer = without | {number}
            selection = extraction.again(extraction.split, fewer)
            if selection is None or selection.seconds >= seconds or not self._is_new(selection):
                continue
            other = self._build(selection)
            if (
                other.candidate.predicted_peak < built.candidate.predicted_peak
                and other.candidate.predicted_seconds < seconds
            ):
                yield fewer, other

    def _build(self, selection: Selection, most: float = math.inf) -> Built:
        return Built.of(self.space, selection, self.budget, self.planned, self.largest_block, most)

    def _is_new(self, selection: Selection) -> bool:
        """Whether that was not selected before; from now on, it was."""
        key = frozenset(self.inside | {(number, id(node)) for number, node in selection.nodes.items()})
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


def _slices(selection: Selection) -> bool:
    """Whether a loop reads slices of something that is computed before it."""
    nodes = selection.nodes
    chunks = (nodes[node.children[0]] for node in nodes.values() if isinstance(node.op, Chunk))
    return any(whole.children for whole in chunks)
