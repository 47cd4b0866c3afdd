"""The programs that are certified to fit a budget, the fastest first, found as they are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

from eqsat.compiler.candidate_compiler import CompiledCandidate, Stopwatch
from eqsat.planning.candidates import Candidate
from eqsat.planning.ranking import UNMOVED, Ranking
from eqsat.planning.search import attempts
from eqsat.planning.search_space import Search
from eqsat.support.deadline import Deadline
from eqsat.targets.machine import Machine

TAKES_AS_PREDICTED = 1.1
"""What should take longer than by this factor, since it needs more memory than was predicted, has to wait."""

MOST_UNMOVED = 6
"""After so many programs in a row whose peaks were no better, no more are compiled."""

LOOKAHEAD = 3
"""After a program that should fit, so many lower caps are tried for a faster one, and again after each."""


class Compiler(Protocol):
    """What makes trials of candidates."""

    @property
    def stopwatch(self) -> Stopwatch:
        """What times the stages of planning."""

    @property
    def smallest(self) -> CompiledCandidate | None:
        """The trial with the smallest peak so far."""

    def compile(self, candidate: Candidate, budget: float) -> CompiledCandidate:
        """Emit and compile a candidate."""


class CertifiedCandidates(Iterator[CompiledCandidate]):
    """Programs of one search, each compiled when it is asked for.

    **Attributes:**

    - `longest`: seconds; what is predicted to take as much is not compiled. It may be changed on the way.

    **Arguments:**

    - `budget`, `fixed`: bytes; of arguments, outputs and temporaries, and of arguments and outputs.
    """

    def __init__(
        self,
        search: Search,
        trials: Compiler,
        budget: int,
        fixed: int,
        machine: Machine,
        deadline: Deadline,
        longest: float = math.inf,
    ) -> None:
        self.longest = longest
        self._search = search
        self._trials = trials
        self._budget = budget
        self._machine = machine
        self._deadline = deadline
        self._ranking = Ranking(budget, fixed, machine)
        self._groups = attempts(search, budget, deadline)
        self._more = True
        # How many groups have come since the best candidate.
        self._stale = 0
        self._given_back: list[CompiledCandidate] = []
        self._found = self._every()

    def __next__(self) -> CompiledCandidate:
        return self._given_back.pop() if self._given_back else next(self._found)

    def give_back(self, trial: CompiledCandidate) -> None:
        """Have it come next, once more."""
        self._given_back.append(trial)

    def _every(self) -> Iterator[CompiledCandidate]:
        unmoved, slower = 0, list[CompiledCandidate]()
        while unmoved < MOST_UNMOVED:
            candidate = self._next_candidate()
            if candidate is None or candidate.predicted_seconds >= self.longest or self._deadline.passed():
                break
            while slower and slower[0].seconds(self._machine) <= candidate.predicted_seconds:
                yield slower.pop(0)
            before = self._trials.smallest
            trial = self._trials.compile(candidate, self._budget)
            if trial.peak <= self._budget:
                if trial.seconds(self._machine) <= TAKES_AS_PREDICTED * candidate.predicted_seconds:
                    yield trial
                else:
                    slower = sorted([*slower, trial], key=lambda one: one.seconds(self._machine))
                continue
            unmoved = 0 if before is None or trial.peak < UNMOVED * before.peak else unmoved + 1
            self._ranking.came_out(candidate, trial.peak)
        yield from (trial for trial in slower if trial.seconds(self._machine) < self.longest)

    def _next_candidate(self) -> Candidate | None:
        """The candidate to compile next, once lower caps have had their chance of a faster one."""
        best = self._ranking.best()
        while self._more and (best is None or self._stale < LOOKAHEAD):
            group = self._trials.stopwatch.timed("search", lambda: next(self._groups, None))
            if group is None:
                self._more = False
                break
            self._ranking.add(group)
            better = self._ranking.best()
            self._stale = self._stale + 1 if better is best else 0
            best = better
        return self._ranking.take()
