"""Builds candidates from extracted programs, and from programs that store less if those do not fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.extract import Extractor, Selection
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Call, Chunk, Map, Op, Opaque, Operation
from eqsat.ir.program import Output, Program
from eqsat.ir.substitution import in_chunks
from eqsat.ir.term import Term
from eqsat.ir.unused_results import without_unused_results
from eqsat.ir.widening import widened
from eqsat.planning.candidates import Candidate, rechunk, scheduled, useful_axes
from eqsat.planning.chunks import WORTH_MEMORY
from eqsat.planning.extraction_state import ExtractionState, PlannedCall
from eqsat.planning.liveness import simulate
from eqsat.planning.loops import TooManyStepsError, build
from eqsat.planning.materialisation import with_kept
from eqsat.planning.search_space import SearchSpace
from eqsat.planning.simplified_terms import simplified
from eqsat.targets.machine import Machine

MOST_LIVE = 4
"""The number of values alive at the peak, largest first, that are tried as candidates not to be stored."""

SMALL_SHARE = 64
"""A value smaller than 1/64 of the memory for temporaries may be computed before the loop that reads it."""

MOST_SPILLED = 6
"""Excluding values from storage, one after another, stops after this many candidates."""

REPEATED = 6
"""A program is repetitive if it has more steps than this number times its terms.

Several of its loops then repeat the same work. Extraction counted them as one loop, so the program is far
slower than extraction predicted.
"""

FEW_STEPS = 3_000
"""A program of at most this many steps is never put off as repetitive."""

NAMED = "named-operation"
"""The report's name for calling a named operation instead of computing its body."""

REMATERIALISED = "rematerialised-in-loop"
"""The report's name for control flow that computes a large operand inside."""

REORDERED = "contraction-order"
"""The report's name for the steps of a contraction of many factors in an order found by a path solver."""

EQUAL = "equal-form"
"""The report's name for what a program is known to be equal to beforehand: a choice by index, for example."""

WRITTEN = "short-sum-written-out"
"""The report's name for a short sum as its entries added up."""


def known_as(op: Op, machine: Machine) -> str:
    """Returns the report's name for an op that was added to the e-graph as part of an equality."""
    match op:
        case Operation():
            return NAMED
        case Opaque(call=call):
            return REMATERIALISED if call.bodies else WRITTEN
        case Map() if machine.written_sum:
            return WRITTEN
        case Map(name=name) if name != "mul":
            return EQUAL
        case _:
            return REORDERED


@dataclass(frozen=True)
class Extraction:
    """A program extracted under a cap on the size of stored values, with loops over some axes."""

    extractor: Extractor
    cap: float
    split: frozenset[Axis] | None
    one_pass: bool
    selection: Selection

    def again(
        self,
        split: frozenset[Axis] | None,
        without: frozenset[int] = frozenset(),
        unmade: frozenset[int] = frozenset(),
    ) -> Selection | None:
        """The same extraction with loops over other axes, or without storing or making some e-classes."""
        return self.extractor.extract(self.cap, split, self.one_pass, without, unmade)


@dataclass(frozen=True)
class Spilled:
    """The e-classes that an extraction does without.

    **Attributes:**

    - `not_stored`: those that nothing may read from memory.
    - `not_made`: those that are not computed at all. Extraction does not know how many read a value, so it
      may take one for computed on the fly that is stored.
    """

    not_stored: frozenset[int] = frozenset()
    not_made: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number in self.not_stored or number in self.not_made

    def without(self, number: int) -> Spilled:
        """Also without storing a class."""
        return replace(self, not_stored=self.not_stored | {number})

    def unmade(self, number: int) -> Spilled:
        """Also without making a class."""
        return replace(self, not_made=self.not_made | {number})


@dataclass(frozen=True)
class BuiltProgram:
    """A program of extracted terms.

    **Attributes:**

    - `makers`: the rules that made its terms, by number.
    - `classes`: the e-class of each of its terms, both by number.
    """

    program: Program
    makers: dict[int, str]
    classes: Mapping[int, int]


def built_program(
    space: SearchSpace, selection: Selection, planned: Mapping[int, PlannedCall]
) -> BuiltProgram:
    """Build the program of a selection."""
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
            makers[term.number] = known_as(node.op, space.machine)
        elif node.maker != LOADED:
            makers[term.number] = space.rules[node.maker].name
    class_of = space.saturation.graph.class_of
    makers.update(simplified(space, terms))
    outputs = tuple(Output(terms[class_of[output.term.number]], output.layout) for output in program.outputs)
    for number, place in space.places.items():
        if number in terms:
            program.terms.origins.setdefault(terms[number].number, place)
    alike = tuple(terms[number] for number in space.families.computed(selection.nodes))
    whole = replace(program, outputs=outputs, equalities=(), facts=(), alike=alike)
    needed, replaced = without_unused_results(whole)
    wide = widened(needed)
    classes: dict[int, int] = {}
    for number, old in terms.items():
        term = replaced.get(old.number, old)
        if old.number in makers:
            makers.setdefault(term.number, makers[old.number])
        for made in wide.terms.get(term.number, (term,)):
            classes[made.number] = number
            if term.number in makers:
                makers.setdefault(made.number, makers[term.number])
    return BuiltProgram(wide.program, makers, classes)


@dataclass(frozen=True)
class BuiltCandidate:
    """A candidate, with the e-class of each of its terms, both by number."""

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
    ) -> BuiltCandidate:
        """Build the candidate of a selection: terms, blocks and chunk lengths.

        **Raises:** `TooManyStepsError` if the blocks have more than `most` steps.
        """
        built = built_program(space, selection, planned)
        block = build(built.program, most)
        candidate = scheduled(built.program, block, built.makers, budget, space.machine, largest_block)
        candidate = with_kept(candidate, budget, space.machine, largest_block)
        return BuiltCandidate(candidate, built.classes)


