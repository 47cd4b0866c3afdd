"""The least memory: the programs that need least, whatever time they take; and from there up to a budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from eqsat.compiler.candidate_compiler import CandidateCompiler, CompiledCandidate, Stopwatch
from eqsat.planning.candidates import Candidate, rechunk
from eqsat.planning.ranking import HOPELESS
from eqsat.planning.search import every_attempt
from eqsat.planning.search_space import Search
from eqsat.support.deadline import Deadline
from eqsat.targets.machine import Machine

MOST_LEAN = 4
"""So many of the programs predicted to need least are compiled."""

WORSE = 2.0
"""A program predicted to need so many times as much for temporaries as another one came to is not."""


def leanest(
    search: Search, trials: CandidateCompiler, deadline: Deadline, stopwatch: Stopwatch
) -> Iterator[CompiledCandidate]:
    """The programs predicted to need least, drafted. They are the same for every budget.

    **Arguments:**

    - `search`: of the program, with no memory for temporaries.
    """
    fixed = search.program.fixed_bytes

    def found() -> list[Candidate]:
        candidates = [c for group in every_attempt(search, deadline) for c in group]
        # Without fusions that hide values, whatever the budget.
        shrunk = [replace(rechunk(candidate, 0, search.machine), fused=False) for candidate in candidates]
        return sorted(shrunk, key=lambda c: (c.predicted_peak, c.predicted_seconds))

    smallest = None
    for candidate in stopwatch.timed("search", found)[:MOST_LEAN]:
        if deadline.passed():
            return
        if smallest is not None and candidate.predicted_peak - fixed > WORSE * (smallest - fixed):
            return
        trial = trials.draft(candidate)
        smallest = trial.peak if smallest is None else min(smallest, trial.peak)
        yield trial


def grown(
    trial: CompiledCandidate,
    budget: int,
    trials: CandidateCompiler,
    machine: Machine,
    deadline: Deadline,
) -> CompiledCandidate:
    """The program of a trial with the largest chunks that are certified to fit, by halving what is between.

    What is predicted for temporaries doubles from step to step, from what it is in the trial: the same steps
    for every budget.
    """
    fixed = trial.candidate.schedule.program.fixed_bytes
    room = max(trial.candidate.predicted_peak - fixed, 1)
    steps = max(math.ceil(math.log2(max(HOPELESS * (budget - fixed) / room, 1.0))), 0)
    fits, too_big, best = 0, steps + 1, trials.compile(trial.candidate, budget)
    while too_big - fits > 1 and not deadline.passed():
        middle = (fits + too_big) // 2
        other = trials.compile(rechunk(trial.candidate, fixed + room * 2**middle, machine), budget)
        if other.peak <= budget:
            fits, best = middle, other
        else:
            too_big = middle
    return best
