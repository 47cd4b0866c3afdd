"""Tuning: the best few programs that fit are timed on the device, and the fastest is the plan.

The machine model ranks programs by what it knows of a machine: some rates, and the size of its cache. Where
two are predicted to take about as long, or the model is wrong, a few calls of each tell which one is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from eqsat.backend.certificate import HONEST, OWN, Certified, available
from eqsat.compiler.candidate_compiler import CompiledCandidate, total_bytes
from eqsat.compiler.planned import Planned
from eqsat.compiler.planner import Planner
from eqsat.planning.candidates import Candidate, fusions_round, rescaled
from eqsat.reports.records import TimedProgram, Tuning
from eqsat.support.deadline import Deadline

MOST_TIMED = 6
"""So many programs are timed at most, with the one that was predicted to be fastest."""

RIVALS = 2
"""So many of them are others of the ranking."""

SLOWEST = 2.0
"""What is predicted to take so many times as long as the best is not timed."""

CHUNKS = (0.5, 2.0)
"""The lengths of chunks, next to those chosen, that are timed."""

ROUNDS = 7
"""So many calls of each program are timed, after one that warms it up, in turns."""

ENOUGH = 2.0
"""Seconds: after so long, there is not another round, but at least one after the warm-up."""

MOST_SECONDS = 60.0
"""After so long, not another call is made."""

FAR = 1.5
"""A program that takes so many times as long as the fastest is not called again."""

SHORT = 0.2
"""Seconds: programs that take no longer get some more calls all the same, as few of them say little."""

SOME = 3
"""So many."""

PAIRS = 12
"""So many more calls of the fastest one and of the one predicted to be, in turns, decide between these two:
of several that were timed, the fastest may be no more than the luckiest.
"""

FEWEST_PAIRS = 3
"""So many at least, whatever time they take."""

CLEARLY = 0.95
"""Another program is taken only if it takes less than this part of the time: what is less is noise."""

WINS = 0.75
"""And only if it was faster in this part of the pairs."""


class Tuner(Planner):
    """A planner that times the best few of its programs, on arguments that are in memory.

    **Attributes:**

    - `values`: the arguments, as arrays.
    """

    tried = 1.5

    def __init__(self, values: Sequence[jax.Array], *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.values = values

    def planned(self) -> Planned:
        """The fastest of the programs that are certified to fit.

        Only one runs at a time, and its results are gone before the next one does, so that the budget holds.

        **Raises:** `BudgetError` if there is none.
        """
        first, chosen = super().planned(), self.chosen
        if self.obstacle is not None:
            return untimed(first, self.obstacle.reason)
        if jax.process_count() > 1:
            return untimed(first, "every process has to run the same program")
        if not self._has_room(first):
            return untimed(first, "there is no room for copies of the donated arguments")
        try:
            others = islice(self._others(first, chosen), MOST_TIMED - 1)
            contenders = [first, *others]
            return self.stopwatch.timed("tune", lambda: self._timed_fastest(contenders))
        except Exception as error:
            # Any function survives: there is a plan without timing anything.
            return untimed(first, f"timing failed: {error!r}")

    def _others(self, first: Planned, chosen: CompiledCandidate | None) -> Iterator[Planned]:
        """Further programs that fit; there may be more of them than are timed."""
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
        """The function as it is, if it fits, which is timed even if it is predicted to be slow.

        **Arguments:**

        - `every`: whether with each set of options, or only with that which should be fastest.
        """
        if self.baseline.within(self.budget).peak > self.budget:
            return
        if not every:
            yield self.baseline.to_run(self.budget)
            return
        for options in (HONEST, OWN) if available(OWN) else (HONEST,):
            if self.deadline.passed():
                return
            if self.baseline.certified(options, draft=options == HONEST).peak <= self.budget:
                yield self.baseline.certified(options)

    def _variants(self, candidate: Candidate) -> Iterator[Candidate]:
        """The same program with longer and shorter chunks, and compiled with other options."""
        if candidate.loops:
            for factor in CHUNKS:
                yield rescaled(candidate, factor, self.machine)
        if available(OWN) and fusions_round(candidate.schedule.program):
            yield replace(candidate, fused=not candidate.fused)

    def _planned_by(self, found: CompiledCandidate | Certified) -> Planned:
        if isinstance(found, CompiledCandidate):
            return self._changed(found, self.baseline.certified(draft=True))
        return self.assembly.as_written(found, self.lowered, self.written)

    def _has_room(self, planned: Planned) -> bool:
        """Whether it is within the budget on copies of the arguments that a call deletes."""
        deleted = total_bytes([self.traced.closed.in_avals[number] for number in planned.donated])
        return planned.certified.peak + deleted <= self.budget

    def _timed_fastest(self, contenders: Sequence[Planned]) -> Planned:
        """The contender that takes least time; the first of them if none takes clearly less."""
        first = contenders[0]
        if self.deadline.passed():
            return untimed(first, "there was no time")
        if len(contenders) == 1:
            return untimed(first, "no other program that fits should be nearly as fast")

        def call(number: int) -> float:
            return seconds_of(contenders[number], self.values)

        times = rounds(len(contenders), call, self.deadline)
        taken = {number: typical(calls) for number, calls in enumerate(times) if calls}
        if len(taken) < 2:
            return untimed(first, "there was no time")
        notes = []
        if late := len(contenders) - len(taken):
            notes.append(f"there was no time for {late} more")
        best = min(taken, key=lambda number: taken[number])
        if taken[best] > CLEARLY * taken[0]:
            best = 0
        elif best:
            ratios = run_off(lambda: call(0), lambda: call(best), self.deadline)
            if not is_faster(ratios):
                notes.append(
                    f"the fastest was so in {sum(r < 1 for r in ratios)} of {len(ratios)} more calls"
                )
                best = 0
        programs = tuple(
            timed_program(contenders[number], seconds, len(times[number]), number == best)
            for number, seconds in taken.items()
        )
        plan = replace(contenders[best].plan, tuning=Tuning(programs, "; ".join(notes)))
        return replace(contenders[best], plan=plan)


def untimed(planned: Planned, why: str) -> Planned:
    """A plan of which nothing was timed, nor would be another time."""
    return replace(planned, plan=replace(planned.plan, tuning=Tuning(note=why)))


def timed_program(planned: Planned, seconds: float, calls: int, chosen: bool) -> TimedProgram:
    """What there is to say of a plan that was timed."""
    plan = planned.plan
    predicted = plan.predicted_seconds if plan.changed else plan.original_seconds
    loops = ", ".join(dict.fromkeys(f"{loop.label or loop.axis} by {loop.chunk}" for loop in plan.loops))
    what = f"loops: {loops}" if loops else "rewritten, no loops" if plan.changed else "as written"
    return TimedProgram(what, plan.options, plan.peak_bytes, predicted, seconds, calls, chosen)


def seconds_of(planned: Planned, values: Sequence[Any]) -> float:
    """The time of a call on these arguments, of which those that it deletes are copied first."""
    given = [
        jnp.array(value, copy=True) if number in planned.donated else value
        for number, value in enumerate(values)
    ]
    jax.block_until_ready(given)
    began = time.perf_counter()
    jax.block_until_ready(planned.run(*given))
    return time.perf_counter() - began


def rounds(count: int, call: Callable[[int], float], deadline: Deadline) -> list[list[float]]:
    """The seconds of calls of so many programs, in turns, until they tell which one is fastest.

    **Arguments:**

    - `call`: calls one, by its number, and says how long that took.
    """
    times: list[list[float]] = [[] for _ in range(count)]
    left, spent = list(range(count)), 0.0
    for turn in range(ROUNDS + 1):
        for number in left:
            if deadline.passed() or spent > MOST_SECONDS:
                return times
            times[number].append(call(number))
            spent += times[number][-1]
        if turn and spent > ENOUGH:
            break
        least = min(typical(times[number]) for number in left)
        far = FAR * (least if turn >= SOME else max(least, SHORT))
        left = [number for number in left if typical(times[number]) <= far]
    return times


def run_off(first: Callable[[], float], other: Callable[[], float], deadline: Deadline) -> list[float]:
    """What the other program takes relative to the first one, in calls of both in turns."""
    ratios: list[float] = []
    spent = 0.0
    for turn in range(PAIRS):
        if deadline.passed() or spent > MOST_SECONDS or (turn >= FEWEST_PAIRS and spent > ENOUGH):
            break
        pair = first(), other()
        ratios.append(pair[1] / pair[0])
        spent += sum(pair)
    return ratios


def is_faster(ratios: Sequence[float]) -> bool:
    """Whether calls that took so many times as long as those of another program show that it is faster.

    >>> is_faster([0.8, 0.9, 0.7, 1.2]), is_faster([0.8, 0.9, 1.3, 1.2]), is_faster([0.8])
    (True, False, False)
    """
    wins = sum(ratio < 1 for ratio in ratios)
    return len(ratios) >= FEWEST_PAIRS and median(ratios) < CLEARLY and wins >= WINS * len(ratios)


def typical(seconds: Sequence[float]) -> float:
    """The time that a program takes, given those of its calls: the first one warms it up.

    >>> typical([9.0, 2.0, 1.0, 3.0]), typical([9.0])
    (2.0, 9.0)
    """
    return median(seconds[1:] or seconds)
