"""Autotuning: the best few programs that fit are timed on the device, and the fastest becomes the plan.

The machine model knows a few rates and the size of the cache. If two programs have similar predicted times,
or if the model is wrong, a few calls of each show which one is faster.
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

from eqsat.backend.certificate import Certified
from eqsat.compiler.candidate_compiler import CompiledCandidate, total_bytes
from eqsat.compiler.planned import Planned
from eqsat.compiler.planner import Planner
from eqsat.planning.candidates import Candidate, fusions_round, rescaled
from eqsat.reports.records import TimedProgram, Tuning
from eqsat.support.deadline import Deadline
from eqsat.targets.compiler_profile import HONEST, OWN

MOST_TIMED = 6
"""The number of programs timed at most, including the one predicted to be fastest."""

RIVALS = 2
"""How many of them are further programs of the search."""

SLOWEST = 2.0
"""Programs predicted to take longer than the best by this factor are not timed."""

CHUNKS = (0.5, 2.0)
"""Factors of the chosen chunk lengths that are timed as well."""

ROUNDS = 7
"""Timed calls of each program, after one warm-up call. The programs take turns."""

ENOUGH = 2.0
"""Seconds after which no further round starts. There is at least one round after the warm-up."""

MOST_SECONDS = 60.0
"""Seconds after which no further call is made."""

FAR = 1.5
"""A program slower than the fastest by this factor is not called again."""

SHORT = 0.2
"""Seconds. Programs that take less get `SOME` more calls in any case, since few short calls say little."""

SOME = 3
"""The number of those calls."""

PAIRS = 12
"""Pairs of calls, of the fastest program and of the one predicted to be, that decide between the two. The
fastest of several timed programs may only have been lucky.
"""

FEWEST_PAIRS = 3
"""The minimum number of such pairs, however long they take."""

CLEARLY = 0.95
"""A program replaces the predicted best only if it takes less than this part of its time."""

WINS = 0.75
"""It must also be faster in this share of the pairs."""


class Tuner(Planner):
    """A planner that times its best few programs on the arguments of a call.

    **Attributes:**

    - `values`: the arguments, as arrays.
    """

    tried = 1.5

    def __init__(self, values: Sequence[jax.Array], *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.values = values

    def planned(self) -> Planned:
        """The fastest of the programs that are certified to fit.

        Only one runs at a time, and its results are freed before the next one starts: the budget holds.

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
        """Further programs that fit, possibly more than are timed."""
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
        """The function as written, if it fits. It is timed even if it is predicted to be slow.

        **Arguments:**

        - `every`: whether to time it under each set of options, or only under the one that should be fastest.
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
            for factor in CHUNKS:
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

    def _timed_fastest(self, contenders: Sequence[Planned]) -> Planned:
        """The fastest contender, or the first one if none is clearly faster."""
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
    """A plan that says why nothing was timed. Planning again would not change that."""
    return replace(planned, plan=replace(planned.plan, tuning=Tuning(note=why)))


def timed_program(planned: Planned, seconds: float, calls: int, chosen: bool) -> TimedProgram:
    """The record of a plan that was timed."""
    plan = planned.plan
    predicted = plan.predicted_seconds if plan.changed else plan.original_seconds
    loops = ", ".join(dict.fromkeys(f"{loop.label or loop.axis} by {loop.chunk}" for loop in plan.loops))
    what = f"loops: {loops}" if loops else "rewritten, no loops" if plan.changed else "as written"
    return TimedProgram(what, plan.options, plan.peak_bytes, predicted, seconds, calls, chosen)


def seconds_of(planned: Planned, values: Sequence[Any]) -> float:
    """The seconds of a call on these arguments. Donated arguments are copied first."""
    given = [
        jnp.array(value, copy=True) if number in planned.donated else value
        for number, value in enumerate(values)
    ]
    jax.block_until_ready(given)
    began = time.perf_counter()
    jax.block_until_ready(planned.run(*given))
    return time.perf_counter() - began


def rounds(count: int, call: Callable[[int], float], deadline: Deadline) -> list[list[float]]:
    """Time `count` programs in turns until the times show which one is fastest: the seconds of each call.

    **Arguments:**

    - `call`: calls the program of a number and returns the seconds.
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
    """The ratios of the other program's time to the first one's, from pairs of calls."""
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
    """Whether these ratios of its time to another program's show that a program is faster.

    >>> is_faster([0.8, 0.9, 0.7, 1.2]), is_faster([0.8, 0.9, 1.3, 1.2]), is_faster([0.8])
    (True, False, False)
    """
    wins = sum(ratio < 1 for ratio in ratios)
    return len(ratios) >= FEWEST_PAIRS and median(ratios) < CLEARLY and wins >= WINS * len(ratios)


def typical(seconds: Sequence[float]) -> float:
    """The median of the calls of a program after the first one, which is its warm-up.

    >>> typical([9.0, 2.0, 1.0, 3.0]), typical([9.0])
    (2.0, 9.0)
    """
    return median(seconds[1:] or seconds)
