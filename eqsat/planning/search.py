"""The search for a plan: caps on what is stored, from none downwards, and which axes to loop over."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor, Inside
from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, iterations
from eqsat.planning.candidate_builder import Made, Maker, Way
from eqsat.planning.candidates import Candidate, as_written
from eqsat.planning.liveness import largest_stored
from eqsat.planning.search_space import PlannedCall, Search, SearchProgress, computed
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.gc_pause import uncollected

CAP_STEP = 10**0.5
"""Factor between the caps tried. They are the same for all budgets: more memory means more to choose from."""

LOWEST_CAP = 1 << 10
"""No lower caps are tried, in bytes: a compiled loop needs as much to keep count."""

MOST_SPILLING = 4
"""For so many programs that are too big, those of the lowest peaks, others are looked for that store less."""

MUCH_FASTER = 0.5
"""What is too big but predicted to take less than this part of the time of what fits is looked at again."""


def attempts(search: Search, budget: int, deadline: Deadline = NO_DEADLINE) -> Iterator[list[Candidate]]:
    """Candidates under lower and lower caps; in each list the fastest that should fit comes first.

    After the deadline, there are no more than have been found.
    """
    return _under(caps(min(budget - search.program.fixed_bytes, _largest(search))), search, budget, deadline)


def first_fitting(search: Search, budget: int, deadline: Deadline = NO_DEADLINE) -> Candidate | None:
    """The fastest of the candidates under the highest cap that has one which should fit."""
    for found in attempts(search, budget, deadline):
        if found[0].predicted_peak <= budget:
            return found[0]
    return None


def every_attempt(search: Search, deadline: Deadline = NO_DEADLINE) -> Iterator[list[Candidate]]:
    """Candidates under all caps that make a difference, made as if there were no memory for temporaries."""
    return _under(caps(_largest(search)), search, search.program.fixed_bytes, deadline)


def _largest(search: Search) -> int:
    """Bytes of the largest value of a program: caps above that make no difference."""
    return max((term.bytes for term, _ in computed(search.program)), default=0)


def _under(
    tried: Iterator[float], search: Search, budget: int, deadline: Deadline
) -> Iterator[list[Candidate]]:
    """The candidates under each cap.

    If all of them store too much together, then others that store less; and as soon as one fits, others that
    store less than those before it, if these are much faster.
    """
    progress = SearchProgress()
    too_big: list[tuple[Maker, Way, Made]] = []
    put_off: list[Maker] = []
    fits, fastest = False, math.inf
    for cap in tried:
        maker = _making(search, cap, budget, progress, deadline)
        if maker is not None:
            put_off += [maker] if maker.repetitive else []
        if maker is not None and maker.found:
            fitting = [c.predicted_seconds for c in maker.found if c.predicted_peak <= budget]
            fastest = min([fastest, *fitting])
            inside = maker.computing_inside(fastest)
            fastest = min([fastest, *(c.predicted_seconds for c in inside if c.predicted_peak <= budget)])
            yield _ranked([*maker.found, *inside], budget)
            if fitting and not fits:
                enough = MUCH_FASTER * min(fitting)
                # Its chunks are the shortest, as nothing fits: how long it would take, extraction tells.
                faster = [one for one in too_big if one[1].selection.seconds < enough]
                faster.sort(key=lambda found: found[2].candidate.predicted_seconds)
                yield from _spilling(faster[:1], budget, deadline, min(fitting))
            fits = fits or bool(fitting)
            too_big += [(maker, way, made) for way, made in maker.ways]
        if progress.exhausted:
            break
    for maker in put_off if not too_big else ():
        if not deadline.passed():
            maker.add_repetitive()
            yield _ranked(maker.found, budget)
    if not fits:
        too_big.sort(key=lambda found: found[2].candidate.predicted_peak)
        yield from _spilling(too_big[:MOST_SPILLING], budget, deadline)


def _spilling(
    too_big: Iterable[tuple[Maker, Way, Made]], budget: int, deadline: Deadline, seconds: float = math.inf
) -> Iterator[list[Candidate]]:
    """For each of some candidates others that store less, and are faster than `seconds`."""
    for maker, way, made in too_big:
        found = [] if deadline.passed() else maker.spilling(way, made, seconds)
        if found:
            yield _ranked(found, budget)


def _ranked(found: Iterable[Candidate], budget: int) -> list[Candidate]:
    return sorted(found, key=lambda c: (c.predicted_peak > budget, c.predicted_seconds))


def caps(free: float) -> Iterator[float]:
    """The caps to try where so many bytes are left for temporaries: from the next one above downwards.

    >>> [round(cap) for cap in caps(25_000)]
    [32382, 10240, 3238, 1024]
    """
    steps = math.ceil(math.log(max(free / LOWEST_CAP, 1.0), CAP_STEP))
    for step in range(steps, -1, -1):
        yield LOWEST_CAP * CAP_STEP**step


@uncollected()
def _making(
    search: Search,
    cap: float,
    budget: int,
    progress: SearchProgress,
    deadline: Deadline,
    largest_block: float = math.inf,
) -> Maker | None:
    """The candidates under a cap that have not been seen, or repetitive ways; None if there are neither."""
    planned = _planned_calls(search, cap, budget - search.program.fixed_bytes, deadline)
    chunks = _nominal_chunks(search, cap)
    extractor = progress.extractor
    if extractor is None or progress.planned != planned or extractor.model.chunks != chunks:
        extractor = progress.extractor = _extractor(search, CostModel(search.machine, chunks), planned)
        progress.planned = planned
    elif progress.largest <= cap:
        return None  # Nothing more is struck out than under the last cap.
    progress.largest = extractor.largest_stored(cap)
    maker = Maker(search, budget, planned, progress.seen, largest_block)
    progress.exhausted = True
    for way in _ways(search, extractor, cap):
        progress.exhausted = False
        if deadline.passed():
            break
        maker.add(way)
    return maker if maker.found or maker.repetitive else None


def _ways(search: Search, extractor: Extractor, cap: float) -> Iterator[Way]:
    """The cheapest programs under a cap, one for each way to loop: over one axis, and over any.

    Over two axes, if it can't be one.
    """
    enough = False
    for split in _splits(search.large):
        if enough and split is not None and len(split) > 1:
            continue
        selection = extractor.extract(cap, split)
        if selection is None:
            continue
        enough = True
        yield Way(extractor, cap, split, False, selection)
        if not selection.one_pass:
            lean = extractor.extract(cap, split, one_pass=True)
            if lean is not None:
                yield Way(extractor, cap, split, True, lean)


def _planned_calls(search: Search, cap: float, free: int, deadline: Deadline) -> dict[int, PlannedCall]:
    """The search's control flow, by number, with the best programs for its bodies under a cap."""
    for call, searches in search.bodies.items():
        best = tuple(
            inner if isinstance(inner, Candidate) else _best_body(inner, cap, free, deadline)
            for body, inner in zip(call.bodies, searches, strict=True)
        )
        before = search.planned.get(call.id)
        if before is not None and all(map(operator.is_, before.found, best)):
            continue
        programs = [
            body if isinstance(inner, Candidate) else Body(candidate.schedule.program, body.sources)
            for body, inner, candidate in zip(call.bodies, searches, best, strict=True)
        ]
        assert call.control is not None
        makers = {number: name for candidate in best for number, name in candidate.makers.items()}
        inside = Inside(
            iterations(call.control) * sum(candidate.seconds for candidate in best),
            max(largest_stored(candidate.schedule, search.machine) for candidate in best),
        )
        search.planned[call.id] = PlannedCall(replace(call, bodies=tuple(programs)), makers, inside, best)
    return dict(search.planned)


