"""The search for a plan: caps on what is stored, from none downwards, and which axes to loop over."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.deadline import NO_DEADLINE, Deadline
from eqsat.engine.compile import CompiledRule
from eqsat.engine.contraction_orders import with_contraction_orders
from eqsat.engine.cost import CostModel
from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.extract import Extractor, Inside, Selection
from eqsat.engine.saturate import Limits, Saturation, saturate
from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, turns
from eqsat.ir.ops import Call, Dot, Map, Opaque, Operation, Reduce, Select
from eqsat.ir.program import Output, Program
from eqsat.ir.substitution import in_chunks
from eqsat.ir.term import Term
from eqsat.machine import Machine
from eqsat.planning.blocks import Block, Compute, Schedule
from eqsat.planning.chunks import choose_lengths
from eqsat.planning.liveness import largest_stored, predicted_seconds, upper_bound, value_of
from eqsat.planning.loops import build
from eqsat.planning.sinking import with_sunk

SPLIT_AXES = (2, 4)
"""How many axes are considered for loops, those with most bytes first: few, and more if need be."""

BIG_SHARE = 16
"""A term is big when it takes more than this part of the memory that is left for temporaries."""

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

LARGEST_ITEM = 8
"""Bytes of an element, to tell how many elements fit."""

FUSION_GAIN = 1.4
"""How much faster fusions that pay make a program."""

ROWWISE = frozenset({"softmax", "logsumexp"})
"""Operations that are reductions of elementwise values inside."""

FUSED_BLOCKS = 8
"""Blocks may be so many times smaller than the cache's to make room for fusions that pay."""


@dataclass(frozen=True)
class Candidate:
    """A program that may fit.

    **Attributes:**

    - `makers`: for terms that a rule made, by number, the rule's name.
    - `predicted_peak`, `predicted_seconds`: by simulation and by the cost model.
    - `fused`: whether it may be compiled with fusions whose scratch the compiler's analysis does not
      see. Then the peak is an upper bound that counts every value they may hide.
    """

    schedule: Schedule
    makers: dict[int, str]
    predicted_peak: int
    predicted_seconds: float
    fused: bool = False


@dataclass(frozen=True)
class Search:
    """What all attempts at one program share.

    **Attributes:**

    - `large`: the axes that may be looped over.
    - `bodies`: for calls of control flow, the search for each body; the body itself if it has nothing large.
    - `planned`: those calls, by number, as they were planned last.
    - `latest`, `progress`: of a program that is such a body, the candidate found last.
    """

    program: Program
    saturation: Saturation
    rules: Sequence[CompiledRule]
    machine: Machine
    large: tuple[Axis, ...]
    bodies: dict[Call, tuple[Search | Candidate, ...]]
    planned: dict[int, PlannedCall] = field(default_factory=dict)
    latest: list[Candidate] = field(default_factory=list)
    progress: _Progress = field(default_factory=lambda: _Progress())


@dataclass(frozen=True, eq=False)
class PlannedCall:
    """Control flow with the programs `found` for its bodies, and what they need."""

    call: Call
    makers: dict[int, str]
    inside: Inside
    found: tuple[Candidate, ...]


def free_bytes(program: Program, budget: int) -> int:
    """What is left of a budget for temporaries: less arguments and outputs."""
    arguments = sum(term.bytes for term in program.inputs)
    return budget - arguments - sum(output.bytes for output in program.outputs)


def _computed(program: Program) -> Iterator[tuple[Term, frozenset[Axis]]]:
    """What a program computes, and the axes along which a loop outside makes it smaller.

    That includes what is computed inside of its control flow, along the axes that pass through.
    """
    seen: set[Call] = set()
    for term in program.reachable():
        if term.args:
            yield term, term.axes
        if isinstance(term.op, Opaque) and term.op.call not in seen:
            seen.add(term.op.call)
            for body in term.op.call.bodies:
                for inside, axes in _computed(body.program):
                    yield inside, axes & term.op.call.passing


def large_axes(program: Program, threshold: float) -> tuple[Axis, ...]:
    """The axes of terms over `threshold` bytes, those with most bytes first."""
    weight: dict[Axis, int] = {}
    for term, axes in _computed(program):
        if term.bytes > threshold:
            for axis in axes:
                weight[axis] = weight.get(axis, 0) + term.bytes
    return tuple(sorted(weight, key=lambda axis: (-weight[axis] * math.log(axis.size + 1), axis.id)))