class CandidateBuilder:
    """Builds candidates from the programs extracted under one cap.

    **Attributes:**

    - `found`: the candidates, without those that were built before.
    - `built`: the same candidates, each with its extraction.
    - `repetitive`: the extractions that were put off as repetitive.
    """

    def __init__(self, state: ExtractionState, budget: int, largest_block: float = math.inf) -> None:
        self.space = state.space
        self.budget = budget
        self.planned = state.counted
        self.seen = state.seen
        self.largest_block = largest_block
        self.inside = {(-number - 1, id(call)) for number, call in state.counted.items()}
        self.found: list[Candidate] = []
        self.built: list[tuple[Extraction, BuiltCandidate]] = []
        self.repetitive: list[Extraction] = []

    def add(self, extraction: Extraction) -> None:
        """Build the candidate of an extraction, or put it off if it is repetitive."""
        if not self._is_new(extraction.selection):
            return
        try:
            self._add(extraction, max(FEW_STEPS, REPEATED * len(extraction.selection.nodes)))
        except TooManyStepsError:
            self.repetitive.append(extraction)

    def add_repetitive(self) -> None:
        """Build the candidates of the extractions that were put off as repetitive."""
        for extraction in self.repetitive:
            self._add(extraction)

    def _add(self, extraction: Extraction, most: float = math.inf) -> None:
        built = self._build(extraction.selection, most)
        useful = useful_axes(built.candidate.schedule)
        if useful != {loop.axis for loop in built.candidate.schedule.block.loops}:
            # Some loop has a single iteration: extract without it, if the cap allows.
            plainer = extraction.again(useful)
            if plainer is not None:
                extraction = replace(extraction, split=useful, selection=plainer)
                built = self._build(plainer)
        self.found.append(built.candidate)
        self.built.append((extraction, built))

    def computing_inside(self, seconds: float) -> list[Candidate]:
        """A candidate that computes inside its loops the values that others slice there, or none.

        Without the values, chunks can be longer. The candidate is derived from the one that would be fastest
        with unlimited memory, provided that it would then take less than `seconds`.
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
        """The e-classes of values that are whole along an outermost loop's axis, computed, and not small."""
        loops = frozenset(loop.axis for loop in candidate.schedule.block.own_loops)
        some = (self.budget - self.space.program.fixed_bytes) / SMALL_SHARE
        return frozenset(
            number
            for number, eclass in enumerate(self.space.saturation.graph.classes)
            if loops & (eclass.axes - eclass.open)
            and extractor.bytes[number] > some
            and not extractor.given[number]
        )

    def spilling(
        self, extraction: Extraction, built: BuiltCandidate, seconds: float = math.inf
    ) -> list[Candidate]:
        """Candidates with lower and lower peaks than one that is too big, all of them faster than `seconds`.

        Each excludes one more of the values alive at the peak from storage. If `seconds` is infinite, that is
        the largest value that can be excluded. Otherwise several are tried, and the search continues from the
        one that gives the fastest program. If there is some memory for temporaries, and the program would be
        too big without the largest values of all, nothing is tried.
        """
        found: list[Candidate] = []
        spilled = Spilled()
        most_tried = 1 if seconds == math.inf else MOST_LIVE
        while len(found) < MOST_SPILLED and built.candidate.predicted_peak > self.budget:
            live = simulate(built.candidate.schedule, self.space.machine)[1].live
            largest = sum(size for _, size in live[: MOST_SPILLED - len(found)])
            if built.candidate.predicted_peak - largest > self.budget > self.space.program.fixed_bytes:
                break
            numbers = [built.classes[term.number] for term, _ in live if term.number in built.classes]
            fewer = list(islice(self._spilling_one(extraction, built, spilled, numbers, seconds), most_tried))
            if not fewer:
                break
            found += [other.candidate for _, other in fewer]
            spilled, built = min(fewer, key=lambda one: self._ranked(one[1].candidate))
        return found

    def _ranked(self, candidate: Candidate) -> tuple[bool, float]:
        return candidate.predicted_peak > self.budget, candidate.predicted_seconds

    def _spilling_one(
        self,
        extraction: Extraction,
        built: BuiltCandidate,
        spilled: Spilled,
        numbers: Sequence[int],
        seconds: float,
    ) -> Iterator[tuple[Spilled, BuiltCandidate]]:
        """Without one more of the e-classes with these `numbers`."""
        for number in [number for number in numbers if number not in spilled][:MOST_LIVE]:
            for fewer in (spilled.without(number), spilled.unmade(number)):
                selection = extraction.again(extraction.split, fewer.not_stored, fewer.not_made)
                if selection is None or selection.seconds >= seconds or not self._is_new(selection):
                    continue
                other = self._build(selection)
                if (
                    other.candidate.predicted_peak < built.candidate.predicted_peak
                    and other.candidate.predicted_seconds < seconds
                ):
                    yield fewer, other
                    break

    def _build(self, selection: Selection, most: float = math.inf) -> BuiltCandidate:
        return BuiltCandidate.of(self.space, selection, self.budget, self.planned, self.largest_block, most)

    def _is_new(self, selection: Selection) -> bool:
        """Whether a selection is new; it counts as seen from now on."""
        key = frozenset(self.inside | {(number, id(node)) for number, node in selection.nodes.items()})
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


def _slices(selection: Selection) -> bool:
    """Whether a loop reads slices of a value that is computed before it."""
    nodes = selection.nodes
    chunks = (nodes[node.children[0]] for node in nodes.values() if isinstance(node.op, Chunk))
    return any(whole.children for whole in chunks)
