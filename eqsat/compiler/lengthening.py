"""Chunk lengths between those of a program that fits and longer ones that were too large.

What a program exceeds its prediction by may grow with its chunks more than the rest does, which is not known
before it is compiled. So shorter chunks that fit may be far shorter than they need to be. Two certified peaks
tell more: a straight line through them says which prediction the budget allows (the secant method).
"""

from __future__ import annotations

from eqsat.planning.candidates import Candidate, rechunk
from eqsat.targets.machine import Machine

WORTHWHILE = 0.85
"""Longer chunks are compiled if the program should take at most this part of the time with them."""

MOST_TRIES = 2
"""The number of longer chunks that are compiled for one program."""

SAFE = 0.9
"""The share of the room below the budget that longer chunks are to take by the straight line."""


class Lengthening:
    """Remembers the programs that were too large, and says which chunks may fit in between.

    **Attributes:**

    - `budget`: bytes of arguments, outputs and temporaries.
    """

    def __init__(self, budget: int, machine: Machine) -> None:
        self.budget = budget
        self._machine = machine
        # By the identity of a program: the last candidate that was too large and its peak, and the tries.
        self._too_large: dict[int, tuple[Candidate, int]] = {}
        self._tries: dict[int, int] = {}

    def came_out(self, candidate: Candidate, peak: int) -> None:
        """Record a candidate that was compiled to more than the budget, and its peak in bytes."""
        self._too_large[id(candidate.schedule.program)] = candidate, peak

    def longer(self, candidate: Candidate, peak: int) -> Candidate | None:
        """A candidate that fits with longer chunks, which should fit and be faster; None if there are none.

        **Arguments:**

        - `peak`: the certified peak of the candidate, in bytes.
        """
        program = id(candidate.schedule.program)
        if program not in self._too_large or self._tries.get(program, 0) == MOST_TRIES:
            return None
        large, exceeding = self._too_large[program]
        predicted = large.predicted_peak - candidate.predicted_peak
        room = SAFE * (self.budget - peak) * predicted / (exceeding - peak)
        found = rechunk(large, candidate.predicted_peak + room, self._machine)
        longer = 0 < found.predicted_peak - candidate.predicted_peak <= room
        if not longer or found.predicted_seconds > WORTHWHILE * candidate.predicted_seconds:
            return None
        self._tries[program] = 1 + self._tries.get(program, 0)
        return found
