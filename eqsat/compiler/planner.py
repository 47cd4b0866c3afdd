"""The planner: a traced function through all stages, and back to smaller chunks until one fits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from eqsat.backend.certificate import OWN, Certified
from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.donation import NOTHING, Donation
from eqsat.compiler.baseline import Baseline, Obstacle
from eqsat.compiler.budget_advice import refused
from eqsat.compiler.candidate_compiler import (
    CandidateCompiler,
    CompiledCandidate,
    Stopwatch,
    input_names,
    total_bytes,
)
from eqsat.compiler.certified_candidates import CertifiedCandidates
from eqsat.compiler.defect_report import despite_defects, is_defect, reported
from eqsat.compiler.guarded_programs import Branching
from eqsat.compiler.minimum_memory import grown, leanest
from eqsat.compiler.planned import Derivation, Planned
from eqsat.engine.compiled import CompiledRule
from eqsat.errors import BudgetError
from eqsat.frontend.trace import Traced
from eqsat.ir.program import Program
from eqsat.planning.candidates import Candidate, contracts
from eqsat.planning.recording import peak_tensors, recorded
from eqsat.planning.search import cheapest
from eqsat.planning.search_space import SPLIT_AXES, Saturations, Search, prepare
from eqsat.reports.plan import Plan
from eqsat.reports.refusal import Refusal, fixed_too_big, too_big, too_slow
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.progress import SILENT, Progress
from eqsat.support.records import PeakTensor
from eqsat.support.units import format_bytes
from eqsat.targets.machine import Machine

R = TypeVar("R")

CLEARLY_FASTER = 0.7
"""A program that fits is rewritten only if that is predicted to take less than this part of its time..."""

FASTER = 0.9
"""...or than this one, if it takes large blocks from the system, as loops gain more than is predicted (0.79
to 0.92 predicted took 0.40 to 0.85 of the time), or if it only contracts, as that is predicted well."""


SHORT = 1e-3
"""Seconds: what takes less as written is taken to take as long when it is told how much slower a plan is.
A call by itself takes a part of that, and for a hundredth of a second people wait."""

MAX_SLOWDOWN = 10.0
"""A program predicted to take more than so many times as long as the function as written is slow: faster ones
are looked for in wider searches, and unless the caller says otherwise, there is no plan if there are none."""


@dataclass
class Job:
    """A function to be rewritten.

    **Attributes:**

    - `hoisted`, `constants`: the arrays that it closes over, as it has them and as arrays of JAX.
    - `trials`: what is compiled in its place.
    - `lean`: the programs that need least, once all of them have been tried.
    """

    program: Program
    hoisted: Sequence[Any]
    constants: Sequence[jax.Array]
    trials: CandidateCompiler
    lean: list[CompiledCandidate] | None = None


class Planner:
    """Plans one traced function.

    **Attributes:**

    - `names`: of its arguments.
    - `placement`: the arguments' shardings, if they are not all on the default device. The budget is then
      that of each device.
    - `donation`: the arguments whose place results may take.
    - `progress`: who is told what planning is at; if it was asked for, loops tell where they are, too.
    - `obstacle`: what stands in the way of planning it, if anything does.
    - `max_slowdown`: how many times as long as the function as written a program may be predicted to take.
    - `tried`: where a function fits, what is predicted to take less than this part of its time is compiled.
    - `rest`: after `planned`, further programs that fit.
    """

    tried = CLEARLY_FASTER

    def __init__(
        self,
        traced: Traced,
        names: Sequence[str],
        budget: int,
        rules: Sequence[CompiledRule],
        machine: Machine,
        deadline: Deadline = NO_DEADLINE,
        placement: Sequence[jax.sharding.Sharding | None] = (),
        donation: Donation = NOTHING,
        progress: Progress = SILENT,
        obstacle: Obstacle | None = None,
        max_slowdown: float = MAX_SLOWDOWN,
    ) -> None:
        self.traced = traced
        self.names = names
        self.budget = budget
        self.rules = rules
        self.machine = machine
        self.deadline = deadline
        self.placement = placement
        self.donation = donation
        self.progress = progress
        self.stopwatch = Stopwatch(progress)
        self.banned: tuple[str, ...] = ()
        self.stop_reason = ""
        self._search: Search | None = None
        self._chosen: CompiledCandidate | None = None
        self.rest: CertifiedCandidates | None = None
        self.saturations: Saturations = {}
        self.obstacle = obstacle
        self.max_slowdown = max_slowdown
        self.baseline = Baseline(traced, machine, placement, donation, self.stopwatch, obstacle)

    def planned(self) -> Planned:
        """The fastest program found that is certified to fit.

        **Raises:** `BudgetError` if there is none that is not slower by more than `max_slowdown`.
        """
        try:
            return self.attempt()
        except Refusal as refusal:
            error = refused(self, refusal)
            raise error from error.__cause__

    def attempt(self) -> Planned:
        """The same.

        **Raises:** `Refusal` if there is none.
        """
        closed = self.traced.closed
        if not self.placement and self.obstacle is None:
            donation = total_bytes([closed.in_avals[number] for number in self.donation.arguments])
            arguments = self.baseline.captured + total_bytes(closed.in_avals)
            self._check_fixed(arguments, total_bytes(closed.out_avals), donation)
        original = self.baseline.within(self.budget)
        self._check_fixed(original.arguments, original.outputs, original.aliased)
        fits = original.peak <= self.budget
        if self.obstacle is not None:
            if not fits:
                reason = (
                    f"the function can't be planned, since {self.obstacle.reason}, and as it is it needs"
                    f" {format_bytes(original.peak)}, more than the budget of {format_bytes(self.budget)}."
                )
                raise Refusal([reason], original.peak)
            return self._unchanged(None, f"left as it is: {self.obstacle.reason}")
        try:
            plain = self._rewritten(original, fits)
            return self._guarded(original) or plain
        except Exception as error:
            if not is_defect(error):
                raise
            return self._after(error, original, fits)

    def _after(self, error: Exception, original: Certified, fits: bool) -> Planned:
        """The function as it is, as far as it fits: a defect of the planner takes no working program away.

        **Raises:** `BudgetError` if it does not fit.
        """
        written = reported(error, self.traced.closed, self.budget)
        if fits:
            warnings.warn(
                "eqsat left a function, which is within the budget, as it was because planning failed."
                f" Please report it: {error!r}; {written}",
                stacklevel=2,
            )
            return self._unchanged(None, f"planning failed: {error!r}")
        peak = self.baseline.certified(original.options).peak
        raise BudgetError(
            f"planning failed, and as it is the function needs {format_bytes(peak)}, more than the budget of"
            f" {format_bytes(self.budget)}. This is a defect of eqsat, please report it: {error!r};"
            f" {written}",
            peak,
        ) from error

    def minimum(self) -> int:
        """The smallest budget in bytes for which `planned` gives a program.

        If looking for that fails by a defect, which is told of: what the function needs as it is.
        """
        failed = "a function was not rewritten, and this is what it needs as it is"
        return self._despite_defects(
            self.searched_minimum, lambda: self.baseline.minimum(draft=False), failed
        )

    def searched_minimum(self) -> int:
        """The same, or the defect."""
        if self.obstacle is not None:
            return min(self.baseline.certified(OWN).peak, self.baseline.within(0).peak)
        fixed = self.baseline.certified(draft=True).fixed
        least = self._job.trials.least(self._leanest(fixed))
        if least is not None and least.peak <= self.baseline.minimum():
            return least.peak
        whole = self.baseline.minimum(draft=False)
        return whole if least is None else min(least.peak, whole)

    def peak_tensors(self) -> tuple[PeakTensor, ...]:
        """What makes the smallest peak that there has been so far, and what stops it from being split."""
        if self.obstacle is not None:
            return ()
        return self._despite_defects(
            lambda: self._peak_tensors(self.baseline.certified(draft=True), self._job)[1],
            tuple,
            "what makes the peak of a function is not known",
        )

    def _despite_defects(self, action: Callable[[], R], instead: Callable[[], R], failed: str) -> R:
        return despite_defects(action, instead, failed, self.traced.closed, self.budget)

    def at(self, budget: int) -> Planner:
        """A planner of the same function for another budget: what does not depend on that is done once."""
        other = copy(self)
        other.budget = budget
        other.__dict__.pop("written", None)
        return other

    @cached_property
    def written(self) -> Candidate:
        """The program as it is, and what it takes as it is compiled for the budget."""
        *_, written = self.baseline.lowered
        # Unlike other programs, this one is compiled: it takes what that says.
        return replace(written, taking=self.machine.taking(self.baseline.within(self.budget).taken))

    @cached_property
    def _job(self) -> Job:
        """The function lowered, and what is known of it as compiled."""
        program, hoisted, _ = self.baseline.lowered
        constants = [jnp.asarray(constant) for constant in hoisted]
        arrays = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in constants]
        exact = all(rule.accuracy == "exact" for rule in self.rules)
        machine = self.machine
        forms = CodegenOptions() if exact else CodegenOptions(machine.fused_reduction, machine.adds_rows)
        trials = CandidateCompiler(
            self.traced,
            self.names,
            [*self.baseline.avals, *arrays],
            self.donation,
            self.budget,
            self.stopwatch,
            forms,
            exact,
        )
        return Job(program, hoisted, constants, trials)

    def _check_fixed(self, arguments: int, results: int, aliased: int = 0) -> None:
        """Refuse a budget that the arguments and results alone exceed, in bytes."""
        if arguments + results - aliased > self.budget:
            raise fixed_too_big(self.budget, arguments, results)

    def _rewritten(self, original: Certified, fits: bool) -> Planned:
        """The fastest rewritten program that fits, or the function as it is if it fits and none is better."""
        job = self._job
        if fits:
            found = self._faster(original, job)
            if found.plan.peak_bytes <= self.budget:
                return found
            # It fits as a draft only.
            original = self.baseline.within(self.budget)
        fastest = self._fastest(original, job)
        if fastest is None:
            raise self._too_big(original, job)
        longest, seconds = self._longest(self.max_slowdown), fastest.seconds(self.machine)
        if seconds > longest:
            written = self.written.predicted_seconds
            raise too_slow(self.budget, fastest.peak, seconds, longest, written, self.max_slowdown)
        return self._changed(fastest, original, job)

    def _fastest(self, original: Certified, job: Job) -> CompiledCandidate | None:
        """The first program found that fits and is not slow, or else the fastest that fits."""
        fastest: CompiledCandidate | None = None
        for trial in self._within(original, job):
            if fastest is None or trial.seconds(self.machine) < fastest.seconds(self.machine):
                fastest = trial
            if fastest.seconds(self.machine) <= self._longest(MAX_SLOWDOWN):
                break
        return fastest

    def _within(self, original: Certified, job: Job) -> Iterator[CompiledCandidate]:
        """Programs that fit, from wider and wider searches."""
        for most_axes in SPLIT_AXES:
            if self.deadline.passed():
                break
            search = self._saturate(job.program, self.budget, most_axes)
            trial = self._fitting(search, original.fixed)
            if trial is not None:
                yield trial
            if len(search.large) < most_axes:
                break
        for trial in self._leanest(original.fixed):
            if trial.peak <= self.budget:
                trial = grown(trial, self.budget, job.trials, self.machine, self.deadline)
                if trial.peak <= self.budget:
                    yield trial

    def _longest(self, slowdown: float) -> float:
        """The seconds that a program may take that is at most slower by a factor."""
        return slowdown * max(self.written.predicted_seconds, SHORT)

    def _guarded(self, original: Certified) -> Planned | None:
        """A program that is clearly faster than the one that was found, where guards of rules hold."""
        chosen, search, job = self._chosen, self._search, self._job
        if search is None or self.deadline.passed():
            return None
        plain = chosen.candidate if chosen else self.written
        longest = CLEARLY_FASTER * plain.predicted_seconds
        branching = Branching(job.program, search, job.trials, plain, self.budget, self.deadline, longest)
        trial = branching.found(original.fixed, self.saturations)
        if trial is None:
            return None
        if chosen is not None and self.rest is not None:
            self.rest.give_back(chosen)
        return self._changed(trial, original, job)

    def _faster(self, original: Certified, job: Job) -> Planned:
        """For a function that fits: a program that is clearly faster, or the function as it is."""
        if self.deadline.passed():
            return self._unchanged(job, f"planning time limit of {self.deadline.seconds:g} s")
        held = max(min(self.written.predicted_peak, original.peak) - original.fixed, original.taken)
        large = self.machine.taking(held) > 0
        part = FASTER if large or contracts(job.program) else CLEARLY_FASTER
        enough = part * self.written.predicted_seconds
        if large or self.tried > CLEARLY_FASTER:
            # Loops over chunks that stay in the cache are faster than large arrays, though these would fit.
            search = self._saturate(job.program, self.budget, SPLIT_AXES[0])
            tried = max(self.tried, part) * self.written.predicted_seconds
            trial = self._fitting(search, original.fixed, tried)
        else:
            search = self._saturate(job.program, None, SPLIT_AXES[0])
            best = self.stopwatch.timed("search", lambda: cheapest(search, self.budget))
            worthwhile = best is not None and best.predicted_seconds < enough
            trial = job.trials.compile(best, self.budget) if best and worthwhile else None
        if trial is not None and trial.peak <= self.budget:
            if trial.seconds(self.machine) < enough:
                return self._changed(trial, original, job)
            if self.rest is not None:
                self.rest.give_back(trial)
        return self._unchanged(job, self.stop_reason)

    def _leanest(self, fixed: int) -> Iterator[CompiledCandidate]:
        """The programs that need least, as they come; the same ones for every budget."""
        job = self._job
        if job.lean is not None:
            yield from job.lean
        elif not self.deadline.passed():
            search = self._saturate(job.program, fixed, SPLIT_AXES[-1])
            found = []
            for trial in leanest(search, job.trials, self.deadline, self.stopwatch):
                found.append(trial)
                yield trial
            job.lean = found

    def _saturate(self, program: Program, budget: int | None, most_axes: int) -> Search:
        """The program's e-graph; with no budget, there are no loops in it."""
        search = self.stopwatch.timed(
            "saturate",
            lambda: prepare(
                program,
                self.rules,
                budget,
                self.machine,
                most_axes,
                deadline=self.deadline,
                known=self.saturations,
            ),
        )
        self.banned, self.stop_reason = search.saturation.banned, search.saturation.told
        self._search = search
        return search

    def _fitting(self, search: Search, fixed: int, seconds: float = math.inf) -> CompiledCandidate | None:
        """The first program certified to fit, in the order of their predicted times; all below `seconds`."""
        trials = self._job.trials
        self.rest = CertifiedCandidates(
            search, trials, self.budget, fixed, self.machine, self.deadline, seconds
        )
        return next(self.rest, None)

    def _unchanged(self, job: Job | None, reason: str) -> Planned:
        """The function as it is, which fits."""
        self._chosen = None
        original = self.baseline.to_run(self.budget)
        plan = self._plan(original, original, job, reason)
        return self._as_it_is(plan, original, job)

    def _as_it_is(self, plan: Plan, certified: Certified, job: Job | None) -> Planned:
        """The function as it is, compiled."""
        donated = self.donation.arguments
        if job is None:
            return Planned(plan, self.traced, None, certified, donated=donated)
        derivation = Derivation(job.program, job.trials.emission(self.written, OWN))
        return Planned(plan, self.traced, None, certified, job.hoisted, donated, derivation)

    def _changed(self, trial: CompiledCandidate, original: Certified, job: Job) -> Planned:
        self._chosen = trial
        if original.options == OWN:
            original = self.baseline.certified(draft=True)  # It is not said to need what fusions may hold.
        plan = self._plan(trial.certified, original, job, self.stop_reason, trial)
        emission = job.trials.emission(trial.candidate, trial.certified.options, trial.panel)
        return Planned(
            plan,
            self.traced,
            trial.module,
            trial.certified,
            job.hoisted,
            self.donation.arguments,
            Derivation(job.program, emission),
        )

    def _plan(
        self,
        certified: Certified,
        original: Certified,
        job: Job | None,
        reason: str,
        chosen: CompiledCandidate | None = None,
    ) -> Plan:
        """The plan for what was compiled: the program as written, or the one chosen instead."""
        source = chosen.module.source if chosen else ""
        if job is not None and chosen is None:
            source = job.trials.emitted(self.written, OWN).source
        plan = Plan(
            self.budget,
            certified.peak,
            original.peak,
            changed=chosen is not None,
            source=source,
            stop_reason=reason,
            planning_seconds=self.stopwatch.seconds,
            constants=tuple(job.constants) if job else (),
            banned=self.banned,
            argument_bytes=certified.arguments,
            result_bytes=certified.outputs - certified.aliased,
            scratch_bytes=certified.scratch,
            options=certified.options,
        )
        if job is None:
            return plan
        names, candidate = input_names(job.program, self.names), chosen.candidate if chosen else None
        return recorded(plan, self.written, candidate, names, self.machine)

    def _too_big(self, original: Certified, job: Job) -> Refusal:
        """What to tell a user whose program can't be made to fit."""
        reached, tensors = self._peak_tensors(original, job)
        late = self.deadline.seconds if self.deadline.passed() else math.inf
        return too_big(self.budget, reached, original.peak, original.fixed, tensors, self.banned, late)

    def _peak_tensors(self, original: Certified, job: Job) -> tuple[int, tuple[PeakTensor, ...]]:
        """The smallest peak that there has been so far, in bytes, and what makes it."""
        reached, candidate, smallest = original.peak, self.written, job.trials.smallest_in_full()
        if smallest is not None and smallest.peak <= reached:
            reached, candidate = smallest.peak, smallest.candidate
        elif original.draft:
            reached = self.baseline.certified(original.options).peak
        names = input_names(job.program, self.names)
        return reached, peak_tensors(candidate.schedule, names, self.machine)
