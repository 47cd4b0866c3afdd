"""Materialisation: keeps values that loops would otherwise recompute, where they fit and it is faster.

If two loops over one axis need a value, and one loop depends on the other, both compute it. Extraction counts
it once, so only the schedule shows this. If the value fits whole, the first loop collects its chunks, and the
second reads slices of it. If there is room for only some of the recomputed values, those that save most time
per byte are kept: a triangular solve rather than the distances that it starts from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Concat
from eqsat.ir.program import Output, Program
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term, reachable
from eqsat.planning.blocks import Compute, Loop, Schedule, dependencies
from eqsat.planning.candidates import Candidate, scheduled
from eqsat.planning.loops import build
from eqsat.planning.provenance import makers_after
from eqsat.planning.recomputing import Placed, computed_again
from eqsat.targets.machine import Machine

WORTHWHILE = 0.05
"""A loop is considered if it spends at least this part of the predicted time on recomputation."""

MOST_TRIED = 2
"""The number of loops considered, those that recompute most first."""


@dataclass(frozen=True, slots=True)
class Again:
    """A loop that recomputes terms of an earlier loop.

    **Attributes:**

    - `terms`: the recomputed terms that the rest of the loop reads.
    - `times`: by number of a recomputed term, the predicted seconds.
    """

    loop: Loop
    terms: tuple[Term, ...]
    times: dict[int, float]

    @property
    def seconds(self) -> float:
        """The predicted time of all recomputation."""
        return sum(self.times.values())

    def seconds_with(self, kept: Collection[Term]) -> float:
        """The predicted time of the recomputation that remains if some of the terms are kept."""
        stopped = {term.number for term in kept}
        needed: set[int] = set()
        stack = list(self.terms)
        while stack:
            term = stack.pop()
            if term.number in self.times and term.number not in stopped | needed:
                needed.add(term.number)
                stack.extend(term.args)
        return sum(self.times[number] for number in needed)


def loops_again(schedule: Schedule, machine: Machine) -> list[Again]:
    """The loops of the outermost block that recompute terms, by time spent on it, longest first."""
    loops = schedule.block.own_loops
    blocks = [
        placed
        for position, loop in enumerate(loops)
        for placed in _inside(loop, position, schedule.chunks, {}, 1)
    ]
    found = []
    for position, again in computed_again(blocks, machine).items():
        numbers = {term.number for term, _ in again}
        read = {term.number for term in loops[position].body.needs}
        for step in loops[position].body.steps:
            if not isinstance(step, Compute) or step.term.number not in numbers:
                read.update(term.number for term in dependencies(step))
        terms = tuple(term for term, _ in again if term.number in read)
        found.append(Again(loops[position], terms, {term.number: seconds for term, seconds in again}))
    return sorted(found, key=lambda again: -again.seconds)


def _inside(
    loop: Loop, position: int, chunks: Mapping[int, int], lengths: dict[Axis, int], times: int
) -> Iterator[Placed]:
    """The bodies of a loop and of the loops inside it."""
    lengths = {**lengths, loop.axis: chunks[loop.id]}
    times *= -(-loop.axis.size // chunks[loop.id])
    yield Placed(loop.body, (position,), lengths, times)
    for step in loop.body.steps:
        if isinstance(step, Loop):
            yield from _inside(step, position, chunks, lengths, times)


def with_kept(candidate: Candidate, budget: float, machine: Machine, largest_block: float) -> Candidate:
    """The candidate, or one that keeps values it would recompute, if that one fits and is faster."""
    if candidate.predicted_peak > budget:
        return candidate
    for again in loops_again(candidate.schedule, machine)[:MOST_TRIED]:
        if again.seconds < WORTHWHILE * candidate.predicted_seconds:
            break
        kept = _keeping(candidate, again, budget - candidate.schedule.program.fixed_bytes)
        if kept is None:
            continue
        program, makers = kept
        other = scheduled(program, build(program), makers, budget, machine, largest_block)
        if other.predicted_peak <= budget and other.predicted_seconds < candidate.predicted_seconds:
            # Its loops are different, so the remaining findings do not apply to them.
            return other
    return candidate


def _keeping(candidate: Candidate, again: Again, room: float) -> tuple[Program, dict[int, str]] | None:
    """The program in which a loop reads slices of values it would recompute; None if none of them fits."""
    program, axis = candidate.schedule.program, again.loop.axis
    terms = program.terms
    slices = {
        term.number: terms.make(Chunk(axis), (terms.make(Concat(axis), (term,)),))
        for term in _chosen(again, room, _below(program))
    }
    if not slices:
        return None
    # The loop's imports stay unchanged: the loops that it depends on compute the values.
    known = slices | {term.number: term for term in again.loop.imports}
    closers = {
        result.number: terms.make(result.op, substituted(terms, result.args, known))
        for result in again.loop.results
    }
    before = [output.term for output in program.outputs]
    after = substituted(terms, before, closers)
    outputs = tuple(Output(term, output.layout) for term, output in zip(after, program.outputs, strict=True))
    return replace(program, outputs=outputs), makers_after(before, after, candidate.makers)


def _below(program: Program) -> frozenset[int]:
    """The terms below values that must have the same bits everywhere: they are always computed with these."""
    values = {term.number for term in program.alike}
    return frozenset(term.number for term in reachable(program.alike)) - values


def _chosen(again: Again, room: float, below: Collection[int]) -> list[Term]:
    """The terms to keep within `room` bytes, chosen greedily by the time that each saves per byte."""
    axis = again.loop.axis
    left = [
        term for term in again.terms if term.open == {axis} and axis in term.axes and term.number not in below
    ]
    chosen: list[Term] = []

    def order(term: Term) -> tuple[float, int]:
        saved = again.seconds_with(chosen) - again.seconds_with([*chosen, term])
        return -saved / term.bytes, term.bytes

    while left := [term for term in left if term.bytes <= room]:
        # A term may save time only together with others: of those that save none alone, take the smallest.
        best = min(left, key=order)
        chosen.append(best)
        left.remove(best)
        room -= best.bytes
    for term in reversed(chosen):
        others = [other for other in chosen if other is not term]
        if again.seconds_with(others) <= again.seconds_with(chosen):
            chosen = others
    return chosen
