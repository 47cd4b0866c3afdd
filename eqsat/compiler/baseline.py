"""The function as written: lowered to a program, and compiled once under each set of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from eqsat.backend.certificate import Certified, certify
from eqsat.backend.donation import Donation
from eqsat.backend.rounding import rounded_products
from eqsat.compiler.candidate_compiler import Stopwatch
from eqsat.frontend.lower import lower
from eqsat.frontend.rounding import rounding
from eqsat.frontend.trace import Traced
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from eqsat.ir.program import Program
from eqsat.planning.candidates import Candidate, as_written, fusion_costs
from eqsat.targets.compiler_profile import HONEST, OWN, UNORDERED
from eqsat.targets.target import Target

REORDERED = 2
"""XLA's own order of instructions is expected to lower the peak of the other order by this factor at most."""

UNFUSED = 1.25
"""The slowdown of a program without XLA's own fusions, where these pay (docs/log/xla-options.md)."""

MOST_CODE = 1 << 16
"""Bytes. Captured arrays that are smaller in total count as code, such as coefficients and tables: XLA does
not count them in a compiled function. Larger ones count as data."""


Function = Callable[..., Sequence[Any]]


Devices = Callable[[int], Sequence[jax.Device]]
"""From a number to so many devices of those that are compiled for."""


def _alike(
    function: Function, avals: Sequence[Any], closed: ClosedJaxpr, devices: Devices
) -> tuple[Function, list[Any]]:
    return function, list(avals)


@dataclass(frozen=True)
class Obstacle:
    """Why a function cannot be planned. It is compiled as written, and its certified peak decides if it runs.

    **Attributes:**

    - `reason`: "it has side effects"...
    - `compilable`: from the function, the types of its arguments with where they are, its jaxpr and the
      devices, to a function that can be compiled by itself, and the types of that one's arguments.
    """

    reason: str
    compilable: Callable[[Function, Sequence[Any], ClosedJaxpr, Devices], tuple[Function, list[Any]]] = _alike