def stored_results(program: Program, large: Sequence[Axis], machine: Machine) -> list[Term]:
    """The terms that may be computed piece by piece: results, and what is kept in memory anyway."""
    model = CostModel(machine, {})
    found: dict[int, Term] = {output.term.number: output.term for output in program.outputs}
    axes = frozenset(large)
    for term in program.reachable():
        if model.stores_result(term.op):
            found[term.number] = term
        if model.stores_operands(term.op, [value_of(arg) for arg in term.args]):
            found.update((arg.number, arg) for arg in term.args)
    return [term for term in found.values() if term.args and term.axes & axes]


def prepare(
    program: Program,
    rules: Sequence[CompiledRule],
    budget: int | None,
    machine: Machine,
    most_axes: int = SPLIT_AXES[0],
    limits: Limits | None = None,
    deadline: Deadline = NO_DEADLINE,
) -> Search:
    """Saturate a program's e-graph.

    **Arguments:**

    - `budget`: bytes to fit in; with None only the algebra is explored, no loops.
    - `most_axes`: how many axes may be looped over.
    - `deadline`: when to stop saturating.
    """
    free = None if budget is None else max(free_bytes(program, budget), 0)
    return _prepared(program, rules, free, machine, most_axes, limits, frozenset(), deadline)


def _prepared(
    program: Program,
    rules: Sequence[CompiledRule],
    free: int | None,
    machine: Machine,
    most_axes: int,
    limits: Limits | None,
    whole: frozenset[Axis],
    deadline: Deadline,
) -> Search:
    """Saturate the e-graphs of a program and of the bodies inside.

    **Arguments:**

    - `free`: bytes that there are for temporaries.
    - `whole`: axes that are not looped over here, since a loop around may be.
    """
    large: tuple[Axis, ...] = ()
    cap = None
    bodies: dict[Call, tuple[Search | Candidate, ...]] = {}
    if free is not None:
        cap = free // LARGEST_ITEM
        large = tuple(axis for axis in large_axes(program, free / BIG_SHARE) if axis not in whole)[:most_axes]
        program = with_sunk(program, free / BIG_SHARE)
        for call in dict.fromkeys(_control_flow(program)):
            around = whole | call.passing
            bodies[call] = tuple(
                _prepared(body.program, rules, free, machine, most_axes, limits, around, deadline)
                if _has_large(body.program, free / BIG_SHARE)
                else as_written(body.program, machine)
                for body in call.bodies
            )
    if rules:
        reassociate = any(not rule.exact for rule in rules)
        program = with_contraction_orders(program, reassociate, rules[0].precision or None, cap)
    stored = stored_results(program, large, machine)
    saturation = saturate(program, rules, large, stored, limits, deadline)
    return Search(program, saturation, rules, machine, large, bodies)


def _control_flow(program: Program) -> Iterator[Call]:
    for term in program.known():
        if isinstance(term.op, Opaque) and term.op.call.bodies:
            yield term.op.call


def _has_large(program: Program, threshold: float) -> bool:
    """Whether a program, or a body inside of it, computes anything large."""
    return any(
        term.args and term.bytes > threshold for inner in program.inside() for term in inner.reachable()
    )


def attempts(search: Search, budget: int, deadline: Deadline = NO_DEADLINE) -> Iterator[list[Candidate]]:
    """Candidates under lower and lower caps; in each list the fastest that should fit comes first.

    After the deadline, there are no more than have been found.
    """
    free = max(free_bytes(search.program, budget), 1)
    progress = _Progress()
    for share in CAP_STEPS:
        found = _found(search, share * free, budget, progress, deadline)
        if found:
            yield found


@dataclass
class _Progress:
    """What the attempts at one program have come to.

    **Attributes:**

    - `seen`: what has been selected, by the nodes' identities.
    - `extractor`, `planned`, `largest`: the latest one, the calls it counts with, and the largest value
      that is stored under its cap.
    """

    seen: set[frozenset[tuple[int, int]]] = field(default_factory=set)
    extractor: Extractor | None = None
    planned: dict[int, PlannedCall] = field(default_factory=dict)
    largest: float = 0.0


