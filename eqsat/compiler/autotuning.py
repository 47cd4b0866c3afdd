"""Autotuning: the best few programs that fit are timed on the device, and the fastest becomes the plan.

The machine model knows a few rates and the size of the cache. If two programs have similar predicted times,
or if the model is wrong, a few calls of each show which one is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from eqsat.compiler.contenders import CLEARLY, Contenders
from eqsat.compiler.planned import Planned
from eqsat.reports.records import TimedProgram, Tuning
from eqsat.support.deadline import Deadline

MOST_TIMED = 6
"""The number of programs timed at most, including the one predicted to be fastest."""

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

WINS = 0.75
"""It must also be faster in this share of the pairs."""


class Tuner(Contenders):
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
            others = islice(self.others(first, chosen), MOST_TIMED - 1)
            contenders = [first, *others]
            return self.stopwatch.timed("tune", lambda: self._timed_fastest(contenders))
        except Exception as error:
            # Any function survives: there is a plan without timing anything.
            return untimed(first, f"timing failed: {error!r}")

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
