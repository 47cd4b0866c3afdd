"""`Planner`: a traced function through lowering, saturation, search, emission and certification to a plan."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import jax
import jax.numpy as jnp

from eqsat.backend.certificate import Certified
from eqsat.backend.codegen_options import codegen_options
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
from eqsat.compiler.defect_report import despite_defects, is_defect, reported
from eqsat.compiler.goals import Goal
from eqsat.compiler.guarded_programs import GuardedPrograms
from eqsat.compiler.lowered import Lowered
from eqsat.compiler.minimum_memory import LeastMemory, grown
from eqsat.compiler.plan_assembly import PlanAssembly
from eqsat.compiler.planned import Planned
from eqsat.compiler.search import Search
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.written_sums import with_written_sums
from eqsat.errors import BudgetError
from eqsat.frontend.trace import Traced
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from eqsat.ir.exact_forms import with_exact_forms
from eqsat.ir.lean_loops import with_lean_loops
from eqsat.planning.candidates import Candidate, contracts
from eqsat.planning.loop_axes import SPLIT_AXES
from eqsat.planning.part_search import searched_by_parts
from eqsat.planning.recording import peak_tensors
from eqsat.planning.search_space import Saturations, SearchSpace, is_long, prepare
from eqsat.reports.refusal import Refusal, fixed_too_big, too_big, too_slow
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.progress import SILENT, Progress
from eqsat.support.records import PeakTensor
from eqsat.support.units import format_bytes
from eqsat.targets.compiler_profile import OWN
from eqsat.targets.target import Target

R = TypeVar("R")

CLEARLY_FASTER = 0.7
"""A function that fits is rewritten only if a program should take less than this share of its time."""

FASTER = 0.95
"""The share for a function that takes large blocks from the system, where loops gain more than predicted
(0.79 to 0.93 predicted, 0.40 to 0.85 measured), and for one that only contracts, whose time is predicted
well."""

SHORT = 1e-3
"""Seconds. Slowdowns are relative to the predicted time of the function as written, or to this if that is
less: the overhead of a call is a part of it, and nobody minds a hundredth of a second."""

MAX_SLOWDOWN = 10.0
"""A program predicted to be slower than the function as written by more than this factor is slow. The search
goes on to wider spaces, and if all programs are slow, there is no plan unless the caller allows it."""

BRISK = 2.0
"""A program predicted to be slower than the function as written by more than this factor is compiled only
after programs with loops over more axes were looked for: these may be faster."""

LIKELY = 1.05
"""Programs found on the way to a refusal are expected to keep to so many times their predicted peaks."""

MANY_COMPILATIONS = 8
"""A search that compiles so many programs takes long: a refusal tries fewer other budgets."""


class Planner:
    """Plans one traced function.

    **Attributes:**

    - `names`: the names of its arguments.
    - `target`: what its programs are for.
    - `placement`: the arguments' shardings, if they are not all on the default device. The budget is then
      that of each device.
    - `donation`: the arguments whose place results may take.
    - `progress`: shows the stages of planning, and if the user asked for it, makes loops show their progress.
    - `obstacle`: why it cannot be planned, or None.
    - `around`: the `shard_map` whose devices each run it, if it is called inside of one.
    - `exact`: whether results must equal those of the function bit for bit.
    - `max_slowdown`: the largest predicted time of a program, relative to the function as written.
    - `tried`: if the function fits, candidates that should take less than this share of its time are tried.
    - `assembly`: makes its plans.
    - `search`, `chosen`: the search for a program that is right on any data, and the program that was chosen;
      None if there was no search, or if the function is left as written.
    """

    tried = CLEARLY_FASTER

    def __init__(
        self,
        traced: Traced,
        names: Sequence[str],
        budget: int,
        rules: Sequence[CompiledRule],
        target: Target,
        deadline: Deadline = NO_DEADLINE,
        placement: Sequence[jax.sharding.Sharding | None] = (),
        donation: Donation = NOTHING,
        progress: Progress = SILENT,
        obstacle: Obstacle | None = None,
        max_slowdown: float = MAX_SLOWDOWN,
        around: TraceContext = NOWHERE,
    ) -> None:
        self.exact = all(rule.accuracy == "exact" for rule in rules)
        target = target.exact if self.exact else target
        self.traced = traced
        self.names = names
        self.budget = budget
        self.rules = rules
        self.target = target
        self.machine = target.machine
        self.deadline = deadline
        self.placement = placement
        self.donation = donation
        self.progress = progress
        self.stopwatch = Stopwatch(progress)
        self.search: Search | None = None
        self.chosen: CompiledCandidate | None = None
        self.saturations: Saturations = {}
        self.obstacle = obstacle
        self.max_slowdown = max_slowdown
        self.around = around
        self.baseline = Baseline(traced, target, placement, donation, self.stopwatch, obstacle, around)
        self.assembly = PlanAssembly(traced, names, donation.arguments, budget, target, self.stopwatch)

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
        """The same, without advice on a budget.

        **Raises:** `Refusal` if no program fits.
        """
        closed = self.traced.closed
        if not self.placement and self.obstacle is None:
            donation = total_bytes([closed.in_avals[number] for number in self.donation.arguments])
            arguments = self.baseline.captured - self.baseline.spared + total_bytes(closed.in_avals)
            self._check_fixed(arguments, total_bytes(closed.out_avals), donation)
        original = self.baseline.within(self.budget)
        self._check_fixed(original.arguments - self.baseline.spared, original.outputs, original.aliased)
        fits = original.peak <= self.budget
        if self.obstacle is not None:
            if not fits:
                reason = (
                    f"the function can't be planned, since {self.obstacle.reason}, and as it is it needs"
                    f" {format_bytes(original.peak)}, more than the budget of {format_bytes(self.budget)}."
                )
                raise Refusal([reason], original.peak)
            return self._unchanged(f"left as it is: {self.obstacle.reason}", looked_at=False)
        try:
            plain = self._rewritten(original, fits)
            return self._guarded(original) or plain
        except Exception as error:
            if not is_defect(error):
                raise
            return self._after(error, original, fits)

    def _after(self, error: Exception, original: Certified, fits: bool) -> Planned:
        """The function as written, if it fits, after a defect of the planner.

        **Raises:** `BudgetError` if it does not fit.
        """
        written = reported(error, self.traced.closed, self.budget)
        if fits:
            warnings.warn(
                "eqsat left a function, which is within the budget, as it was because planning failed."
                f" Please report it: {error!r}; {written}",
                stacklevel=2,
            )
            return self._unchanged(f"planning failed: {error!r}", looked_at=False)
        peak = self.baseline.certified(original.options).peak
        raise BudgetError(
            f"planning failed, and as it is the function needs {format_bytes(peak)}, more than the budget of"
            f" {format_bytes(self.budget)}. This is a defect of eqsat, please report it: {error!r};"
            f" {written}",
            peak,
            search=tuple(self.assembly.log),
        ) from error

    def minimum(self) -> int:
        """The smallest budget in bytes for which there is a plan.

        If a defect stops the search, there is a warning, and the result is that of the function as written.
        """
        failed = "a function was not rewritten, and this is what it needs as it is"
        return self._despite_defects(
            self.searched_minimum, lambda: self.baseline.minimum(draft=False), failed
        )

    def searched_minimum(self) -> int:
        """The same. A defect is raised."""
        if self.obstacle is not None:
            return min(self.baseline.certified(OWN).peak, self.baseline.within(0).peak)
        least = self.lowered.compiler.least(self.lowered.least)
        if least is not None and least.peak <= self.baseline.minimum():
            return least.peak
        whole = self.baseline.minimum(draft=False)
        return whole if least is None else min(least.peak, whole)

    def is_certain(self, budget: int) -> bool:
        """Whether one of the programs that need least memory, with which every search ends, fits a budget."""
        longest = self._longest(self.max_slowdown)
        return any(
            one.peak + one.certified.doubt <= budget and one.seconds(self.machine) <= longest
            for one in self.lowered.least.drafted
        )

    def likely_budgets(self) -> list[int]:
        """Budgets that programs of the last search should keep to, if compilers add a little."""
        extracted = [] if self.search is None else self.search.extracted
        longest = self._longest(self.max_slowdown)
        return sorted({round(LIKELY * peak) for peak, seconds in extracted if seconds <= longest})

    def peak_tensors(self) -> tuple[PeakTensor, ...]:
        """The largest arrays at the smallest peak so far, and what stops their axes from being split."""
        if self.obstacle is not None:
            return ()
        return self._despite_defects(
            lambda: self._peak_tensors(self.baseline.certified(draft=True))[1],
            tuple,
            "what makes the peak of a function is not known",
        )

    def _despite_defects(self, action: Callable[[], R], instead: Callable[[], R], failed: str) -> R:
        return despite_defects(action, instead, failed, self.traced.closed, self.budget)

    def at(self, budget: int) -> Planner:
        """A planner for another budget of the same function, which shares all that does not depend on it."""
        other = copy(self)
        other.budget = budget
        other.search = other.chosen = None
        other.assembly = replace(self.assembly, budget=budget, log=[], stop_reason="", banned=())
        other.__dict__.pop("written", None)
        return other

    @cached_property
    def written(self) -> Candidate:
        """The function as a candidate, with the memory of its compiled form for the budget."""
        *_, written = self.baseline.lowered
        # Unlike other programs, this one is compiled: it takes what that says.
        return replace(written, taking=self.machine.taking(self.baseline.within(self.budget).taken))

    @cached_property
    def lowered(self) -> Lowered:
        """The function as a program, and the compiler of candidates for it. All budgets share it."""
        function, hoisted, _ = self.baseline.lowered
        if self.exact:
            function = with_exact_forms(function)
        program = with_lean_loops(function, self.exact)
        constants = [jnp.asarray(constant) for constant in hoisted]
        arrays = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in constants]
        machine = self.machine
        if machine.written_sum and not self.exact:
            program = with_written_sums(program, machine.written_sum, machine.short_reduction)
        compiler = CandidateCompiler(
            self.traced,
            self.names,
            [*self.baseline.avals, *arrays],
            self.donation,
            self.budget,
            self.stopwatch,
            codegen_options(machine, self.exact),
            self.target,
            self.exact,
            self.around,
        )

        def smallest() -> SearchSpace:
            return self._saturated(SPLIT_AXES[-1], program.fixed_bytes)

        least = LeastMemory(smallest, compiler, self.deadline)
        return Lowered(function, program, hoisted, constants, compiler, least)

    @property
    def searches_long(self) -> bool:
        """Whether a search takes long: the program is long, or the search so far compiled many."""
        many = self.search is not None and self.search.compilations >= MANY_COMPILATIONS
        return many or is_long(self.lowered.program)

    def _fixed(self, original: Certified) -> int:
        """Bytes of arguments, captured arrays and results that all programs in the function's place need."""
        return original.fixed - self.baseline.spared

    def _check_fixed(self, arguments: int, results: int, aliased: int = 0) -> None:
        """Refuse a budget that the arguments and results alone exceed, in bytes."""
        if arguments + results - aliased > self.budget:
            raise fixed_too_big(self.budget, arguments, results)

    def _rewritten(self, original: Certified, fits: bool) -> Planned:
        """The fastest program that fits, or the function as written if it fits and none is clearly faster."""
        if fits:
            found = self._faster(original)
            if found.plan.peak_bytes <= self.budget:
                return found
            # It fits as a draft only.
            original = self.baseline.within(self.budget)
        enough, brisk = self._longest(MAX_SLOWDOWN), self._longest(BRISK)
        goal = Goal(self.budget, self._fixed(original), SPLIT_AXES, enough=enough, brisk=brisk)
        fastest = self._searched(goal, least=True)
        if fastest is None:
            raise self._too_big(original)
        longest, seconds = self._longest(self.max_slowdown), fastest.seconds(self.machine)
        if seconds > longest:
            written = self.written.predicted_seconds
            raise too_slow(self.budget, fastest.peak, seconds, longest, written, self.max_slowdown)
        return self._changed(fastest, original)

    def _longest(self, slowdown: float) -> float:
        """The longest predicted time in seconds for a slowdown."""
        return slowdown * max(self.written.predicted_seconds, SHORT)

    def _faster(self, original: Certified) -> Planned:
        """For a function that fits: a program that is clearly faster, or the function as written."""
        if self.deadline.passed():
            return self._unchanged(f"planning time limit of {self.deadline.seconds:g} s")
        held = max(min(self.written.predicted_peak, original.peak) - original.fixed, original.taken)
        large = self.machine.taking(held) > 0
        part = FASTER if large or contracts(self.lowered.program) else CLEARLY_FASTER
        enough = longest = part * self.written.predicted_seconds
        # Loops over chunks that stay in the cache are faster than large arrays, though these would fit.
        loops = large or self.tried > CLEARLY_FASTER
        if loops:
            longest = max(self.tried, part) * self.written.predicted_seconds
        spaces = (SPLIT_AXES[0] if loops else None,)
        fastest = self._searched(Goal(self.budget, self._fixed(original), spaces, longest, enough))
        if fastest is not None and fastest.seconds(self.machine) < enough:
            return self._changed(fastest, original)
        return self._unchanged()

    def _guarded(self, original: Certified) -> Planned | None:
        """A program that is clearly faster than the chosen one on data for which guards of rules hold."""
        space = self.search.space if self.search else None
        if space is None or self.deadline.passed():
            return None
        if self.around != NOWHERE:
            return None  # Devices whose data differ would not all come to the same collectives.
        lowered = self.lowered
        plain = self.chosen.candidate if self.chosen else self.written
        goal = Goal(self.budget, self._fixed(original), (), longest=CLEARLY_FASTER * plain.predicted_seconds)
        log = self.assembly.log
        programs = GuardedPrograms(lowered.program, space, lowered.compiler, plain, goal, self.deadline, log)
        found = programs.found(self.saturations)
        return None if found is None else self._changed(found, original)

    def _searched(self, goal: Goal, least: bool = False) -> CompiledCandidate | None:
        """The fastest program that a search finds.

        **Arguments:**

        - `least`: whether it goes on to programs found part by part, and to those that need least memory.
        """
        lowered = self.lowered

        def saturate(axes: int | None) -> SearchSpace:
            return self._saturated(axes or SPLIT_AXES[0], None if axes is None else self.budget)

        def grow(compiled: CompiledCandidate) -> CompiledCandidate:
            return grown(compiled, self.budget, lowered.compiler, self.machine, self.deadline)

        def parts() -> list[Candidate]:
            return searched_by_parts(
                lowered.program, self.rules, self.budget, self.machine, self.deadline, self.saturations
            )

        self.search = Search(
            goal,
            saturate,
            lowered.compiler,
            self.machine,
            self.deadline,
            self.assembly.log,
            lowered.least if least else None,
            grow,
            parts if least else None,
        )
        fastest = self.search.run()
        self.assembly.stop_reason = self.search.stop_reason
        if self.search.space is not None:
            self.assembly.banned = self.search.space.saturation.banned
        return fastest

    def _saturated(self, most_axes: int, budget: int | None) -> SearchSpace:
        """The program's e-graph; with no budget, there are no loops in it."""
        return self.stopwatch.timed(
            "saturate",
            lambda: prepare(
                self.lowered.program,
                self.rules,
                budget,
                self.machine,
                most_axes,
                deadline=self.deadline,
                known=self.saturations,
            ),
        )

    def _unchanged(self, reason: str = "", looked_at: bool = True) -> Planned:
        """The function as written, which fits.

        **Arguments:**

        - `reason`: why it is left as written, if not because of the search.
        - `looked_at`: whether the plan describes the program.
        """
        self.chosen = None
        original = self.baseline.to_run(self.budget)
        if not looked_at:
            return self.assembly.as_written(original, None, None, reason)
        return self.assembly.as_written(original, self.lowered, self.written, reason)

    def _changed(self, compiled: CompiledCandidate, original: Certified) -> Planned:
        """A program that replaces the function. `original` is the function as compiled."""
        self.chosen = compiled
        if original.options == OWN:
            original = self.baseline.certified(draft=True)  # It is not said to need what fusions may hold.
        return self.assembly.rewritten(compiled, original, self.lowered, self.written)

    def _too_big(self, original: Certified) -> Refusal:
        """The refusal if no program fits."""
        reached, tensors = self._peak_tensors(original)
        late = self.deadline.seconds if self.deadline.passed() else math.inf
        banned = self.assembly.banned
        return too_big(self.budget, reached, original.peak, self._fixed(original), tensors, banned, late)

    def _peak_tensors(self, original: Certified) -> tuple[int, tuple[PeakTensor, ...]]:
        """The smallest peak so far in bytes, and the largest arrays at it."""
        reached, candidate = original.peak, self.written
        smallest = self.lowered.compiler.smallest_in_full()
        if smallest is not None and smallest.peak <= reached:
            reached, candidate = smallest.peak, smallest.candidate
        elif original.draft:
            reached = self.baseline.certified(original.options).peak
        names = input_names(self.lowered.program, self.names)
        return reached, peak_tensors(candidate.schedule, names, self.machine)
