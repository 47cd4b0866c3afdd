"""Programs that keep what loops would compute again, where it fits and is faster.

A value that two loops over one axis need, of which one waits for the other, is computed in both: extraction
counts it once, only a schedule can tell. Where the value fits as a whole, one loop collects its chunks for
good, and the other reads slices. Where there is room for some of what is computed again, what saves most time
for its memory is kept: a triangular solve rather than the distances that it starts from.
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
from eqsat.planning.recomputing import Placed, computed_again
from eqsat.targets.machine import Machine

WORTHWHILE = 0.05
"""Part of the predicted time that a loop has to compute again for keeping it to be looked at."""

MOST_TRIED = 2
"""For how many loops, those that compute most again, that is done."""


@dataclass(frozen=True, slots=True)
class Again:
    """A loop that computes what one before it has computed.

    **Attributes:**

    - `terms`: of that, what the rest of the loop reads.
    - `times`: predicted seconds for each term of it, by number.
    """

    loop: Loop
    terms: tuple[Term, ...]
    times: dict[int, float]

    @property
    def seconds(self) -> float:
        """Predicted, for all of it."""
        return sum(self.times.values())

    def seconds_with(self, kept: Collection[Term]) -> float:
        """Predicted for what is still computed again if some of the terms are kept."""
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
    """The loops of the outermost block that compute something again, those that take longest for it first."""
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
    """The bodies of a loop and of those in it."""
    lengths = {**lengths, loop.axis: chunks[loop.id]}
    times *= -(-loop.axis.size // chunks[loop.id])
    yield Placed(loop.body, (position,), lengths, times)
    for step in loop.body.steps:
        if isinstance(step, Loop):
            yield from _inside(step, position, chunks, lengths, times)


def with_kept(candidate: Candidate, budget: float, machine: Machine, largest_block: float) -> Candidate:
    """The candidate, or one that keeps what it would compute again, if that fits and is faster."""
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
            # Its loops are others, so that what was found of this one says nothing of them.
            return other
    return candidate


def _keeping(candidate: Candidate, again: Again, room: float) -> tuple[Program, dict[int, str]] | None:
    """The program in which a loop reads slices of what it would compute again; None if none of it fits."""
    program, axis = candidate.schedule.program, again.loop.axis
    terms = program.terms
    slices = {
        term.number: terms.make(Chunk(axis), (terms.make(Concat(axis), (term,)),))
        for term in _chosen(again, room, _below(program))
    }
    if not slices:
        return None
    # What the loop is given from outside stays as it is: the loops that it waits for compute the value.
    known = slices | {term.number: term for term in again.loop.imports}
    closers = {
        result.number: terms.make(result.op, substituted(terms, result.args, known))
        for result in again.loop.results
    }
    before = [output.term for output in program.outputs]
    after = substituted(terms, before, closers)
    outputs = tuple(Output(term, output.layout) for term, output in zip(after, program.outputs, strict=True))
    return replace(program, outputs=outputs), _makers(before, after, candidate.makers)


def _below(program: Program) -> frozenset[int]:
    """What values are computed from that are to be the same bits everywhere: so it is computed with them."""
    values = {term.number for term in program.alike}
    return frozenset(term.number for term in reachable(program.alike)) - values


def _chosen(again: Again, room: float, below: Collection[int]) -> list[Term]:
    """What is kept within so many bytes: one after the other, what then saves most for each of its bytes."""
    axis = again.loop.axis
    left = [
        term for term in again.terms if term.open == {axis} and axis in term.axes and term.number not in below
    ]
    chosen: list[Term] = []

    def order(term: Term) -> tuple[float, int]:
        saved = again.seconds_with(chosen) - again.seconds_with([*chosen, term])
        return -saved / term.bytes, term.bytes

    while left := [term for term in left if term.bytes <= room]:
        # What saves nothing by itself may do so with others: of such, the smallest comes first.
        best = min(left, key=order)
        chosen.append(best)
        left.remove(best)
        room -= best.bytes
    for term in reversed(chosen):
        others = [other for other in chosen if other is not term]
        if again.seconds_with(others) <= again.seconds_with(chosen):
            chosen = others
    return chosen


def _makers(before: list[Term], after: list[Term], makers: Mapping[int, str]) -> dict[int, str]:
    """Which rules made the terms of a program in which some others are in the places of some."""
    found = dict(makers)
    seen: set[tuple[int, int]] = set()
    stack = list(zip(before, after, strict=True))
    while stack:
        old, new = stack.pop()
        if old is new or (old.number, new.number) in seen:
            continue
        seen.add((old.number, new.number))
        if old.op == new.op and len(old.args) == len(new.args):
            if old.number in makers:
                found.setdefault(new.number, makers[old.number])
            stack.extend(zip(old.args, new.args, strict=True))
    return found
