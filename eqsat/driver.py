"""The driver: a traced function through all stages, and back to smaller chunks until one fits."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from eqsat.amounts import format_bytes
from eqsat.backend.certificate import Certified, certify
from eqsat.backend.chunk_bar import updates
from eqsat.backend.donation import NOTHING, Donation
from eqsat.backend.emit import Module, emit
from eqsat.deadline import NO_DEADLINE, Deadline
from eqsat.engine.compile import CompiledRule
from eqsat.errors import BudgetError, EqsatError
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import Traced
from eqsat.ir.program import Program
from eqsat.machine import Machine
from eqsat.planned import Planned
from eqsat.planning.candidates import Candidate, as_written, rechunk
from eqsat.planning.exploring import SPLIT_AXES, Search, prepare
from eqsat.planning.recording import peak_tensors, recorded
from eqsat.planning.search import attempts, cheapest
from eqsat.progress import SILENT, Progress
from eqsat.reports.plan import Plan
from eqsat.reports.refusal import refusal

R = TypeVar("R")

CLEARLY_FASTER = 0.7
"""A program that fits is rewritten only if that is predicted to take less than this part of its time."""

RECHUNKS = 4
"""How often a program that compiles to more than predicted gets smaller chunks."""

UNMOVED = 0.97
"""A peak of more than this part of another is as good as the same."""

MOST_UNMOVED = 6
"""After so many programs in a row whose peaks were no better, no more are compiled."""

HOPELESS = 1.5
"""A program predicted to need so many times the budget is not compiled while there are others."""

MOST_CODE = 1 << 16
"""Arrays that a function closes over are its code if they have no more bytes in all: coefficients, tables.
In the function as it is, they are not counted, as XLA does not. Larger ones are data."""

MOST_COMPILED = 3
"""How many programs of one cap are compiled before the cap is lowered."""

STEPS = {
    "compile": "compiling it as it is",
    "lower": "reading the program",
    "saturate": "applying rules",
    "search": "choosing among programs",
    "emit": "writing a program",
}
"""What the stages of planning are called while they run."""


class Planner:
    """Plans one traced function.

    **Attributes:**

    - `names`: of its arguments.
    - `placement`: the arguments' shardings, if they are not all on the default device. The budget is then
      that of each device.
    - `given_up`: the arguments whose place results may take.
    - `progress`: who is told what planning is at; if it was asked for, loops tell where they are, too.
    """

    def __init__(
        self,
        traced: Traced,
        names: Sequence[str],
        budget: int,
        rules: Sequence[CompiledRule],
        machine: Machine,
        deadline: Deadline = NO_DEADLINE,
        placement: Sequence[jax.sharding.Sharding | None] = (),
        given_up: Donation = NOTHING,
        progress: Progress = SILENT,
    ) -> None:
        self.traced = traced
        self.names = names
        self.budget = budget
        self.rules = rules
        self.machine = machine
        self.deadline = deadline
        self.placement = placement
        self.given_up = given_up
        self.progress = progress
        self.compiled = 0
        self.seconds: dict[str, float] = {}
        self.smallest: tuple[int, Candidate] | None = None
        self.latest_peak = 0
        self.unmoved = 0
        self.fixed = 0
        self.banned: tuple[str, ...] = ()
        self.hoisted: Sequence[Any] = ()

    def timed(self, stage: str, action: Callable[[], R], step: str = "") -> R:
        """Do something that belongs to a stage, and say so: `step` is what it is called meanwhile."""
        self.progress.say(step or STEPS[stage])
        began = time.perf_counter()
        try:
            return action()
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    def planned(self) -> Planned:
        """The first program found that is certified to fit.

        **Raises:** `BudgetError` if there is none.
        """
        closed = self.traced.closed
        placement: Sequence[Any] = self.placement or [None] * len(closed.in_avals)
        avals = [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
            for aval, sharding in zip(closed.in_avals, placement, strict=True)
        ]
        captured = sum(constant.nbytes for constant in closed.consts if hasattr(constant, "nbytes"))
        data = captured if captured > MOST_CODE else 0
        donated = self.given_up.arguments
        original = self.timed(
            "compile", lambda: certify(self.traced.call_flat, avals, captured=data, donated=donated)
        )
        fixed = self.fixed = original.arguments + original.outputs - original.aliased
        if fixed > self.budget:
            raise BudgetError(
                f"the arguments ({format_bytes(original.arguments)}) and results"
                f" ({format_bytes(original.outputs)}) alone exceed the budget of"
                f" {format_bytes(self.budget)}: no rewriting can help; raise the budget above"
                f" {format_bytes(fixed, enough=True)}",
                fixed,
            )
        fits = original.peak <= self.budget
        if closed.effects:
            if not fits:
                raise BudgetError(
                    f"the function has side effects ({', '.join(map(str, closed.effects))}), so it is left"
                    f" as it is, and needs {format_bytes(original.peak)}, more than the budget of"
                    f" {format_bytes(self.budget)}",
                    original.peak,
                )
            return self._unchanged(original, None, (), "left as it is: it has side effects")
        try:
            return self._rewritten(original, avals, fits)
        except EqsatError:
            raise
        except Exception as error:
            # Any function survives: a defect of the planner must not take a working program away.
            if not fits:
                raise EqsatError(
                    f"planning failed, and the function as it is needs {format_bytes(original.peak)}, more"
                    f" than the budget of {format_bytes(self.budget)}; this is a defect of eqsat, please"
                    f" report it: {error!r}"
                ) from error
            warnings.warn(
                f"eqsat left a function as it was because planning failed; please report it: {error!r}",
                stacklevel=2,
            )
            return self._unchanged(original, None, (), f"planning failed: {error!r}")

    def _rewritten(self, original: Certified, avals: Sequence[Any], fits: bool) -> Planned:
        """The first rewritten program that fits, or the function as it is if it fits and none is better."""
        closed = self.traced.closed
        program, self.hoisted = self.timed("lower", lambda: lower(closed))
        program = replace(program, aliased=self.given_up.aliased)
        constants = [jnp.asarray(constant) for constant in self.hoisted]
        inputs = [*avals, *(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in constants)]
        written = self.timed("search", lambda: as_written(program, self.machine))
        late = f"planning time limit of {self.deadline.seconds:g} s"
        for most_axes in SPLIT_AXES:
            if self.deadline.passed():
                break
            search = self._saturate(program, fits, most_axes)
            for candidate in self._candidates(search, written, fits):
                module, certified = self._compile(candidate, inputs)
                moved = self.smallest is None or certified.peak < UNMOVED * self.smallest[0]
                self.unmoved = 0 if moved else self.unmoved + 1
                if self.smallest is None or certified.peak < self.smallest[0]:
                    self.smallest = (certified.peak, candidate)
                self.latest_peak = certified.peak
                if certified.peak <= self.budget:
                    return self._changed(candidate, module, certified, original, written, search, constants)
            if fits:
                return self._unchanged(original, written, constants, search.saturation.stop_reason)
            if len(search.large) < most_axes:
                break
        if fits:
            return self._unchanged(original, written, constants, late)
        raise self._too_big(original, written, program)

    def _saturate(self, program: Program, fits: bool, most_axes: int) -> Search:
        """The program's e-graph; a program that fits needs no loops."""
        budget = None if fits else self.budget
        search = self.timed(
            "saturate",
            lambda: prepare(program, self.rules, budget, self.machine, most_axes, deadline=self.deadline),
        )
        self.banned = search.saturation.banned
        return search

    def _compile(self, candidate: Candidate, inputs: Sequence[Any]) -> tuple[Module, Certified]:
        """Emit and compile a candidate for inputs of these shapes and dtypes."""
        names = self._names(candidate.schedule.program)
        often = updates(candidate.predicted_seconds) if self.progress.wanted else 0
        module = self.timed(
            "emit", lambda: emit(candidate.schedule, names, candidate.makers, self.given_up.pairs, often)
        )
        bound = candidate.predicted_peak if candidate.fused else 0
        function = self._typed(module.function())
        donated = self.given_up.arguments
        self.compiled += 1
        step = (
            f"compiling candidate {self.compiled} ({format_bytes(candidate.predicted_peak)} predicted,"
            f" budget {format_bytes(self.budget)})"
        )
        return module, self.timed("compile", lambda: certify(function, inputs, bound, donated=donated), step)

    def _typed(self, function: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """A function whose results have the weak types of the traced one's."""
        return lambda *values: self.traced.typed(function(*values))

    def _names(self, program: Program) -> list[str]:
        extra = len(program.inputs) - len(self.names)
        return [*self.names, *(f"constant_{number}" for number in range(extra))]

    def _candidates(self, search: Search, written: Candidate, fits: bool) -> Iterator[Candidate]:
        """Programs worth compiling, best first; one that came out too big is tried with smaller chunks."""
        if fits:
            if self.deadline.passed():
                return
            best = self.timed("search", lambda: cheapest(search, self.budget))
            if best and best.makers and best.predicted_seconds < CLEARLY_FASTER * written.predicted_seconds:
                yield best
            return
        groups = attempts(search, self.budget, self.deadline)
        leanest: Candidate | None = None
        while True:
            group = self.timed("search", lambda: next(groups, None))
            if group is None:
                break
            leanest = min([*group, *([leanest] if leanest else [])], key=lambda c: c.predicted_peak)
            for candidate in group[:MOST_COMPILED]:
                if candidate.predicted_peak > HOPELESS * self.budget or self.deadline.passed():
                    break
                yield candidate
                for _ in range(RECHUNKS):
                    before = self.latest_peak
                    smaller = rechunk(candidate, self._smaller_target(candidate), self.machine)
                    if smaller.schedule.chunks == candidate.schedule.chunks or self.deadline.passed():
                        break
                    candidate = smaller
                    yield candidate
                    if self.latest_peak > UNMOVED * before:
                        # What makes the peak is not in the loops.
                        break
                if self.unmoved >= MOST_UNMOVED:
                    return
        if leanest is not None and self.smallest is None and not self.deadline.passed():
            yield leanest

    def _smaller_target(self, candidate: Candidate) -> float:
        """The predicted peak at which a candidate that came out too big should fit.

        What was predicted above the arguments and results shrinks by as much as the real excess over them.
        """
        room = max(self.budget - self.fixed, 1)
        excess = max((self.latest_peak - self.fixed) / room, 1.0)
        return self.fixed + (candidate.predicted_peak - self.fixed) / (1.1 * excess)

    def _unchanged(
        self, original: Certified, written: Candidate | None, constants: Sequence[jax.Array], reason: str
    ) -> Planned:
        """The function as it is. It runs under XLA's defaults where even storing everything would fit."""
        source = ""
        certified: Certified | None = original
        if written is not None:
            program = written.schedule.program
            source = emit(written.schedule, self._names(program)).source
            everything = sum(term.bytes for term in program.reachable())
            if everything + original.arguments + original.outputs <= self.budget:
                certified = None
        plan = self._plan(original, original, constants, reason, source, written)
        return Planned(plan, self.traced, None, certified, self.hoisted, self.given_up.arguments)

    def _changed(
        self,
        candidate: Candidate,
        module: Module,
        certified: Certified,
        original: Certified,
        written: Candidate,
        search: Search,
        constants: Sequence[jax.Array],
    ) -> Planned:
        reason = search.saturation.stop_reason
        plan = self._plan(certified, original, constants, reason, module.source, written, candidate)
        return Planned(plan, self.traced, module, certified, self.hoisted, self.given_up.arguments)

    def _plan(
        self,
        certified: Certified,
        original: Certified,
        constants: Sequence[jax.Array],
        reason: str,
        source: str,
        written: Candidate | None,
        chosen: Candidate | None = None,
    ) -> Plan:
        """The plan for what was compiled: the program as written, or the one chosen instead."""
        plan = Plan(
            self.budget,
            certified.peak,
            original.peak,
            changed=chosen is not None,
            source=source,
            stop_reason=reason,
            planning_seconds=self.seconds,
            constants=tuple(constants),
            banned=self.banned,
            argument_bytes=certified.arguments,
            result_bytes=certified.outputs - certified.aliased,
        )
        if written is None:
            return plan
        return recorded(plan, written, chosen, self._names(written.schedule.program), self.machine)

    def _too_big(self, original: Certified, written: Candidate, program: Program) -> BudgetError:
        """What to tell a user whose program can't be made to fit."""
        reached, leanest = original.peak, written
        if self.smallest and self.smallest[0] <= original.peak:
            reached, leanest = self.smallest
        tensors = peak_tensors(leanest.schedule, self._names(program), self.machine)
        late = self.deadline.seconds if self.deadline.passed() else math.inf
        return refusal(self.budget, reached, original.peak, self.fixed, tensors, self.banned, late)