class Baseline:
    """A traced function as it is.

    **Attributes:**

    - `target`: what it is compiled for.
    - `placement`: the arguments' shardings, if they are not all on the default device.
    - `donation`: the arguments whose place results may take.
    - `obstacle`: what stands in the way of planning it, if anything does.
    - `around`: the `shard_map` whose devices each run it, if it is called inside of one.
    """

    def __init__(
        self,
        traced: Traced,
        target: Target,
        placement: Sequence[jax.sharding.Sharding | None],
        donation: Donation,
        stopwatch: Stopwatch,
        obstacle: Obstacle | None = None,
        around: TraceContext = NOWHERE,
    ) -> None:
        self.traced = traced
        self.target = target
        self.machine = target.machine
        self.placement = placement
        self.donation = donation
        self.stopwatch = stopwatch
        self.obstacle = obstacle
        self.around = around
        self._certified: dict[str, Certified] = {}

    @property
    def avals(self) -> list[jax.ShapeDtypeStruct]:
        """The shapes, dtypes and shardings of the arguments."""
        avals = self.traced.closed.in_avals
        placement: Sequence[Any] = self.placement or [None] * len(avals)
        return [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
            for aval, sharding in zip(avals, placement, strict=True)
        ]

    @cached_property
    def captured(self) -> int:
        """Bytes of the captured arrays, or 0 if they count as code."""
        constants = self.traced.closed.consts
        captured = sum(constant.nbytes for constant in constants if hasattr(constant, "nbytes"))
        return captured if captured > MOST_CODE else 0

    @cached_property
    def spared(self) -> int:
        """Bytes of the captured arrays that programs in the function's place do without."""
        if not self.captured or self.obstacle is not None:
            return 0
        try:
            _, constants, _ = self.lowered
        except Exception:
            return 0  # which is reported elsewhere
        needed = sum(int(constant.nbytes) for constant in constants)
        return max(self.captured - needed, 0)

    @cached_property
    def lowered(self) -> tuple[Program, Sequence[Any], Candidate]:
        """The function as a program, the arrays that it captures, and its prediction."""
        timed = self.stopwatch.timed
        program, hoisted = timed("lower", lambda: lower(self.traced.closed, platforms=self.target.platforms))
        program = replace(program, aliased=self.donation.aliased)
        written = timed("search", lambda: as_written(program, self.machine, library=True))
        return program, hoisted, written

    def certified(self, options: str = HONEST, draft: bool = False) -> Certified:
        """The function compiled under these options, or under the only ones that this platform has.

        **Arguments:**

        - `draft`: whether a draft is enough: its memory is known, but it is not run.
        """
        options = options if options in self.target.compiler.options else HONEST
        known = self._certified.get(options)
        if known is not None and (draft or not known.draft):
            return known
        function: Function = self.traced.call_flat
        avals, donated = self.avals, self.donation.arguments
        if self.obstacle is not None:
            function, avals = self.obstacle.compilable(
                function, avals, self.traced.closed, self.target.devices
            )
        else:
            if self._rounds:
                function = self._rounded
            if not self.around.empty:
                function, avals = self.around.on_every_device(
                    function, avals, self.target.devices(self.around.mesh.size)
                )

        def compiled(closely: bool) -> Certified:
            return certify(
                function,
                avals,
                options,
                self.captured,
                donated=donated,
                draft=draft,
                closely=closely,
                expected=self._expected if draft else 0,
                target=self.target,
            )

        certified = self.stopwatch.timed("compile", lambda: compiled(closely=False))
        if certified.in_doubt:
            certified = self.stopwatch.timed("compile", lambda: compiled(closely=True))
        self._certified[options] = certified
        return certified

    def within(self, budget: int) -> Certified:
        """The function under the options that should be fastest within a budget, or that need least.

        Under XLA's own options, it takes no longer than plain JAX. It is a draft if it will hardly run.
        """
        if self.obstacle is not None:
            own = self.certified(OWN)
            return own if own.peak <= budget else self.certified()
        if not self._seems_larger(budget) or self.certified(draft=True).peak <= budget:
            fastest = self._fastest(budget)
            if fastest.peak <= budget:
                return fastest
        certified = self.certified(draft=True)
        if budget < certified.peak <= REORDERED * budget:
            other = self.certified(UNORDERED, draft=True)
            return min(certified, other, key=lambda one: one.peak)
        return certified

    def to_run(self, budget: int) -> Certified:
        """The same, compiled in full, for a budget that it is known to fit."""
        return self.certified(self.within(budget).options)

    def minimum(self, draft: bool = True) -> int:
        """The fewest bytes that the function needs as written.

        **Arguments:**

        - `draft`: whether an estimate from drafts is enough.
        """
        peak = self.certified(draft=draft).peak
        return min(peak, max(self.certified(UNORDERED, draft=draft).peak, -(-peak // REORDERED)))

    @cached_property
    def _written(self) -> Candidate | None:
        """The prediction for the function, or None if it cannot be lowered, which is reported elsewhere."""
        try:
            _, _, written = self.lowered
        except Exception:
            return None
        return written

    @property
    def _expected(self) -> int:
        """Bytes of temporaries that it should need; 0 if nobody knows."""
        if self.obstacle is not None or self._written is None:
            return 0
        return max(self._written.predicted_peak - self._written.schedule.program.fixed_bytes, 0)

    @cached_property
    def _rounds(self) -> bool:
        """Whether it subtracts from products a value that was selected from them."""
        return self._written is not None and any(map(rounded_products, self.lowered[0].inside()))

    def _rounded(self, *leaves: Any) -> list[Any]:
        """The function on flat arguments, with rounded products."""
        return self.traced.typed(rounding(self.traced.closed)(*leaves))

    def _seems_larger(self, budget: int) -> bool:
        """Whether it is predicted to exceed a budget, so that it will not run."""
        if self.placement or self._written is None:
            return False
        return self._written.predicted_peak > budget

    def _fastest(self, budget: int) -> Certified:
        """The function under XLA's own options if these fit a budget and pay, otherwise under honest ones."""
        if self._written is not None and fusion_costs(self._written.schedule, self.machine):
            return self.certified()
        own = self.certified(OWN)
        if own.peak <= budget and not self._taking(own):
            return own
        honest = self.certified(draft=True)
        if own.peak <= budget and self._seconds(own) <= self._seconds(honest):
            return own
        return honest

    def _seconds(self, certified: Certified) -> float:
        """The predicted seconds of a call under its options, where XLA's fusions do not cost time."""
        if self._written is None:
            return self._taking(certified)
        slower = UNFUSED if self._written.fused and certified.options != OWN else 1.0
        return slower * self._written.seconds + self._taking(certified)

    def _taking(self, certified: Certified) -> float:
        """Seconds that a call spends on getting its memory from the system."""
        return self.machine.taking(certified.taken)
