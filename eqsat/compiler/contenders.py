"""The best few programs that fit, for a planner that compares them by more than what is predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from eqsat.backend.certificate import Certified
from eqsat.compiler.candidate_compiler import CompiledCandidate, total_bytes
from eqsat.compiler.planned import Planned
from eqsat.compiler.planner import Planner
from eqsat.planning.candidates import Candidate, fusions_round, rescaled
from eqsat.targets.compiler_profile import HONEST, OWN

RIVALS = 2
"""How many of them are further programs of the search."""

SLOWEST = 2.0
"""Programs predicted to take longer than the best by this factor are not compared."""

CLEARLY = 0.95
"""A program replaces the predicted best only if it takes less than this part of its time."""


class Contenders(Planner):
    """A planner that finds further programs that fit.

    **Attributes:**

    - `longer`: factors of the chosen chunk lengths to try.
    """

    longer: tuple[float, ...] = (0.5, 2.0)

    def others(self, first: Planned, chosen: CompiledCandidate | None) -> Iterator[Planned]:
        """Further programs that fit, possibly more than are compared."""
        seen = [first.certified]
        for found in self._found(chosen):
            certified = found.certified if isinstance(found, CompiledCandidate) else found
            if not any(certified is one for one in seen):
                seen.append(certified)
                planned = self._planned_by(found)
                if self._has_room(planned):
                    yield planned

    def _found(self, chosen: CompiledCandidate | None) -> Iterator[CompiledCandidate | Certified]:
        """Programs that fit and may be faster than the one chosen, and the function as it is."""
        best = chosen.candidate if chosen else self.written
        longest = SLOWEST * best.predicted_seconds
        yield from self._unrewritten(self.written.predicted_seconds < longest)
        rivals: list[CompiledCandidate] = []
        if self.search is not None:
            further = (one for one in self.search.further(longest) if one is not chosen)
            rivals += islice(further, RIVALS)
        yield from rivals
        for compiled in filter(None, [chosen, *rivals][:2]):
            for candidate in self._variants(compiled.candidate):
                if self.deadline.passed():
                    return
                if candidate.predicted_peak <= self.budget and candidate.predicted_seconds < longest:
                    other = self.lowered.compiler.compile(candidate, self.budget)
                    if other.peak <= self.budget:
                        yield other

    def _unrewritten(self, every: bool) -> Iterator[Certified]:
        """The function as written, if it fits. It is one of them even if it is predicted to be slow.

        **Arguments:**

        - `every`: whether to take it under each set of options, or only under the one that should be fastest.
        """
        if self.baseline.within(self.budget).peak > self.budget:
            return
        if not every:
            yield self.baseline.to_run(self.budget)
            return
        for options in (HONEST, OWN) if OWN in self.target.compiler.options else (HONEST,):
            if self.deadline.passed():
                return
            if self.baseline.certified(options, draft=options == HONEST).peak <= self.budget:
                yield self.baseline.certified(options)

    def _variants(self, candidate: Candidate) -> Iterator[Candidate]:
        """The same program with longer and shorter chunks, and under other compiler options."""
        if candidate.loops:
            for factor in self.longer:
                yield rescaled(candidate, factor, self.machine)
        if OWN in self.target.compiler.options and fusions_round(candidate.schedule.program):
            yield replace(candidate, fused=not candidate.fused)

    def _planned_by(self, found: CompiledCandidate | Certified) -> Planned:
        if isinstance(found, CompiledCandidate):
            return self._changed(found, self.baseline.certified(draft=True))
        return self.assembly.as_written(found, self.lowered, self.written)

    def _has_room(self, planned: Planned) -> bool:
        """Whether it fits the budget together with copies of the donated arguments."""
        deleted = total_bytes([self.traced.closed.in_avals[number] for number in planned.donated])
        return planned.certified.peak + deleted <= self.budget
