"""The programs that need least memory, however slow, and their growth up to a budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from eqsat.compiler.candidate_compiler import CandidateCompiler, CompiledCandidate
from eqsat.planning.candidates import Candidate, as_written, rechunk, rescaled
from eqsat.planning.capped_extraction import every_attempt
from eqsat.planning.ranking import HOPELESS
from eqsat.planning.search_space import SearchSpace
from eqsat.support.deadline import Deadline
from eqsat.targets.machine import Machine

MOST_LEAN = 4
"""The number of programs, those predicted to need least, that are compiled."""

MOST_SHRUNK = 3 * MOST_LEAN
"""The number of programs, lowest peaks first, whose steps are ordered once more, in the shortest chunks."""

WORSE = 2.0
"""A program predicted to need more for temporaries than a compiled one by this factor is not compiled."""

CLEARLY_LESS = 0.9
"""Where no program fits, the one that needs least is drafted if it should need less than this share of what
the function as written does."""


class LeastMemory:
    """The programs predicted to need least memory, drafted on demand. They are the same for every budget.

    **Attributes:**

    - `space`: the search space without memory for temporaries; None until the first draft.
    - `drafted`: the drafts so far.

    **Arguments:**

    - `saturate`: makes the space.
    """

    def __init__(
        self, saturate: Callable[[], SearchSpace], compiler: CandidateCompiler, deadline: Deadline
    ) -> None:
        self.space: SearchSpace | None = None
        self.drafted: list[CompiledCandidate] = []
        self._saturate = saturate
        self._compiler = compiler
        self._deadline = deadline
        self._candidates: list[Candidate] = []
        self._searched = False

    def __iter__(self) -> Iterator[CompiledCandidate]:
        place = 0
        while place < len(self.drafted) or self._draft():
            yield self.drafted[place]
            place += 1

    def within(self, budget: int, space: SearchSpace) -> Iterator[CompiledCandidate]:
        """The drafts for a budget; if nothing can fit it, at most one, which says about how much is needed.

        **Arguments:**

        - `space`: the widest space that was searched for programs within the budget.
        """
        if self._deadline.passed():
            return iter(())
        if not space.fits_nowhere(budget):
            return iter(self)
        candidates = self._compiler.stopwatch.timed(
            "search", lambda: leanest(space, self._deadline, spills=False)
        )
        enough = CLEARLY_LESS * as_written(space.program, space.machine).predicted_peak
        return map(self._compiler.draft, (one for one in candidates[:1] if one.predicted_peak < enough))

    def _entered(self) -> SearchSpace:
        """The search space, made when it is first asked for."""
        if self.space is None:
            self.space = self._saturate()
        return self.space

    def _draft(self) -> bool:
        """Draft another program; whether there was one."""
        if self._deadline.passed():
            return False
        space = self._entered()
        if not self._searched:
            self._searched = True
            self._candidates = self._compiler.stopwatch.timed(
                "search", lambda: leanest(space, self._deadline)
            )
        if len(self.drafted) == len(self._candidates):
            return False
        candidate = self._candidates[len(self.drafted)]
        fixed = space.program.fixed_bytes
        least = min((one.peak for one in self.drafted), default=math.inf)
        if candidate.predicted_peak - fixed > WORSE * (least - fixed):
            return False
        self.drafted.append(self._compiler.draft(candidate))
        return True


def leanest(space: SearchSpace, deadline: Deadline, spills: bool = True) -> list[Candidate]:
    """The candidates predicted to need least, without fusions that hide values.

    **Arguments:**

    - `spills`: whether to look for those that do without what is alive at the peak.
    """

    def small_and_fast(candidate: Candidate) -> tuple[int, float]:
        return candidate.predicted_peak, candidate.predicted_seconds

    groups = every_attempt(space, deadline, spills)
    smallest = sorted(itertools.chain.from_iterable(groups), key=small_and_fast)[:MOST_SHRUNK]
    shrunk = [replace(rechunk(candidate, 0, space.machine), fused=False) for candidate in smallest]
    return sorted(shrunk, key=small_and_fast)[:MOST_LEAN]


def grown(
    compiled: CompiledCandidate,
    budget: int,
    compiler: CandidateCompiler,
    machine: Machine,
    deadline: Deadline,
) -> CompiledCandidate:
    """The same program with the longest chunks that are certified to fit, by bisection.

    Steps double the memory predicted for temporaries, starting from that of `compiled`, so that they are the
    same for every budget. If it then needs far less than predicted, further steps double the chunks. Drafts
    say which steps fit; the last of these is compiled in full.
    """
    fixed = compiled.candidate.schedule.program.fixed_bytes
    room = max(compiled.candidate.predicted_peak - fixed, 1)

    def longest(steps: int, candidate: Callable[[int], Candidate]) -> CompiledCandidate:
        """The candidate of the last step that fits. The first one does."""
        fits, too_big = 0, steps + 1
        while too_big - fits > 1 and not deadline.passed():
            middle = (fits + too_big) // 2
            draft = compiler.draft(candidate(middle), budget)
            if draft.peak - draft.certified.scratch <= budget:  # Products may pack less.
                fits = middle
            else:
                too_big = middle
        while (found := compiler.compile(candidate(fits), budget)).peak > budget and fits:
            fits -= 1  # Its draft was off.
        return found

    steps = math.ceil(math.log2(max(HOPELESS * (budget - fixed) / room, 1.0)))
    best = longest(
        steps,
        lambda step: (
            rechunk(compiled.candidate, fixed + room * 2**step, machine) if step else compiled.candidate
        ),
    )
    base, spare = best.candidate, (budget - fixed) / max(best.peak - fixed, 1)
    steps = int(math.log2(max(spare, 1.0)))
    return longest(steps, lambda step: rescaled(base, 2.0**step, machine)) if steps else best
