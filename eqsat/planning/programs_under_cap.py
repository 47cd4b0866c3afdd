"""Builds the programs under one cap on stored values, from those for the bodies of control flow outwards."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.engine.node_choices import Inside
from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, iterations
from eqsat.planning.candidate_builder import CandidateBuilder, Extraction
from eqsat.planning.candidates import Candidate, as_written, rechunk
from eqsat.planning.caps import CAP_STEP
from eqsat.planning.extraction_state import ExtractionState, PlannedCall
from eqsat.planning.extractors import extractor_of, nominal_chunks
from eqsat.planning.liveness import largest_stored
from eqsat.support.deadline import Deadline
from eqsat.support.gc_pause import uncollected

FAR = 4
"""A program that needs this many times the memory for temporaries is far too big."""

FURTHER_CAPS = 2
"""How many lower caps are tried for a body of which no program under a cap keeps to it."""


def ranked(found: Iterable[Candidate], budget: int) -> list[Candidate]:
    """Candidates by predicted time, those that should fit first."""
    return sorted(found, key=lambda c: (c.predicted_peak > budget, c.predicted_seconds))


@uncollected()
def built_under(
    state: ExtractionState,
    cap: float,
    budget: int,
    deadline: Deadline,
    largest_block: float = math.inf,
    unlike: ExtractionState | None = None,
) -> CandidateBuilder | None:
    """A builder with the new candidates and the repetitive programs under a cap; None if there are none.

    **Arguments:**

    - `unlike`: another state under that cap. If bodies of control flow come to the same in both, there are
      none.
    """
    chunks = nominal_chunks(state.space, cap)
    builder = _built_with(chunks, state, cap, budget, deadline, largest_block, unlike)
    if builder is None and state.exhausted and not deadline.passed():
        shorter = nominal_chunks(state.space, cap, short=True)
        if shorter != chunks:
            builder = _built_with(shorter, state, cap, budget, deadline, largest_block, unlike)
    return builder


def _built_with(
    chunks: Mapping[Axis, int],
    state: ExtractionState,
    cap: float,
    budget: int,
    deadline: Deadline,
    largest_block: float,
    unlike: ExtractionState | None,
) -> CandidateBuilder | None:
    """The same with these lengths of chunks."""
    space = state.space
    counted = _planned_calls(state, cap, budget - space.program.fixed_bytes, deadline, chunks)
    if unlike is not None and _alike(counted, unlike.counted):
        state.exhausted = unlike.exhausted
        return None
    extractor = state.extractor
    if extractor is None or state.counted != counted or extractor.model.chunks != chunks:
        extractor = state.extractor = extractor_of(space, CostModel(space.machine, chunks), counted)
        state.counted = counted
    elif state.largest <= cap <= state.cap:
        return None  # this cap excludes nothing more than the last one did
    state.cap, state.largest = cap, extractor.largest_stored(cap)
    builder = CandidateBuilder(state, budget, largest_block)
    state.exhausted = True
    splits = state.splits
    # Where nothing has to be split, the fastest program of all shows what the others need, more or less.
    unsplit = space.is_long and None in splits and space.largest_as_written <= cap
    if unsplit:
        splits = (None, *(split for split in splits if split is not None))
    most = space.program.fixed_bytes + FAR * max(budget - space.program.fixed_bytes, 0)

    def fits() -> bool:
        return any(candidate.predicted_peak <= budget for candidate in builder.found)

    for extraction in _extractions(extractor, cap, splits, space.dispensable, fits):
        state.exhausted = False
        if deadline.passed():
            break
        builder.add(extraction)
        usual = [built.candidate for extraction, built in builder.built if not extraction.unmade]
        if unsplit and any(candidate.predicted_peak > most for candidate in usual):
            break
    return builder if builder.found or builder.repetitive else None


def _extractions(
    extractor: Extractor,
    cap: float,
    splits: Iterable[frozenset[Axis] | None],
    dispensable: frozenset[int],
    fits: Callable[[], bool],
) -> Iterator[Extraction]:
    """The cheapest programs under a cap that loop over some axes, for each of some sets of axes.

    Once a set is enough, other pairs of axes are left out. What is dispensable may be no larger than what is
    not, so that no cap tells them apart: without it, loops over chunks may not be needed.

    **Arguments:**

    - `fits`: whether one of the programs so far fits.
    """
    enough = False
    for split in (frozenset[Axis](), *splits) if dispensable else ():
        if split is not None and len(split) < 2 and not fits():
            selection = extractor.extract(cap, split, unmade=dispensable)
            if selection is not None:
                yield Extraction(extractor, cap, split, False, selection, dispensable)
    for split in splits:
        if enough and split is not None and len(split) > 1:
            continue
        selection = extractor.extract(cap, split)
        if selection is None:
            continue
        enough = True
        yield Extraction(extractor, cap, split, False, selection)
        if not selection.one_pass:
            lean = extractor.extract(cap, split, one_pass=True)
            if lean is not None:
                yield Extraction(extractor, cap, split, True, lean)


def _planned_calls(
    state: ExtractionState, cap: float, free: int, deadline: Deadline, chunks: Mapping[Axis, int]
) -> dict[int, PlannedCall]:
    """By id, the calls of control flow in a space with the best programs for their bodies under a cap.

    **Arguments:**

    - `chunks`: the lengths of chunks that are assumed. If calls are planned for chunks, values in their
      bodies may be as many times larger than the cap as the axis is longer than a chunk.
    """
    for call, bodies in state.bodies.items():
        cut = [axis.size / chunks[axis] for axis in call.cut if axis in chunks] if state.in_chunks else []
        longer = max(cut, default=1.0)
        # Of chunks, what is around the call may be as many times smaller. Where nothing is left, this form of
        # the call does not fit, whatever its bodies are.
        left = free - (0 if cut else state.space.around[call])
        room = int((left if left > 0 else free) * longer)
        best = tuple(
            inner if isinstance(inner, Candidate) else _best_body(inner, cap * longer, room, deadline)
            for inner in bodies
        )
        before = state.planned.get(call.id)
        if before is not None and all(map(operator.is_, before.found, best)):
            continue
        programs = [
            body if isinstance(inner, Candidate) else Body(candidate.schedule.program, body.sources)
            for body, inner, candidate in zip(call.bodies, bodies, best, strict=True)
        ]
        assert call.control is not None
        makers = {number: name for candidate in best for number, name in candidate.makers.items()}
        inside = Inside(
            iterations(call.control) * sum(candidate.seconds for candidate in best),
            max(largest_stored(candidate.schedule, state.space.machine) for candidate in best),
        )
        state.planned[call.id] = PlannedCall(replace(call, bodies=tuple(programs)), makers, inside, best)
    return dict(state.planned)


def _alike(one: Mapping[int, PlannedCall], other: Mapping[int, PlannedCall]) -> bool:
    """Whether calls take as long and store as much as others."""
    return all(call.inside == other[number].inside for number, call in one.items() if number in other)


def _best_body(state: ExtractionState, cap: float, free: int, deadline: Deadline) -> Candidate:
    """The best program for a body under a cap; else that of the last higher cap; else the body as written."""
    if (cap, free) not in state.best:
        state.best[cap, free] = _extracted_body(state, cap, free, deadline)
    return state.best[cap, free]


def _extracted_body(state: ExtractionState, cap: float, free: int, deadline: Deadline) -> Candidate:
    """The same, extracted."""
    program, machine = state.space.program, state.space.machine
    budget = free + program.fixed_bytes
    found: list[Candidate] = []
    within: list[Candidate] = []
    for steps in range(1 + FURTHER_CAPS):
        # The values that the body stores are subject to the same cap as the call's.
        builder = built_under(state, cap / CAP_STEP**steps, budget, deadline, cap)
        smallest = min((one.predicted_peak for one in state.found), default=math.inf)
        if builder is not None:
            state.builder = builder
            if not builder.found:
                builder.add_repetitive()
            found = builder.found
            if found and all(candidate.predicted_peak > budget for candidate in found):
                extraction, least = min(builder.built, key=lambda one: one[1].candidate.predicted_peak)
                # Under higher caps, variants that store less may have come further.
                if least.candidate.predicted_peak < smallest:
                    found = [*found, *builder.spilling(extraction, least)]
            state.found += found
        # A cap gives only what higher ones did not. Some stores what extraction took for computed on the fly.
        within = [one for one in state.found if largest_stored(one.schedule, machine) <= cap]
        if within or state.exhausted or not state.found or deadline.passed():
            break
    if not within:
        # What higher caps gave may store less in shorter chunks.
        shorter = (rechunk(one, budget, machine, cap) for one in ranked(state.found, budget))
        within = list(
            itertools.islice((one for one in shorter if largest_stored(one.schedule, machine) <= cap), 1)
        )
        state.found += within
    if not within and state.builder is not None and state.extractor is not None and not deadline.passed():
        less = state.builder.storing_less(cap, state.extractor)
        within = [] if less is None else [less]
        state.found += within
    state.latest = next(iter(ranked(within or found, budget)), state.latest)
    if state.latest is None:
        state.latest = as_written(program, machine)
    return state.latest
