"""The floor: the programs that need least, whatever time they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.deadline import Deadline
from eqsat.planning.candidates import Candidate, rechunk
from eqsat.planning.exploring import Search
from eqsat.planning.search import every_attempt
from eqsat.trials import Stopwatch, Trial, Trials

MOST_LEAN = 4
"""So many of the programs predicted to need least are compiled."""

WORSE = 2.0
"""A program predicted to need so many times as much for temporaries as another one came to is not."""


def leanest(search: Search, trials: Trials, deadline: Deadline, stopwatch: Stopwatch) -> Iterator[Trial]:
    """The programs predicted to need least, compiled. They are the same for every budget.

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
        trial = trials.compile(candidate)
        smallest = trial.peak if smallest is None else min(smallest, trial.peak)
        yield trial
