"""Extracts programs under lower and lower caps on stored values; if none fits, programs that store less."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.ir.axis import Axis
from eqsat.planning.candidate_builder import BuiltCandidate, CandidateBuilder, Extraction
from eqsat.planning.candidates import Candidate, useful_axes
from eqsat.planning.caps import between, caps
from eqsat.planning.extraction_state import ExtractionState
from eqsat.planning.extractors import cheapest
from eqsat.planning.liveness import largest_stored
from eqsat.planning.loop_axes import computed
from eqsat.planning.programs_under_cap import built_under, ranked
from eqsat.planning.search_space import SearchSpace
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.units import format_bytes

MOST_SPILLING = 4
"""The number of programs that are too big, lowest peaks first, whose variants that store less are tried."""

MUCH_FASTER = 0.5
"""A program that is too big is revisited if it should take less than this part of the best time that fits."""


@dataclass(frozen=True)
class UnderCap:
    """Extract the cheapest programs that store no value of more than `cap` bytes."""

    cap: float

    def __str__(self) -> str:
        return f"programs that store no value over {format_bytes(int(self.cap))}"


@dataclass(frozen=True)
class StoringLess:
    """Extract variants of a program that is too big.

    Step by step, one more value is excluded from storage. All variants are faster than `seconds`.
    """

    builder: CandidateBuilder
    extraction: Extraction
    built: BuiltCandidate
    seconds: float = math.inf

    @property
    def peak(self) -> int:
        """The predicted peak of the program that is too big, in bytes."""
        return self.built.candidate.predicted_peak

    def __str__(self) -> str:
        return f"programs that store less than one of {format_bytes(self.peak)}"


@dataclass(frozen=True)
class Repetitive:
    """Build the programs that were put off because their loops repeat most of their work."""

    builder: CandidateBuilder

    def __str__(self) -> str:
        return "programs whose loops repeat most of their work"


@dataclass(frozen=True)
class WithoutLoops:
    """Extract the cheapest program without loops, whatever it stores."""

    def __str__(self) -> str:
        return "the fastest program without loops"


Step = UnderCap | StoringLess | Repetitive | WithoutLoops
"""One step of the extraction."""


class CappedExtraction:
    """Extracts the candidates of one search space step by step; each step gives the fastest that fits first.

    The caps come first, from the highest one down; if one is too low for any program and none fits, those
    between it and the last one. As soon as one gives a program that should fit, a step is added for a program
    that is too big but much faster, if there is one; if no variant of that fits, caps in between are tried,
    too. If no cap gives a program that should fit, steps are added for those that nearly do.

    **Attributes:**

    - `budget`: bytes of arguments, outputs and temporaries.
    - `steps`: the steps to take next; taking one may add more.
    """

    def __init__(self, space: SearchSpace, budget: int, deadline: Deadline, steps: Iterable[Step]) -> None:
        self.budget = budget
        self.states = [ExtractionState.of(space)]
        if (for_chunks := self.states[0].for_chunks()) is not None:
            self.states.append(for_chunks)
        self.deadline = deadline
        self.steps = deque(steps)
        self._too_big: list[StoringLess] = []
        self._put_off: list[CandidateBuilder] = []
        self._fits = False
        self._fastest = math.inf
        self._capped = True
        self._coarse = True
        # Caps to try next, unless what was too big but much faster fits if it stores less.
        self._skipped: list[Step] = []

    @staticmethod
    def within(
        space: SearchSpace,
        budget: int,
        deadline: Deadline = NO_DEADLINE,
        before: SearchSpace | None = None,
    ) -> CappedExtraction:
        """The extraction for a budget; caps above its memory for temporaries make no difference.

        **Arguments:**

        - `before`: a space of which all has been extracted; loops over its axes alone are left out.
        """
        free = min(budget - space.program.fixed_bytes, _largest(space))
        extraction = CappedExtraction(space, budget, deadline, map(UnderCap, caps(free)))
        if before is not None:
            known = frozenset(before.large)
            splits = extraction.states[0].splits
            extraction._loop_over([one for one in splits if one is None or not one <= known])
        return extraction

    @staticmethod
    def least(space: SearchSpace, deadline: Deadline = NO_DEADLINE) -> CappedExtraction:
        """The extraction under all caps that make a difference, with no memory for temporaries."""
        steps = map(UnderCap, caps(_largest(space)))
        return CappedExtraction(space, space.program.fixed_bytes, deadline, steps)

    @staticmethod
    def without_loops(space: SearchSpace, budget: int, deadline: Deadline = NO_DEADLINE) -> CappedExtraction:
        """The extraction of the cheapest program without loops alone."""
        return CappedExtraction(space, budget, deadline, [WithoutLoops()])

    @staticmethod
    def like(
        candidate: Candidate, space: SearchSpace, budget: int, deadline: Deadline = NO_DEADLINE
    ) -> CappedExtraction:
        """The extraction of programs that loop over the axes of a candidate, and store nothing larger."""
        axes = useful_axes(candidate.schedule)
        if not axes:
            return CappedExtraction.within(space, budget, deadline)
        largest = largest_stored(candidate.schedule, space.machine)
        extraction = CappedExtraction(space, budget, deadline, map(UnderCap, caps(largest)))
        extraction._loop_over([axes])
        return extraction

    def _loop_over(self, splits: Sequence[frozenset[Axis] | None]) -> None:
        """Extract only programs with loops over these sets of axes."""
        for state in self.states:
            state.splits = tuple(splits)

    @property
    def space(self) -> SearchSpace:
        """The space that programs are extracted from."""
        return self.states[0].space

    def next_step(self) -> Step | None:
        """The step to take next; None if there is none left."""
        if not self.steps and self._capped:
            self._capped = False
            if not self._too_big:
                self.steps += map(Repetitive, self._put_off)
        if not self.steps and not self._fits:
            self._fits = True  # what follows is done only once
            if self._too_big and not self.hopeless:
                self.steps += sorted(self._too_big, key=lambda step: step.peak)[:MOST_SPILLING]
        return self.steps[0] if self.steps else None

    @cached_property
    def hopeless(self) -> bool:
        """Whether no program can fit. With no memory for temporaries, the smallest is wanted all the same."""
        return self.budget > self.space.program.fixed_bytes and self.space.fits_nowhere(self.budget)

    def take(self) -> list[Candidate]:
        """Take the next step and return its candidates; after the deadline, only those extracted so far."""
        match self.steps.popleft():
            case UnderCap(cap):
                return self._under(cap)
            case StoringLess(builder, extraction, built, seconds):
                fewer = [] if self.deadline.passed() else builder.spilling(extraction, built, seconds)
                if all(one.predicted_peak > self.budget for one in fewer):
                    self.steps.extendleft(reversed(self._skipped))
                self._skipped.clear()
                return ranked(fewer, self.budget)
            case Repetitive(builder):
                if self.deadline.passed():
                    return []
                builder.add_repetitive()
                return ranked(builder.found, self.budget)
            case WithoutLoops():
                best = cheapest(self.space, self.budget)
                return [] if best is None else [best]

    def came_out(self, candidate: Candidate, bound: float, seconds: float) -> bool:
        """Add a step for variants of a program that came out too big, whatever its chunks.

        **Arguments:**

        - `bound`: bytes that a variant should be predicted to need.
        - `seconds`: a variant should take less time.

        **Returns:** whether there is such a step.
        """
        for step in self._too_big:
            if step.built.candidate.schedule.program is candidate.schedule.program:
                less = replace(step, builder=step.builder.within(bound), seconds=seconds)
                self.steps.appendleft(less)
                return True
        return False

    def _under(self, cap: float) -> list[Candidate]:
        builders = []
        for state in self.states:
            unlike = None if state is self.states[0] else self.states[0]
            builder = built_under(state, cap, self.budget, self.deadline, unlike=unlike)
            builders += [] if builder is None else [builder]
        if all(state.exhausted for state in self.states):
            self.steps.clear()  # lower caps allow nothing that this one does not
            if self._coarse and not self._fits:
                self.steps += map(UnderCap, between(cap))
            self._coarse = False
        self._put_off += [builder for builder in builders if builder.repetitive]
        found = [candidate for builder in builders for candidate in builder.found]
        if not found:
            return []
        fitting = [c.predicted_seconds for c in found if c.predicted_peak <= self.budget]
        if not (fitting or self._fits) and self.hopeless:
            self.steps.clear()
        self._fastest = min([self._fastest, *fitting])
        inside = [one for builder in builders for one in builder.computing_inside(self._fastest)]
        within = [c.predicted_seconds for c in inside if c.predicted_peak <= self.budget]
        self._fastest = min([self._fastest, *within])
        if fitting and not self._fits:
            enough = MUCH_FASTER * min(fitting)
            # Chunks of a program that does not fit are the shortest, so its time is extraction's estimate.
            faster = [step for step in self._too_big if step.extraction.selection.seconds < enough]
            best = min(faster, key=lambda step: step.built.candidate.predicted_seconds, default=None)
            if best is not None:
                self.steps.appendleft(replace(best, seconds=min(fitting)))
                self._skipped += map(UnderCap, between(cap))
            self._fits = True
        self._too_big += [
            StoringLess(builder, extraction, built)
            for builder in builders
            for extraction, built in builder.built
        ]
        return ranked([*found, *inside], self.budget)


def attempts(space: SearchSpace, budget: int, deadline: Deadline = NO_DEADLINE) -> Iterator[list[Candidate]]:
    """The candidates for a budget, step by step."""
    return _groups(CappedExtraction.within(space, budget, deadline))


def every_attempt(
    space: SearchSpace, deadline: Deadline = NO_DEADLINE, spills: bool = True
) -> Iterator[list[Candidate]]:
    """The candidates under all caps that make a difference, step by step, with no memory for temporaries.

    **Arguments:**

    - `spills`: whether to look for those that do without what is alive at the peak.
    """
    return _groups(CappedExtraction.least(space, deadline), spills)


def first_fitting(extraction: CappedExtraction, spills: bool = True) -> Candidate | None:
    """The fastest candidate of the first step that gives one that should fit.

    **Arguments:**

    - `spills`: whether to look for those that do without what is alive at the peak.
    """
    for found in _groups(extraction, spills):
        if found[0].predicted_peak <= extraction.budget:
            return found[0]
    return None


def _groups(extraction: CappedExtraction, spills: bool = True) -> Iterator[list[Candidate]]:
    while (step := extraction.next_step()) is not None:
        if isinstance(step, StoringLess) and not spills:
            return
        if group := extraction.take():
            yield group


def _largest(space: SearchSpace) -> int:
    """Bytes of the largest value that a program computes: caps above it make no difference."""
    return max((term.bytes for term, _ in computed(space.program)), default=0)
