"""Which candidate to compile next: the fastest that should fit, given what compiling others has taught.

A program that comes out larger than predicted goes back with smaller chunks, to wait for its turn: it is
slower then, and another one may be faster. One that is hardly different should come out as large: it waits
until there is none of another kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from eqsat.planning.candidates import Candidate, rechunk
from eqsat.targets.machine import Machine

RECHUNKS = 4
"""How often a program that compiles to more than predicted gets smaller chunks."""

MARGIN = 1.1
"""By how much more than its excess a program that came out too big is to be smaller."""

UNMOVED = 0.97
"""A peak of more than this part of another is as good as the same."""

ALIKE = 1.02
"""Predicted times this near one another are the same: of such programs, that with fewest loops is taken."""

SAME_PEAK = 1.001
"""So are predicted peaks: programs that are alike in both differ in what is small."""

HOPELESS = 1.5
"""A program predicted to need so many times what is free for temporaries is not worth a try."""

MOST_DOUBTFUL = 4
"""So many programs that should not fit, but nearly do, are tried when there are no others."""


class Ranking:
    """The candidates for a budget.

    **Attributes:**

    - `budget`: bytes of arguments, outputs and temporaries.
    - `fixed`: bytes of arguments and outputs.
    """

    def __init__(self, budget: int, fixed: int, machine: Machine) -> None:
        self.budget = budget
        self.fixed = fixed
        self.machine = machine
        self._fitting: list[Candidate] = []
        self._doubtful: list[Candidate] = []
        self._too_big: list[Candidate] = []
        self._waiting: list[Candidate] = []
        self._tries: Counter[int] = Counter()
        self._peaks: dict[int, int] = {}
        self._doubted = 0

    def add(self, candidates: Iterable[Candidate], bound: float | None = None) -> None:
        """Enter candidates, of which those should fit that are predicted to need at most `bound` bytes."""
        for candidate in candidates:
            self._enter(candidate, self.budget if bound is None else bound)

    def _enter(self, candidate: Candidate, bound: float) -> None:
        if any(self._alike(candidate, other) for other in self._too_big):
            self._waiting.append(candidate)
        elif candidate.predicted_peak <= bound:
            self._fitting.append(candidate)
        elif candidate.predicted_peak - self.fixed <= HOPELESS * (bound - self.fixed):
            self._doubtful.append(candidate)

    def best(self) -> Candidate | None:
        """The fastest candidate that should fit."""
        least = min((candidate.predicted_seconds for candidate in self._fitting), default=0.0)
        alike = [c for c in self._fitting if c.predicted_seconds <= ALIKE * least]
        return min(alike, key=lambda c: (c.loops, c.predicted_seconds, c.predicted_peak), default=None)

    def next(self) -> Candidate | None:
        """The candidate to compile now; None if there is none that may fit."""
        best = self.best()
        if best is not None:
            return best
        if self._waiting:
            return self._waiting[0]
        if not self._doubtful or self._doubted == MOST_DOUBTFUL:
            return None
        return min(self._doubtful, key=lambda c: (c.predicted_peak, c.predicted_seconds))

    def take(self) -> Candidate | None:
        """The same candidate, which leaves the ranking."""
        candidate = self.next()
        for kind in (self._fitting, self._waiting, self._doubtful):
            if any(one is candidate for one in kind):
                kind[:] = [one for one in kind if one is not candidate]
                self._doubted += kind is self._doubtful
                break
        return candidate

    def came_out(self, candidate: Candidate, peak: int) -> None:
        """Learn the peak of a candidate that is too big, in bytes; it goes back with smaller chunks.

        What was predicted above the arguments and results shrinks by as much as the real excess over them.
        """
        self._too_big.append(candidate)
        self._waiting += [other for other in self._fitting if self._alike(candidate, other)]
        self._fitting = [other for other in self._fitting if not self._alike(candidate, other)]
        program = id(candidate.schedule.program)
        before = self._peaks.get(program)
        self._peaks[program] = peak
        self._tries[program] += 1
        if self._tries[program] > RECHUNKS:
            return
        if before is not None and peak - self.fixed > UNMOVED * (before - self.fixed):
            return  # What makes the peak is not in the loops.
        excess = max((peak - self.fixed) / max(self.budget - self.fixed, 1), 1.0)
        bound = self.fixed + (candidate.predicted_peak - self.fixed) / (MARGIN * excess)
        smaller = rechunk(candidate, bound, self.machine)
        if smaller.schedule.chunks != candidate.schedule.chunks:
            self._enter(smaller, bound)

    def _alike(self, one: Candidate, other: Candidate) -> bool:
        """Whether two candidates differ in nothing that counts."""
        seconds = sorted((one.predicted_seconds, other.predicted_seconds))
        peaks = sorted((one.predicted_peak - self.fixed, other.predicted_peak - self.fixed))
        return seconds[1] <= ALIKE * seconds[0] and peaks[1] <= SAME_PEAK * peaks[0]
