"""The search for a program: one loop, in which every step is one decision that is logged.

The state is a search space, what has been extracted from it, how that ranks, and what was found to fit.
Candidates come from lower and lower caps on what is stored. The best of them is compiled once some caps in a
row have given none that is better. If what fits is slow, or nothing does, the search goes on in a wider
space, and at last among the programs that need least memory. Candidates that should be slow, and others once
some were too big, wait for what the wider space has.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from eqsat.compiler.candidate_compiler import CompiledCandidate
from eqsat.compiler.decisions import (
    Accept,
    Compile,
    Decision,
    DraftLeast,
    Extract,
    Grow,
    Lengthen,
    Provide,
    Saturate,
    SearchParts,
    Stop,
    peak_text,
    predicted_text,
)
from eqsat.compiler.goals import Compiler, Goal
from eqsat.compiler.lengthening import Lengthening
from eqsat.compiler.minimum_memory import LeastMemory
from eqsat.planning.candidates import Candidate
from eqsat.planning.capped_extraction import CappedExtraction, Step, StoringLess, WithoutLoops
from eqsat.planning.ranking import UNMOVED, Ranking
from eqsat.planning.search_space import SearchSpace, is_long
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.records import SearchStep
from eqsat.support.units import format_seconds
from eqsat.targets.machine import Machine

TAKES_AS_PREDICTED = 1.1
"""A program that fits waits if its time with the certified memory exceeds the prediction by this factor."""

ENOUGH_HELD = 2
"""Once so many programs that fit took longer than predicted, others are expected to do so as well."""

MOST_UNMOVED = 6
"""A space is done with after this many compiled programs in a row without a smaller peak."""

MOST_FAILED = 2
"""After so many compiled programs of a space that are too big, wider ones are searched before others are
compiled; in a long program, whose compilations take longer, after one."""

NEARLY_AS_FAST = 1.05
"""If the next one should take at most so many times as long as the one that was too big, as with somewhat
smaller chunks, it is compiled even so: to search a wider space of a long program takes longer."""

MUCH_FASTER = 0.8
"""If time is limited, a candidate is compiled in advance of others if it should take less than this share of
the time of the last one."""

MUCH_FASTER_THAN_OTHERS = 0.5
"""Of a candidate that is too big whatever its chunks, variants that store less are tried if it should take
less than this part of the time of the best other one."""

LOOKAHEAD = 3
"""The number of groups of candidates, extracted after one that should fit, in which a faster one may come."""

SHORT_LOOKAHEAD = 1
"""The same for a long program, of which each group takes long."""

BETTER = 0.98
"""A candidate is better if it should take at most this part of the time of the best one before."""


class Search:
    """A search and its state.

    **Attributes:**

    - `goal`: the goal.
    - `space`: the present search space, or the last one.
    - `found`: all accepted programs, which fit.
    - `log`: the decisions so far.
    - `compilations`: how many programs were compiled.
    - `extracted`: of all candidates, the predicted peak in bytes and the predicted seconds.

    **Arguments:**

    - `saturate`: makes the space with loops over at most so many axes; for None, without loops.
    - `least`: the programs that need least memory, if they are tried when all else fails.
    - `grow`: lengthens the chunks of such a program as far as it fits.
    - `parts`: searches the program part by part, which is tried once if nothing else fits.
    - `within`: extracts programs with loops from a space after another one; by default all that the budget
      allows.
    """

    def __init__(
        self,
        goal: Goal,
        saturate: Callable[[int | None], SearchSpace],
        compiler: Compiler,
        machine: Machine,
        deadline: Deadline,
        log: list[SearchStep],
        least: LeastMemory | None = None,
        grow: Callable[[CompiledCandidate], CompiledCandidate] | None = None,
        parts: Callable[[], list[Candidate]] | None = None,
        within: Callable[[SearchSpace, SearchSpace | None], CappedExtraction] | None = None,
    ) -> None:
        self.goal = goal
        self.space: SearchSpace | None = None
        self.found: list[CompiledCandidate] = []
        self.log = log
        self.compilations = 0
        self._saturate = saturate
        self._compiler = compiler
        self._machine = machine
        self._deadline = deadline
        self._least = least
        self._grow = grow
        self._parts = parts
        self._within = within or (
            lambda space, before: CappedExtraction.within(space, goal.budget, deadline, before)
        )
        self._by_parts = False
        self._wider = deque(goal.spaces)
        self._extraction: CappedExtraction | None = None
        self._ranking = Ranking(goal.budget, goal.fixed, machine)
        self._lengthening = Lengthening(goal.budget, machine)
        # A candidate that fits, of which longer chunks may fit, and the candidate with these.
        self._fits: tuple[Candidate, CompiledCandidate] | None = None
        self._longer: Candidate | None = None
        # Programs that fit but take longer than predicted, the fastest first.
        self._held: list[CompiledCandidate] = []
        # How many times as long as predicted these take.
        self._slowdowns: list[float] = []
        # The best candidate of earlier spaces, which is too slow to be compiled before wider ones are tried.
        self._left_behind: Candidate | None = None
        # The number of groups since the best candidate, and of compiled programs since a smaller peak.
        self._stale = self._unmoved = 0
        self._most_found: float = 1
        self._found_here = self._failed_here = 0
        self._failed_seconds = math.inf
        # If time is limited: a program that fits, until the search comes to one; what was compiled for that.
        self._provided: CompiledCandidate | None = None
        self._provisional: list[Candidate] = []
        self._drafts: Iterator[CompiledCandidate] | None = None
        self._drafted = 0
        self._small: CompiledCandidate | None = None
        self._ended = "not ended"
        self.extracted: list[tuple[int, float]] = []

    @property
    def fastest(self) -> CompiledCandidate | None:
        """The accepted program with the shortest predicted time."""
        return min(self.found, key=self._seconds, default=None)

    @property
    def stop_reason(self) -> str:
        """Why it ended, and why saturation of the last space ended."""
        return self._ended if self.space is None else f"{self._ended}; rules: {self.space.saturation.told}"

    def run(self) -> CompiledCandidate | None:
        """The first program that fits and is fast enough; if there is none, the fastest that fits."""
        while not isinstance(decision := self.decide(), Stop):
            self._take(decision)
        self._note(decision, "", 0.0)
        self._ended = decision.reason
        return self.fastest or self._provided

    def further(self, longest: float) -> Iterator[CompiledCandidate]:
        """Programs that fit and should take less than `longest` seconds, from the space that it ended in."""
        self.goal = replace(self.goal, longest=longest, enough=0.0)
        self._most_found = math.inf
        self._wider.clear()
        self._least = None
        place = 0
        while True:
            yield from (one for one in self.found[place:] if self._seconds(one) < longest)
            place = len(self.found)
            decision = self.decide()
            if isinstance(decision, Stop):
                return
            self._take(decision)

    def decide(self) -> Decision:
        """What to do next."""
        if self._fits is not None:
            return Accept(self._fits[1]) if self._longer is None else Lengthen(self._longer)
        fastest = self.fastest
        if fastest is not None and self._seconds(fastest) <= self.goal.enough:
            return Stop("a program that fits was found")
        if (candidate := self._in_advance()) is not None:
            return Provide(candidate)
        inside = self._decide_in_space()
        if inside is not None:
            return inside
        if self._wider and not self._deadline.passed():
            return Saturate(self._wider[0])
        if self._small is not None:
            return Grow(self._small)
        if self._least is not None:
            return DraftLeast(self._drafted + 1)
        if self._deadline.passed():
            return Stop(f"planning took {self._deadline.seconds:g} s")
        if fastest is None and self.goal.longest == math.inf:
            return Stop("no program that fits was found")
        return Stop("no other program should be faster")

    def _in_advance(self) -> Candidate | None:
        """If time is limited and nothing was accepted: the candidate to compile before the search goes on."""
        best = self._ranking.best()
        if self._deadline is NO_DEADLINE or self._deadline.passed() or self.found or best is None:
            return None
        known = any(best is one for one in self._provisional)
        enough = MUCH_FASTER * self._seconds(self._provided) if self._provided else self.goal.longest
        return None if known or best.predicted_seconds >= enough else best

    def _decide_in_space(self) -> Decision | None:
        """What to do in the present space; None if it is exhausted."""
        if self._extraction is None or self._found_here >= self._most_found:
            return None
        ended = self._unmoved >= MOST_UNMOVED or self.compilations >= self.goal.most
        ended |= self._deadline.passed()
        enough = self._by_parts and (self._held or self._ranking.best() is not None)
        if not (ended or enough) and (self._stale < self._lookahead or self._ranking.best() is None):
            step = self._extraction.next_step()
            if self._wants_parts(step):
                return SearchParts()
            if step is not None:
                return Extract(step)
        candidate = None if ended else self._ranking.next()
        if candidate is None or candidate.predicted_seconds >= self.goal.longest:
            held = self._held and self._seconds(self._held[0]) < self.goal.longest
            return Accept(self._held[0]) if held else None
        if self._held and self._seconds(self._held[0]) <= self._expected_seconds(candidate):
            return Accept(self._held[0])
        if self._wider and not self._deadline.passed() and self._waits_for_wider(candidate):
            return None  # It stays in the ranking.
        return Compile(candidate)

    @property
    def _lookahead(self) -> int:
        """How many groups to extract after the last that was better."""
        assert self.space is not None
        return SHORT_LOOKAHEAD if self.space.is_long else LOOKAHEAD

    def _expected_seconds(self, candidate: Candidate) -> float:
        """How long a candidate should take, given how long those took that fit."""
        known = len(self._slowdowns) >= ENOUGH_HELD
        return candidate.predicted_seconds * (min(self._slowdowns) if known else 1.0)

    def _waits_for_wider(self, candidate: Candidate) -> bool:
        """Whether a wider space should be searched before a candidate is compiled."""
        assert self.space is not None
        slow = candidate.predicted_seconds > NEARLY_AS_FAST * self._failed_seconds
        most_failed = 1 if self.space.is_long and slow else MOST_FAILED
        return candidate.predicted_seconds > self.goal.brisk or self._failed_here >= most_failed

    def _wants_parts(self, step: Step | None) -> bool:
        """Whether it is time to search part by part: nothing should fit, and `step` comes next."""
        if self._parts is None or self.found or self._held or self._ranking.best() is not None:
            return False
        assert self.space is not None
        assert self._extraction is not None
        if step is None and self._extraction.hopeless:
            return False
        return step is None or (is_long(self.space.program) and isinstance(step, StoringLess))

    def _take(self, decision: Decision) -> None:
        """Carry out a decision and log it."""
        began = time.perf_counter()
        outcome = self._outcome(decision)
        self._note(decision, outcome, time.perf_counter() - began)

    def _note(self, decision: Decision, outcome: str, seconds: float) -> None:
        self.log.append(SearchStep(str(decision), outcome, seconds))
        self._compiler.stopwatch.progress.tell(str(self.log[-1]))

    def _outcome(self, decision: Decision) -> str:
        """Carry out a decision and return its outcome as text."""
        match decision:
            case Saturate(axes):
                return self._enter(axes)
            case Extract(step):
                return self._extract(step)
            case SearchParts():
                parts, self._parts = self._parts, None
                assert parts is not None
                outcome = self._add(self._compiler.stopwatch.timed("search", parts))
                # What comes next takes long, and is rarely faster.
                self._by_parts = self._ranking.best() is not None
                return outcome
            case Compile(candidate):
                return self._compile(candidate)
            case Provide(candidate):
                return self._provide(candidate)
            case Accept(compiled):
                self._fits = None
                self._held = [one for one in self._held if one is not compiled]
                return self._accept(compiled)
            case Lengthen(candidate):
                return self._lengthen(candidate)
            case DraftLeast():
                return self._draft()
            case Grow(compiled):
                self._small = None
                assert self._grow is not None
                larger = self._grow(compiled)
                return self._accept(larger) if larger.peak <= self.goal.budget else peak_text(larger)
            case Stop():
                return ""

    def _enter(self, axes: int | None) -> str:
        self._wider.popleft()
        before = self.space
        self.space = space = self._saturate(axes)
        if axes is None:
            self._extraction = CappedExtraction.without_loops(space, self.goal.budget, self._deadline)
        else:
            self._extraction = self._within(space, before)
            if len(space.large) < axes:
                self._wider.clear()  # They would be the same.
        self._left_behind = self._ranking.best()
        self._stale = self._unmoved = self._found_here = self._failed_here = 0
        return f"{space.saturation.told}; {len(space.large)} axes may be looped over"

    def _extract(self, step: Step) -> str:
        extraction = self._extraction
        assert extraction is not None
        group = self._compiler.stopwatch.timed("search", extraction.take)
        # There is no other program without loops: the compiler says whether it fits.
        return self._add(group, math.inf if isinstance(step, WithoutLoops) else None)

    def _add(self, group: list[Candidate], bound: float | None = None) -> str:
        """Rank candidates, of which those that need at most `bound` bytes (default: the budget) may fit."""
        if not group:
            return "nothing new"
        before = self._ranking.best()
        self.extracted += [(one.predicted_peak, one.predicted_seconds) for one in group]
        self._ranking.add(group, bound)
        best = self._ranking.best()
        bar = math.inf if before is None else BETTER * before.predicted_seconds
        if best is not None and best.predicted_seconds <= bar:
            self._stale = 0
        elif before is not self._left_behind:
            self._stale += 1
        count = f"{len(group)} programs; the first one of" if len(group) > 1 else "one program of"
        return f"{count} {predicted_text(group[0])}"

    def _compile(self, candidate: Candidate) -> str:
        self._ranking.take()
        before = self._compiler.smallest
        self.compilations += 1
        compiled = self._compiler.compile(candidate, self.goal.budget)
        if compiled.peak > self.goal.budget:
            moved = before is None or compiled.peak < UNMOVED * before.peak
            self._unmoved = 0 if moved else self._unmoved + 1
            self._failed_here += 1
            self._failed_seconds = candidate.predicted_seconds
            if not self._ranking.came_out(candidate, compiled.peak):
                self._store_less(candidate, compiled.peak)
            self._lengthening.came_out(candidate, compiled.peak)
            return peak_text(compiled) + ": too much"
        if self._may_be_longer(candidate, compiled):
            return f"{peak_text(compiled)}: it fits, but needs little"
        if self._seconds(compiled) <= TAKES_AS_PREDICTED * candidate.predicted_seconds:
            return self._accept(compiled)
        self._held = sorted([*self._held, compiled], key=self._seconds)
        self._slowdowns.append(self._seconds(compiled) / candidate.predicted_seconds)
        return f"{peak_text(compiled)}, but should take {format_seconds(self._seconds(compiled))}: it waits"

    def _store_less(self, candidate: Candidate, peak: int) -> None:
        """Look for variants of a candidate that is too big whatever its chunks, if others are much slower."""
        assert self._extraction is not None
        best = self._ranking.best()
        slower = math.inf if best is None else best.predicted_seconds
        if candidate.predicted_seconds < MUCH_FASTER_THAN_OTHERS * slower:
            bound = self._ranking.bound(candidate, peak)
            if self._extraction.came_out(candidate, bound, slower):
                self._stale = 0

    def _may_be_longer(self, candidate: Candidate, compiled: CompiledCandidate) -> bool:
        """Whether a candidate that fits may have longer chunks, which are compiled next."""
        ended = self._deadline.passed() or self.compilations >= self.goal.most
        self._longer = None if ended else self._lengthening.longer(candidate, compiled.peak)
        if self._longer is not None:
            self._fits = candidate, compiled
        return self._longer is not None

    def _lengthen(self, candidate: Candidate) -> str:
        """Compile a candidate that fits with longer chunks, and keep it if it still fits and is faster."""
        assert self._fits is not None
        self.compilations += 1
        compiled = self._compiler.compile(candidate, self.goal.budget)
        if compiled.peak > self.goal.budget:
            self._lengthening.came_out(candidate, compiled.peak)
        elif self._seconds(compiled) < self._seconds(self._fits[1]):
            self._fits = candidate, compiled
        self._may_be_longer(*self._fits)
        return peak_text(compiled) + (": too much" if compiled.peak > self.goal.budget else ": it fits")

    def _provide(self, candidate: Candidate) -> str:
        self._provisional.append(candidate)
        compiled = self._compiler.compile(candidate, self.goal.budget)
        if compiled.peak > self.goal.budget:
            return self._compile(candidate)
        self._provided = compiled
        return peak_text(compiled)

    def _draft(self) -> str:
        assert self._least is not None
        if self._drafts is None:
            # If time ran out before there was a space, there are none.
            space = self.space
            self._drafts = iter(()) if space is None else self._least.within(self.goal.budget, space)
        compiled = next(self._drafts, None)
        self.compilations += 1
        self.space = self._least.space or self.space
        if compiled is None:
            self._least = None
            return "there are no more"
        self._drafted += 1
        if compiled.peak <= self.goal.budget:
            self._small = compiled
        return peak_text(compiled)

    def _accept(self, compiled: CompiledCandidate) -> str:
        self.found.append(compiled)
        self._found_here += 1
        return f"{peak_text(compiled)}: it fits"

    def _seconds(self, compiled: CompiledCandidate) -> float:
        return compiled.seconds(self._machine)
