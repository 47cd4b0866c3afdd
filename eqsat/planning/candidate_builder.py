"""Builds candidates from extracted programs, and from programs that store less if those do not fit."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from eqsat.engine.extract import Extractor
from eqsat.engine.node_choices import Selection
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk
from eqsat.planning.candidates import Candidate, rechunk, scheduled, useful_axes
from eqsat.planning.chunks import WORTH_MEMORY
from eqsat.planning.extracted_programs import built_program
from eqsat.planning.extraction_state import ExtractionState, PlannedCall
from eqsat.planning.liveness import largest_stored, simulate, stored_values
from eqsat.planning.loops import TooManyStepsError, build
from eqsat.planning.materialisation import with_kept
from eqsat.planning.search_space import SearchSpace
from eqsat.planning.sunk_values import with_sunk_values

MOST_LIVE = 4
"""The number of values alive at the peak, largest first, that are tried as candidates not to be stored."""

SMALL_SHARE = 64
"""A value smaller than 1/64 of the memory for temporaries may be computed before the loop that reads it."""

MOST_SPILLED = 6
"""Excluding values from storage, one after another, stops after this many candidates."""

NO_SMALLER = 1.01
"""By how much a value may be larger that is stored in place of another: an array that is padded elsewhere."""

SPILLING_EFFORT = 10_000
"""The number of e-nodes, of all extractions together, after which the search for a lower peak stops."""

REPEATED = 6
"""A program is repetitive if it has more steps than this number times its terms.

