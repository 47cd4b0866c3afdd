"""Searches the parts of a program one by one, each with loops over axes of its own and under caps of its own.

One cap for a whole program excludes either too little of what one block stores or too much of what another
has to. A part has a small e-graph, and the memory that is left beside what is kept around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.engine.compiled import CompiledRule
from eqsat.ir.program import Program
from eqsat.planning.candidates import Candidate, scheduled
from eqsat.planning.capped_extraction import CappedExtraction, StoringLess
from eqsat.planning.loop_axes import SPLIT_AXES
from eqsat.planning.loops import build
from eqsat.planning.materialisation import with_kept
from eqsat.planning.parts import Part, joined, parts_of
from eqsat.planning.programs_under_cap import ranked
from eqsat.planning.search_space import Saturations, free_bytes, prepare
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.targets.machine import Machine

MOST_PARTS = 64
"""A program of more parts is not searched part by part: each takes a tenth of a second or more."""

LOOKAHEAD = 1
"""The number of steps of extraction, after one that gives a program of a part that fits, for a faster one."""

TRIES = 3
"""The number of times that all parts are searched, each time with less memory."""

MARGIN = 0.95
"""The part of the memory by which the excess of all parts together says to shrink that of each."""


def searched_by_parts(
    program: Program,
    rules: Sequence[CompiledRule],
    budget: int,
    machine: Machine,
    deadline: Deadline = NO_DEADLINE,
    known: Saturations | None = None,
) -> list[Candidate]:
    """Programs put together from programs for the parts, the fastest that should fit first.

    There are none if the program can't be cut where little is alive.

    **Arguments:**

    - `known`: saturations of parts, by everything that they depend on; new ones are added.
    """
    free = free_bytes(program, budget)
    parts = parts_of(program, free)
    if not 1 < len(parts) <= MOST_PARTS:
        return []
    known = {} if known is None else known
    found: list[Candidate] = []
    share = 1.0
    for _ in range(TRIES):
        chosen: list[Candidate] = []
        for part in parts:
            best = _searched(part, share, rules, machine, deadline, known)
            if best is None:
                return ranked(found, budget)
            chosen.append(best)
        candidate = _joined(program, parts, chosen, budget, machine)
        found.append(candidate)
        excess = candidate.predicted_peak - budget
        if excess <= 0 or free <= 0:
            break
        share *= MARGIN * free / (free + excess)
    return ranked(found, budget)


def _searched(
    part: Part,
    share: float,
    rules: Sequence[CompiledRule],
    machine: Machine,
    deadline: Deadline,
    known: Saturations,
) -> Candidate | None:
    """The fastest program of a part in a share of its room, or else the smallest; None after the deadline."""
    budget = part.program.fixed_bytes + max(int(share * part.room), 0)
    space = prepare(part.program, rules, budget, machine, SPLIT_AXES[-1], deadline=deadline, known=known)
    extraction = CappedExtraction.within(space, budget, deadline)
    found: list[Candidate] = []
    since: float = -math.inf
    while since < LOOKAHEAD and not deadline.passed():
        step = extraction.next_step()
        if step is None or (isinstance(step, StoringLess) and since >= 0):
            break
        found += extraction.take()
        if since >= 0:
            since += 1
        elif any(candidate.predicted_peak <= budget for candidate in found):
            since = 0
    best = next(iter(ranked(found, budget)), None)
    if best is None or best.predicted_peak <= budget:
        return best
    return min(found, key=lambda candidate: candidate.predicted_peak)


def _joined(
    program: Program, parts: Sequence[Part], chosen: Sequence[Candidate], budget: int, machine: Machine
) -> Candidate:
    """The candidate for the whole program."""
    programs = [candidate.schedule.program for candidate in chosen]
    whole, makers = joined(program, parts, programs, [candidate.makers for candidate in chosen])
    candidate = scheduled(whole, build(whole), makers, budget, machine)
    return with_kept(candidate, budget, machine, math.inf)
