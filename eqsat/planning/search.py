"""The search for a plan: caps on what is stored, from none downwards, and which axes to loop over."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.deadline import NO_DEADLINE, Deadline
from eqsat.engine.cost import CostModel
from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.extract import Extractor, Inside, Selection
from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, turns
from eqsat.ir.ops import Call, Opaque, Operation
from eqsat.ir.program import Output
from eqsat.ir.substitution import in_chunks
from eqsat.ir.term import Term
from eqsat.planning.candidates import Candidate, as_written, scheduled, useful_axes
from eqsat.planning.exploring import PlannedCall, Progress, Search, computed, free_bytes
from eqsat.planning.liveness import largest_stored
from eqsat.planning.loops import build

CAP_STEPS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0001)
"""The caps tried, as parts of the memory that is left for temporaries."""

NAMED = "named-operation"
"""What the report calls a named operation that is called instead of its body."""

SUNK = "sunk-into-loop"
"""What it calls control flow that computes a large operand inside."""

REORDERED = "contraction-order"
"""What it calls the steps of a contraction of many factors whose order was found by a path solver."""

KNOWN_AS = {Operation: NAMED, Opaque: SUNK}
"""What it calls ops that were entered beside what was written."""


def attempts(search: Search, budget: int, deadline: Deadline = NO_DEADLINE) -> Iterator[list[Candidate]]:
    """Candidates under lower and lower caps; in each list the fastest that should fit comes first.

    After the deadline, there are no more than have been found.
    """
    free = max(free_bytes(search.program, budget), 1)
    progress = Progress()
    for share in CAP_STEPS:
        found = _found(search, share * free, budget, progress, deadline)
        if found:
            yield found


def _found(
    search: Search,
    cap: float,
    budget: int,
    progress: Progress,
    deadline: Deadline,
    largest_block: float = math.inf,
) -> list[Candidate]:
    """The candidates under a cap that have not been seen, the fastest that should fit first."""
    planned = _planned_calls(search, cap, free_bytes(search.program, budget), deadline)
    chunks = _nominal_chunks(search, cap)
    extractor = progress.extractor
    if extractor is None or progress.planned != planned or extractor.model.chunks != chunks:
        extractor = progress.extractor = _extractor(search, CostModel(search.machine, chunks), planned)
        progress.planned = planned
    elif progress.largest <= cap:
        return []  # Nothing more is struck out than under the last cap.
    progress.largest = extractor.largest_stored(cap)
    inside = {(-number - 1, id(planned_call)) for number, planned_call in planned.items()}
    found: list[Candidate] = []
    for selection, one_pass in _selections(search, extractor, cap):
        if deadline.passed():
            break
        key = frozenset(inside | {(number, id(node)) for number, node in selection.nodes.items()})
        if key in progress.seen:
            continue
        progress.seen.add(key)
        candidate = _candidate(search, selection, budget, planned, largest_block)
        useful = useful_axes(candidate.schedule)
        if useful != {loop.axis for loop in candidate.schedule.block.loops()}:
            # Some loop turns only once: better none at all, if the cap allows.
            plainer = extractor.extract(cap, useful, one_pass)
            if plainer is not None:
                candidate = _candidate(search, plainer, budget, planned, largest_block)
        found.append(candidate)
    return sorted(found, key=lambda c: (c.predicted_peak > budget, c.predicted_seconds))


def _selections(search: Search, extractor: Extractor, cap: float) -> Iterator[tuple[Selection, bool]]:
    """The cheapest programs under a cap, one for each way to loop, and whether one pass was asked for."""
    for split in _splits(search.large):
        selection = extractor.extract(cap, split)
        if selection is None:
            continue
        yield selection, False
        if not selection.one_pass:
            lean = extractor.extract(cap, split, one_pass=True)
            if lean is not None:
                yield lean, True


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
            turns(call.control) * sum(candidate.predicted_seconds for candidate in best),
            max(largest_stored(candidate.schedule, search.machine) for candidate in best),
        )
        search.planned[call.id] = PlannedCall(replace(call, bodies=tuple(programs)), makers, inside, best)
    return dict(search.planned)


def _best_body(search: Search, cap: float, free: int, deadline: Deadline) -> Candidate:
    """The program for a body under a cap; that of the latest higher one if there is none."""
    budget = free + search.program.fixed_bytes
    # What the body stores counts with the call, under the same cap.
    found = _found(search, cap, budget, search.progress, deadline, cap)
    if found:
        search.latest[:] = found[:1]
    elif not search.latest:
        search.latest.append(as_written(search.program, search.machine))
    return search.latest[0]


def cheapest(search: Search, budget: int) -> Candidate | None:
    """The fastest program whatever it stores, without loops."""
    extractor = _extractor(search, CostModel(search.machine, {}), {})
    selection = extractor.extract(math.inf, frozenset())
    return None if selection is None else _candidate(search, selection, budget, {})


def _splits(large: Sequence[Axis]) -> Iterator[frozenset[Axis] | None]:
    """Which axes may be looped over: each alone, then any of them."""
    for axis in large:
        yield frozenset({axis})
    if len(large) != 1:
        yield None


def _nominal_chunks(search: Search, cap: float) -> dict[Axis, int]:
    """Chunk lengths to extract with.

    A slice of the largest term should be within cap and cache, but if the cap allows, enough rows
    for a matrix product to run at full speed.
    """
    largest: dict[Axis, int] = {}
    for term, axes in computed(search.program):
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
    return Extractor(search.saturation.graph, model, roots, inside)


def _candidate(
    search: Search,
    selection: Selection,
    budget: int,
    planned: Mapping[int, PlannedCall],
    largest_block: float = math.inf,
) -> Candidate:
    """The selected nodes as a program of terms, in blocks, with chunk lengths."""
    program = search.program
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
            makers[term.number] = search.rules[node.maker].name
    class_of = search.saturation.graph.class_of
    outputs = tuple(Output(terms[class_of[output.term.number]], output.layout) for output in program.outputs)
    for number, place in search.places.items():
        if number in terms:
            program.terms.origins.setdefault(terms[number].number, place)
    rewritten = replace(program, outputs=outputs, equalities=(), facts=())
    return scheduled(rewritten, build(rewritten), makers, budget, search.machine, largest_block)