Several of its loops then repeat the same work. Extraction counted them as one loop, so the program is far
slower than extraction predicted.
"""

FEW_STEPS = 3_000
"""A program of at most this many steps is never put off as repetitive."""


@dataclass(frozen=True)
class Extraction:
    """A program extracted under a cap on the size of stored values, with loops over some axes.

    **Attributes:**

    - `unmade`: the e-classes that it does without.
    """

    extractor: Extractor
    cap: float
    split: frozenset[Axis] | None
    one_pass: bool
    selection: Selection
    unmade: frozenset[int] = frozenset()

    def again(
        self,
        split: frozenset[Axis] | None,
        without: frozenset[int] = frozenset(),
        unmade: frozenset[int] = frozenset(),
        switches: bool = True,
    ) -> Selection | None:
        """The same extraction with loops over other axes, or without storing or making some e-classes.

        **Arguments:**

        - `switches`: whether local search improves it.
        """
        unmade |= self.unmade
        return self.extractor.extract(self.cap, split, self.one_pass, without, unmade, switches)


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
        if not space.streams:
            candidate = with_sunk_values(candidate, budget, space.machine, largest_block)
        kept = with_kept(candidate, budget, space.machine, largest_block)
        if space.streams and kept is not candidate:
            # What is kept leaves less room for chunks that are read, whose lengths are not known yet.
            kept = replace(kept, recomputing=candidate)
        return BuiltCandidate(kept, built.classes)


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

    def within(self, budget: float) -> CandidateBuilder:
        """The builder with a smaller budget, and nothing built yet."""
        other = copy(self)
        other.budget, other.found, other.built, other.repetitive = int(budget), [], [], []
        return other

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
        inside = self._without(extraction, Spilled(self._whole_along(built.candidate, extraction.extractor)))
        return [] if inside is None else [inside.candidate]

    def storing_less(self, cap: float, extractor: Extractor) -> Candidate | None:
        """A candidate without the values over a cap that others store; None if there is none.

        Extraction took these values for computed on the fly, but schedules store what several read.
        """
        for extraction, built in self.built:
            stored = stored_values(built.candidate.schedule, self.space.machine)
            large = frozenset(
                built.classes[term.number]
                for term, size in stored
                if size > cap and term.number in built.classes
            )
            again = replace(extraction, cap=cap, extractor=extractor)
            other = self._without(again, Spilled(not_made=large)) if large else None
            if other is not None and largest_stored(other.candidate.schedule, self.space.machine) <= cap:
                return other.candidate
        return None

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
        """Candidates with lower peaks than one that is too big, all of them faster than `seconds`.

        Each excludes more of the values alive at the peak from storage. If `seconds` is infinite, the search
        goes on from the candidate with the lowest peak, or else from the fastest one, until one should fit.
        If there is some memory for temporaries, and a program would be too big without the largest values of
        all, it is left.
        """
        return (
            self._smaller(extraction, built)
            if seconds == math.inf
            else self._faster(extraction, built, seconds)
        )

    def _smaller(self, extraction: Extraction, built: BuiltCandidate) -> list[Candidate]:
        """The candidates of a best-first search for the lowest peak."""
        found: list[Candidate] = []
        inside = Spilled(self._whole_along(built.candidate, extraction.extractor))
        frontier = [(built.candidate.predicted_peak, 0, Spilled(), built)]
        left = max(SPILLING_EFFORT, MOST_SPILLED * len(extraction.selection.nodes))
        while frontier:
            peak, _, spilled, built = heapq.heappop(frontier)
            numbers = self._spillable(built, spilled, MOST_SPILLED)
            ways = [inside] if numbers and spilled == Spilled() else []
            for number in numbers:
                ways += [spilled.without(number), spilled.unmade(number)]
            for fewer in ways:
                if left < 0:
                    return found
                left -= len(extraction.selection.nodes)
                other = self._without(extraction, fewer, switches=False)
                # Without one of several values that are cheap to compute from each other, another is stored.
                if other is None or other.candidate.predicted_peak > NO_SMALLER * peak:
                    continue
                found.append(other.candidate)
                if other.candidate.predicted_peak <= self.budget:
                    better = self._without(extraction, fewer)
                    return found if better is None else [*found, better.candidate]
                heapq.heappush(frontier, (other.candidate.predicted_peak, -len(found), fewer, other))
        return found

    def _faster(self, extraction: Extraction, built: BuiltCandidate, seconds: float) -> list[Candidate]:
        """Candidates faster than `seconds`, of which one after the other excludes one more value."""
        found: list[Candidate] = []
        spilled = Spilled()
        while len(found) < MOST_SPILLED and built.candidate.predicted_peak > self.budget:
            numbers = self._spillable(built, spilled, MOST_SPILLED - len(found))
            fewer = list(self._spilling_one(extraction, built, spilled, numbers, seconds))
            if not fewer:
                break
            found += [other.candidate for _, other in fewer]
            spilled, built = min(fewer, key=lambda one: self._ranked(one[1].candidate))
        return found

    def _spillable(self, built: BuiltCandidate, spilled: Spilled, most: int) -> list[int]:
        """The e-classes of the largest values at the peak; none if it is too big without `most` of them."""
        usage = simulate(built.candidate.schedule, self.space.machine)[1]
        largest = sum(size for _, size in usage.live[:most])
        if built.candidate.predicted_peak - largest > self.budget > self.space.program.fixed_bytes:
            return []
        # Without a value that takes the place of a result, another one may take it.
        live = (term.number for term, _ in usage.live_or_hosted)
        numbers = dict.fromkeys(built.classes[number] for number in live if number in built.classes)
        return [number for number in numbers if number not in spilled][:MOST_LIVE]

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
        for number in numbers:
            for fewer in (spilled.without(number), spilled.unmade(number)):
                other = self._without(extraction, fewer, seconds)
                if (
                    other is not None
                    and other.candidate.predicted_peak < built.candidate.predicted_peak
                    and other.candidate.predicted_seconds < seconds
                ):
                    yield fewer, other
                    break

    def _without(
        self, extraction: Extraction, spilled: Spilled, seconds: float = math.inf, switches: bool = True
    ) -> BuiltCandidate | None:
        """The candidate that does without some e-classes; None if it is not new, or not faster than this."""
        selection = extraction.again(extraction.split, spilled.not_stored, spilled.not_made, switches)
        if selection is None or selection.seconds >= seconds or not self._is_new(selection):
            return None
        return self._build(selection)

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
