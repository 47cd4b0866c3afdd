"""A program at one size, with the ways to compute it, and their measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp

import eqsat
from benchmarks.loops import Function, fastest
from eqsat.targets.compiler_profile import OWN
from examples.comparison import in_double_precision
from examples.measure import Timing, difference, has_room_for, interleaved, plain_peak

PLAIN, HAND, AMPLE, TIGHT = "plain JAX", "by hand", "eqsat", "eqsat, tight"

PATIENCE = 5.0
"""A way that takes longer than this, in seconds, is timed only once."""

SLACK = 1.02
"""If nothing fits a budget, eqsat gets this many times the memory of the leanest program instead."""


@dataclass(frozen=True)
class Row:
    """The results for one way to compute a case.

    **Attributes:**

    - `seconds`, `processor_seconds`: the median times of `calls` calls, or None if it was not run.
    - `budget`: eqsat's budget in bytes.
    - `peak`: the certified peak in bytes; for other ways, that under options that count every buffer. None if
      it is not known.
    - `base`: the way that it is compared with.
    - `ratio`, `processor_ratio`: its times relative to those of `base`.
    - `error`: the largest difference from the reference, relative to the largest entry.
    - `note`: what was run, or why nothing was.
    - `day`: the date of the measurement.
    """

    group: str
    case: str
    way: str
    seconds: float | None = None
    processor_seconds: float | None = None
    calls: int = 0
    budget: int | None = None
    peak: int | None = None
    base: str = ""
    ratio: float | None = None
    processor_ratio: float | None = None
    error: float | None = None
    planning_seconds: float | None = None
    note: str = ""
    day: str = ""


class Measurable(Protocol):
    """A part of the benchmark that gets a process of its own."""

    @property
    def group(self) -> str: ...

    @property
    def title(self) -> str: ...

    def measure(self, runs: int) -> list[Row]: ...


Peer = Callable[..., Function]
"""A library's way: it takes the arguments, and returns a function of them, which is timed.

What it does once for some data, such as building an index, is not timed. It raises an `ImportError` if the
library is not installed.
"""


def everything(result: Any, arguments: tuple[Any, ...]) -> Any:
    return result


@dataclass(frozen=True)
class Case:
    """A program at one size.

    **Attributes:**

    - `by_hand`: other ways to write it in JAX, of which the fastest counts.
    - `trial`: makes from the arguments smaller ones, on which the fastest is chosen in less time.
    - `peers`: libraries that compute the same.
    - `part`: the part of a result that is compared; by default all of it.
    - `reference`: computes from the arguments what `part` should be; by default the program in float64.
    - `tight`: the smaller budget, as a share of plain JAX's peak, if nothing is written by hand. None: there
      is only the ample budget.
    - `double`: whether the case is in float64.
    - `accuracy`: the accuracy class, as for `eqsat.optimize`.
    """

    group: str
    title: str
    function: Function
    arguments: Callable[[], tuple[Any, ...]]
    by_hand: Mapping[str, Function] = field(default_factory=dict)
    trial: Callable[[tuple[Any, ...]], tuple[Any, ...]] = tuple
    peers: Mapping[str, Peer] = field(default_factory=dict)
    part: Callable[[Any, tuple[Any, ...]], Any] = everything
    reference: Function | None = None
    tight: float | None = 0.1
    double: bool = False
    accuracy: str = "reassociates"

    def measure(self, runs: int) -> list[Row]:
        """Measures all ways in turns, by at least `runs` calls of each that takes at most `PATIENCE`."""
        with jax.enable_x64(self.double):
            return self._measure(jax.tree.map(jnp.asarray, self.arguments()), runs)

    def _measure(self, arguments: tuple[Any, ...], runs: int) -> list[Row]:
        plain = plain_peak(self.function, arguments)
        ways: dict[str, Function] = {}
        facts: dict[str, dict[str, Any]] = {PLAIN: {"peak": plain, "base": AMPLE}}
        if has_room_for(plain):
            ways[PLAIN] = jax.jit(self.function)
            # XLA's own options are those under which plain JAX runs; they may hide some buffers.
            needed = max(plain, plain_peak(self.function, arguments, OWN))
            ways[AMPLE], facts[AMPLE] = self._planned(arguments, 2 * needed)
        else:
            facts[PLAIN]["note"] = "does not fit"
        base = AMPLE if self.tight is None else TIGHT
        lean = None if self.tight is None else int(self.tight * plain)
        if self.by_hand:
            best = fastest(self.by_hand, self.trial(arguments))
            lean = plain_peak(best.function, arguments, best.options)
            note = f"{best.name}, options: {best.options}"
            ways[HAND], facts[HAND] = best.compiled, {"peak": lean, "note": note, "base": base}
        if lean is not None:
            ways[TIGHT], facts[TIGHT] = self._planned(arguments, lean)
        for name, peer in self.peers.items():
            facts[name] = {"base": base}
            try:
                ways[name] = peer(*arguments)
            except ImportError:
                facts[name]["note"] = "is not installed"
        timings = interleaved(ways, arguments, runs, PATIENCE)
        truth = (self.reference or in_double_precision(self.function))(*arguments)
        return [
            Row(self.group, self.title, name, **known)
            if name not in timings
            else self._row(name, known, timings, arguments, truth)
            for name, known in facts.items()
        ]

    def _planned(self, arguments: tuple[Any, ...], budget: int) -> tuple[Function, dict[str, Any]]:
        """Plans within the budget, or if nothing fits, within little more than the leanest program needs."""
        note = ""
        while True:
            optimized = eqsat.optimize(self.function, budget=budget, accuracy=self.accuracy)
            began = time.perf_counter()
            try:
                plan = optimized.plan(*arguments)
                break
            except eqsat.BudgetError as error:
                if note or error.smallest_peak is None:
                    raise
                note = f"nothing fits {budget / 1e6:.3g} MB; "
                budget = int(SLACK * error.smallest_peak)
        return optimized, {
            "budget": budget,
            "peak": plan.peak_bytes,
            "planning_seconds": time.perf_counter() - began,
            "note": note + ("; ".join(map(str, plan.loops)) or "no loops"),
        }

    def _row(
        self,
        name: str,
        facts: dict[str, Any],
        timings: Mapping[str, Timing],
        arguments: tuple[Any, ...],
        truth: Any,
    ) -> Row:
        timing, base = timings[name], timings.get(facts.get("base", ""))
        return Row(
            self.group,
            self.title,
            name,
            timing.seconds,
            timing.processor_seconds,
            len(timing.wall),
            ratio=base and timing.relative_to(base),
            processor_ratio=base and timing.processor_relative_to(base),
            error=difference(self.part(timing.result, arguments), truth),
            **facts,
        )