def _found(
    search: Search, cap: float, budget: int, progress: _Progress, deadline: Deadline
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
        candidate = _candidate(search, selection, budget, planned)
        useful = useful_axes(candidate.schedule)
        if useful != {loop.axis for loop in candidate.schedule.block.loops()}:
            # Some loop turns only once: better none at all, if the cap allows.
            plainer = extractor.extract(cap, useful, one_pass)
            candidate = candidate if plainer is None else _candidate(search, plainer, budget, planned)
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
    budget = free + sum(term.bytes for term in search.program.inputs)
    budget += sum(output.bytes for output in search.program.outputs)
    found = _found(search, cap, budget, search.progress, deadline)
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


def as_written(program: Program, machine: Machine) -> Candidate:
    """The program as it is."""
    block = build(program)
    schedule, peak = choose_lengths(program, block, math.inf, machine)
    seconds = predicted_seconds(block, CostModel(machine, {}), schedule.chunks)
    return Candidate(schedule, {}, peak, seconds)


def rechunk(candidate: Candidate, budget: float, machine: Machine) -> Candidate:
    """The same program with chunks for another budget."""
    schedule = candidate.schedule
    return _scheduled(schedule.program, schedule.block, candidate.makers, budget, machine)


def useful_axes(schedule: Schedule) -> frozenset[Axis]:
    """The axes whose loops turn more than once."""
    loops = schedule.block.loops()
    return frozenset(loop.axis for loop in loops if schedule.chunks[loop.id] < loop.axis.size)


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
    for term, axes in _computed(search.program):
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
    search: Search, selection: Selection, budget: int, planned: Mapping[int, PlannedCall]
) -> Candidate:
    """The selected nodes as a program of terms, in blocks, with chunk lengths."""
    program = search.program
    terms: dict[int, Term] = {}
    makers: dict[int, str] = {}
    calls: dict[tuple[int, frozenset[Axis]], Call] = {}

    def with_plan(call: Call, args: Sequence[Term]) -> Call:
        opened = frozenset[Axis]().union(*(arg.open for arg in args)) & call.passing
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
    rewritten = replace(program, outputs=outputs, equalities=(), facts=())
    return _scheduled(rewritten, build(rewritten), makers, budget, search.machine)


def _scheduled(
    program: Program, block: Block, makers: dict[int, str], budget: float, machine: Machine
) -> Candidate:
    model = CostModel(machine, {})
    schedule, peak = choose_lengths(program, block, budget, machine)
    seconds = predicted_seconds(block, model, schedule.chunks)
    best = Candidate(schedule, makers, peak, seconds)
    if fusion_pays(block, machine):
        smallest = machine.cache / FUSED_BLOCKS
        schedule, peak = choose_lengths(program, block, budget, machine, upper_bound, smallest)
        seconds = predicted_seconds(block, model, schedule.chunks)
        if peak <= budget and seconds < FUSION_GAIN * best.predicted_seconds:
            return Candidate(schedule, makers, peak, seconds, True)
    return best


def fusion_pays(block: Block, machine: Machine) -> bool:
    """Whether the compiler's own fusions make a program faster rather than slower.

    Measured on CPU: they pay where contractions, selections or long reductions read elementwise
    values, as in attention or a variance (1.4 to 4 times); they cost as much again where most of the
    work is a short reduction, over the coordinates of a distance, and in convolutions.
    """
    model = CostModel(machine, {})
    steps = [step for inner in block.blocks() for step in inner.steps]
    terms = [step.term for step in steps if isinstance(step, Compute)]
    most = max((term.elements for term in terms), default=0)
    pays = False
    for term in terms:
        reads_maps = any(isinstance(arg.op, Map) for arg in term.args)
        if isinstance(term.op, Opaque) and term.op.call.primitive.name == "conv_general_dilated":
            return False
        if isinstance(term.op, Reduce) and reads_maps:
            short = not model.stores_operands(term.op, [value_of(arg) for arg in term.args])
            if short and 2 * term.args[0].elements >= most:
                return False
            pays = pays or not short
        if isinstance(term.op, Operation) and term.op.spec.name in ROWWISE:
            pays = pays or term.op.axes[0].size > machine.fused_reduction
        pays = pays or (isinstance(term.op, (Dot, Select)) and reads_maps)
    return pays
