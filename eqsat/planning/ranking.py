"""Ranks candidates for compilation: the fastest that should fit comes next, given the peaks of earlier ones.

A program that compiles to more than predicted goes back into the ranking with smaller chunks. It is slower
then, and another one may be faster. A program that is nearly the same should have the same peak, so it waits
until there are no others. Other programs should exceed what is predicted as well: they get smaller chunks
before they are compiled, if that costs little time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from eqsat.planning.candidates import Candidate, rechunk, rescaled
from eqsat.targets.machine import Machine

RECHUNKS = 4
"""The number of times that a program that is too big when compiled gets smaller chunks."""

MARGIN = 1.1
"""A safety factor by which the next bound of a program that was too big is below what its excess demands."""

UNMOVED = 0.97
"""A second peak above this part of the first counts as unchanged."""

ALIKE = 1.02
"""Predicted times within this factor count as equal; of such programs, one with fewest loops is taken."""

SAME_TIME = 1.001
"""Predicted times within this factor are the same; of programs with as few loops, the smallest is taken."""

SAME_PEAK = 1.001
"""Predicted peaks within this factor count as equal; programs alike in time and peak hardly differ."""

HOPELESS = 1.5
"""A program is not tried if it is predicted to need more than this many times the memory for temporaries."""

MOST_FORESEEN = 1.5
"""An excess over the predicted memory by more than this factor belongs to the program that showed it: others
are not expected to exceed theirs as much."""

LITTLE_TIME = 1.05
"""Smaller chunks are taken in advance if the program should take at most so many times as long with them."""

MOST_DOUBTFUL = 4
"""The number of programs predicted to exceed the budget slightly that are tried when there are no others."""


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
        # The largest factor by which temporaries of compiled programs exceeded what was predicted, and the
        # candidates that smaller chunks were looked for because of it.
        self._excess = 1.0
        self._foreseen: list[Candidate] = []

    def add(self, candidates: Iterable[Candidate], bound: float | None = None) -> None:
        """Add candidates; those predicted to need at most `bound` bytes (default: the budget) should fit."""
        for candidate in candidates:
            self._enter(candidate, self.budget if bound is None else bound)
        self._foresee()

    def _enter(self, candidate: Candidate, bound: float) -> None:
        if any(_same(candidate, other) for other in self._too_big):
            return
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
        fewest = min((candidate.loops for candidate in alike), default=0)
        alike = [candidate for candidate in alike if candidate.loops == fewest]
        fastest = min((candidate.predicted_seconds for candidate in alike), default=0.0)
        same = [c for c in alike if c.predicted_seconds <= SAME_TIME * fastest]
        return min(same, key=lambda c: (c.predicted_peak, c.predicted_seconds), default=None)

    def next(self) -> Candidate | None:
        """The candidate to compile next; None if there is none that may fit."""
        best = self.best()
        if best is not None:
            return best
        if self._waiting:
            return self._waiting[0]
        if not self._doubtful or self._doubted == MOST_DOUBTFUL:
            return None
        return min(self._doubtful, key=lambda c: (c.predicted_peak, c.predicted_seconds))

    def take(self) -> Candidate | None:
        """Remove the next candidate from the ranking and return it."""
        candidate = self.next()
        for kind in (self._fitting, self._waiting, self._doubtful):
            if any(one is candidate for one in kind):
                kind[:] = [one for one in kind if one is not candidate]
                self._doubted += kind is self._doubtful
                break
        return candidate

    def came_out(self, candidate: Candidate, peak: int) -> bool:
        """Record the peak in bytes of a compiled candidate that is too big, and add it with smaller chunks.

        The predicted memory for temporaries shrinks by the factor by which the real one exceeds the budget's,
        or else the chunks do.

        **Returns:** whether it has smaller chunks, with which it may fit.
        """
        excess = (peak - self.fixed) / max(candidate.predicted_peak - self.fixed, 1)
        if 1.0 < excess <= MOST_FORESEEN:
            self._excess = max(excess, self._excess)
        shrunk = self._shrink(candidate, peak)
        self._foresee()
        return shrunk

    def bound(self, candidate: Candidate, peak: int) -> float:
        """What a program should be predicted to need so that it fits, given what this one came out at."""
        excess = max((peak - self.fixed) / max(self.budget - self.fixed, 1), 1.0)
        return self.fixed + (candidate.predicted_peak - self.fixed) / (MARGIN * excess)

    def _foresee(self) -> None:
        """Give the best candidate smaller chunks if it would exceed the budget as compiled ones did."""
        bound = self.fixed + (self.budget - self.fixed) / self._excess
        while (best := self.best()) is not None and bound < best.predicted_peak <= self.budget:
            if any(best is one for one in self._foreseen):
                return
            smaller = rechunk(best, bound, self.machine)
            slower = smaller.predicted_seconds > LITTLE_TIME * best.predicted_seconds
            if smaller.predicted_peak > bound or slower:
                self._foreseen.append(best)
                return
            self._fitting = [one for one in self._fitting if one is not best]
            self._fitting.append(smaller)

    def _shrink(self, candidate: Candidate, peak: int) -> bool:
        """Add a candidate that was compiled to a peak above the budget with smaller chunks, if it has any."""
        self._too_big.append(candidate)
        self._waiting += [other for other in self._fitting if self._alike(candidate, other)]
        self._fitting = [other for other in self._fitting if not self._alike(candidate, other)]
        program = id(candidate.schedule.program)
        before = self._peaks.get(program)
        self._peaks[program] = peak
        self._tries[program] += 1
        if self._tries[program] > RECHUNKS:
            return False
        if before is not None and peak - self.fixed > UNMOVED * (before - self.fixed):
            return False  # the peak is not in the loops
        bound = self.bound(candidate, peak)
        smaller = rechunk(candidate, bound, self.machine)
        if smaller.predicted_peak > bound:
            # What it stores should depend on the chunks less than that. What it stores all the same may.
            part = (bound - self.fixed) / max(candidate.predicted_peak - self.fixed, 1)
            shorter = rescaled(candidate, part, self.machine)
            if shorter.predicted_peak <= self.budget and shorter.schedule.chunks != candidate.schedule.chunks:
                self._fitting.append(shorter)
                return True
        if smaller.schedule.chunks != candidate.schedule.chunks:
            self._enter(smaller, bound)
            return smaller.predicted_peak <= bound
        return False

    def _alike(self, one: Candidate, other: Candidate) -> bool:
        """Whether two candidates are practically the same."""
        seconds = sorted((one.predicted_seconds, other.predicted_seconds))
        peaks = sorted((one.predicted_peak - self.fixed, other.predicted_peak - self.fixed))
        return seconds[1] <= ALIKE * seconds[0] and peaks[1] <= SAME_PEAK * peaks[0]


def _same(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates are one program, found in two spaces, as far as predictions tell."""
    same_loops = one.loops == other.loops and one.predicted_peak == other.predicted_peak
    return same_loops and math.isclose(one.predicted_seconds, other.predicted_seconds, rel_tol=1e-9)