def _best_body(search: Search, cap: float, free: int, deadline: Deadline) -> Candidate:
    """The program for a body under a cap; that of the latest higher one if there is none."""
    budget = free + search.program.fixed_bytes
    # What the body stores counts with the call, under the same cap.
    making = _making(search, cap, budget, search.progress, deadline, cap)
    if making is not None:
        if not making.found:
            making.add_repetitive()
        search.latest[:] = _ranked(making.found, budget)[:1]
    elif not search.latest:
        search.latest.append(as_written(search.program, search.machine))
    return search.latest[0]


def cheapest(search: Search, budget: int) -> Candidate | None:
    """The fastest program whatever it stores, without loops."""
    extractor = _extractor(search, CostModel(search.machine, {}), {})
    selection = extractor.extract(math.inf, frozenset())
    return None if selection is None else Made.of(search, selection, budget, {}).candidate


def _splits(large: Sequence[Axis]) -> Iterator[frozenset[Axis] | None]:
    """Which axes may be looped over: each alone, any two of several, then any of them."""
    for axis in large:
        yield frozenset({axis})
    if len(large) > 2:
        yield from map(frozenset, combinations(large, 2))
    if len(large) != 1:
        yield None


def _nominal_chunks(search: Search, cap: float) -> dict[Axis, int]:
    """Chunk lengths to extract with.

    A slice of the largest term or input should be within cap and cache, but if the cap allows, enough rows
    for a matrix product to run at full speed.
    """
    largest: dict[Axis, int] = {}
    given = ((leaf, leaf.axes) for leaf in search.program.inputs)
    for term, axes in (*computed(search.program), *given):
        for axis in axes:
            largest[axis] = max(largest.get(axis, 1), term.bytes)
    block = min(cap, search.machine.cache)
    chunks = {}
    for axis in search.large:
        fast = int(axis.size * block / largest.get(axis, 1))
        most = int(axis.size * cap / largest.get(axis, 1))
        chunks[axis] = max(1, min(axis.size, max(fast, min(search.machine.rows, most))))
    return chunks


def _extractor(search: Search, model: CostModel, planned: Mapping[int, PlannedCall]) -> Extractor:
    class_of = search.saturation.graph.class_of
    roots = [class_of[output.term.number] for output in search.program.outputs]
    inside = {number: call.inside for number, call in planned.items()}
    return Extractor(search.saturation.graph, model, roots, inside, search.families)
