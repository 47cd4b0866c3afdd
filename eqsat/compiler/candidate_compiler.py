"""`CandidateCompiler`: compiles candidates, each of them once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from eqsat.backend.certificate import Certified, certify
from eqsat.backend.chunk_bar import updates
from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.donation import Donation
from eqsat.backend.emission import Emission
from eqsat.backend.module import Module
from eqsat.frontend.trace import Traced
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from eqsat.ir.program import Program
from eqsat.planning.candidates import Candidate, fusions_lose
from eqsat.planning.loop_order import comes_after
from eqsat.support.progress import Progress
from eqsat.support.units import format_bytes
from eqsat.targets.compiler_profile import HONEST, OWN
from eqsat.targets.machine import Machine
from eqsat.targets.target import Target

R = TypeVar("R")


PANELS = 0.5
"""The share of the remaining memory that one product may pack, since two may run at once."""

SURE = 0.6
"""A candidate predicted to need less than this share of the budget is compiled in full without a draft."""

ENOUGH_DRAFTS = 2
"""So many drafts of a function are made closely for sure, if in doubt; then it is known what that changes."""

STEPS = {
    "compile": "compiling it as it is",
    "lower": "reading the program",
    "saturate": "applying rules",
    "search": "choosing among programs",
    "emit": "writing a program",
    "tune": "timing programs",
}
"""The stages of planning, as progress shows them."""


class Stopwatch:
    """Measures the stages of planning.

    **Attributes:**

    - `progress`: shows the present stage to the user.
    - `seconds`: the total of each stage.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    def timed(self, stage: str, action: Callable[[], R], step: str = "") -> R:
        """Run an action that belongs to a stage. Progress shows `step`, or the name of the stage."""
        self.progress.say(step or STEPS[stage])
        began = time.perf_counter()
        try:
            return action()
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


@dataclass(frozen=True)
class CompiledCandidate:
    """A compiled candidate, with its source and its certificate.

    **Attributes:**

    - `panel`: bytes that the library may pack for a product, if the source limits that.
    """

    candidate: Candidate
    module: Module
    certified: Certified
    panel: int | None = None

    @property
    def peak(self) -> int:
        """The certified peak, in bytes."""
        return self.certified.peak

    def seconds(self, machine: Machine) -> float:
        """The predicted seconds of a call: of computing, and of getting the certified memory."""
        computing = self.candidate.seconds * (1.0 if self.panel is None else machine.packing)
        return computing + machine.taking(self.certified.taken)


class CandidateCompiler:
    """Compiles candidates for one traced function: those that compute the same in the same way, once.

    **Attributes:**

    - `inputs`: the shapes and dtypes of the function's arguments and of the arrays it closes over.
    - `names`: of its arguments.
    - `donation`: the arguments whose place results may take.
    - `budget`: bytes that candidates should fit in; 0 for as few as possible.
    - `codegen`: the forms to emit where XLA does not fuse by itself.
    - `target`: what they are compiled for.
    - `exact`: whether results must equal those of the function bit for bit.
    - `around`: the `shard_map` whose devices each run the function, if it is called inside of one.

    A candidate that may not fit is drafted first, and compiled in full if the draft fits.
    """

    def __init__(
        self,
        traced: Traced,
        names: Sequence[str],
        inputs: Sequence[Any],
        donation: Donation,
        budget: int,
        stopwatch: Stopwatch,
        codegen: CodegenOptions,
        target: Target,
        exact: bool = False,
        around: TraceContext = NOWHERE,
    ) -> None:
        self.traced = traced
        self.names = names
        self.inputs = inputs
        self.donation = donation
        self.budget = budget
        self.stopwatch = stopwatch
        self.codegen = codegen
        self.target = target
        self.exact = exact
        self.around = around
        self._noted: dict[tuple[str, str], CompiledCandidate] = {}
        self._functions: dict[str, Callable[..., Sequence[Any]]] = {}
        self._done: dict[tuple[str, str, bool], Certified] = {}
        # By how many times one that was too large under XLA's own options exceeded what was predicted.
        self._fused_excess = 0.0
        # By which shares of their doubt drafts were off that were made closely afterwards.
        self._draft_errors: list[float] = []

    def compile(self, candidate: Candidate, budget: float) -> CompiledCandidate:
        """Emit and compile a candidate, under XLA's own options if these pay and it fits under them.

        Once a candidate was too large under these options, they are tried again only for candidates that are
        smaller by the excess. A result that does not fit may be a draft.
        """
        own = candidate.fused and self._fused_excess * candidate.predicted_peak <= budget
        own = own and OWN in self.target.compiler.options
        own = own and not (self.exact and fusions_lose(candidate.schedule.program))
        module = self.emitted(candidate, OWN if own else HONEST)
        certified = self._compiled(candidate, module, OWN if own else HONEST, budget)
        if own and certified.peak > budget:
            self._fused_excess = certified.peak / candidate.predicted_peak
            module = self.emitted(candidate)
            certified = self._compiled(candidate, module, HONEST, budget)
        compiled = self._note(CompiledCandidate(candidate, module, certified))
        if certified.peak - certified.scratch <= budget < certified.peak:
            return self._packing_less(compiled, budget)
        return compiled

    def draft(self, candidate: Candidate, budget: float | None = None) -> CompiledCandidate:
        """Emit a candidate and compile a draft of it under options that hide nothing.

        If a budget is given, all that matters is whether it fits.
        """
        module = self.emitted(candidate)
        draft = self._certified(candidate, module, HONEST, draft=True)
        if draft.in_doubt and (
            budget is None or abs(draft.peak - budget) <= self._error_share() * draft.doubt
        ):
            draft = self._closely(candidate, module, HONEST, draft)
        return self._note(CompiledCandidate(candidate, module, draft))

    def _packing_less(self, compiled: CompiledCandidate, budget: float) -> CompiledCandidate:
        """The program, or a smaller one of the same candidate whose products pack less."""
        candidate = compiled.candidate
        room = budget - (compiled.peak - compiled.certified.scratch)
        panel = int(PANELS * room)
        module = self.emitted(candidate, panel=panel)
        if module.source == compiled.module.source:
            return compiled
        certified = self._compiled(candidate, module, HONEST, budget)
        if certified.peak >= compiled.peak:
            return compiled
        return self._note(CompiledCandidate(candidate, module, certified, panel))

    @property
    def smallest(self) -> CompiledCandidate | None:
        """The program with the smallest peak so far."""
        return min(self._noted.values(), key=lambda one: one.peak, default=None)

    def least(self, programs: Iterable[CompiledCandidate]) -> CompiledCandidate | None:
        """The program with the smallest peak, compiled in full, since the peak of a draft may be off."""
        known = sorted(programs, key=lambda one: one.peak)
        while known and known[0].certified.draft:
            drafted, *others = known
            options = drafted.certified.options
            certified = self._certified(drafted.candidate, drafted.module, options, draft=False)
            whole = self._note(replace(drafted, certified=certified))
            known = sorted([whole, *others], key=lambda one: one.peak)
        return known[0] if known else None

    def smallest_in_full(self) -> CompiledCandidate | None:
        """The program with the smallest peak so far, compiled in full."""
        return self.least(self._noted.values())

    def _note(self, compiled: CompiledCandidate) -> CompiledCandidate:
        self._noted[compiled.module.source, compiled.certified.options] = compiled
        return compiled

    def _compiled(self, candidate: Candidate, module: Module, options: str, budget: float) -> Certified:
        """Compile in full, unless a draft is certainly too large."""
        if candidate.predicted_peak > SURE * budget:
            draft = self._certified(candidate, module, options, draft=True)
            if budget < draft.peak <= budget + self._error_share() * draft.doubt:
                draft = self._closely(candidate, module, options, draft)
            if draft.peak > budget:
                return draft
        return self._certified(candidate, module, options, draft=False)

    def _closely(self, candidate: Candidate, module: Module, options: str, draft: Certified) -> Certified:
        """A draft again, so that it leaves no doubt."""
        close = self._certified(candidate, module, options, draft=True, closely=True)
        self._draft_errors.append(abs(draft.peak - close.peak) / draft.doubt)
        return close

    def _error_share(self) -> float:
        """By how much of its doubt a draft should be off at most, by those that were made closely."""
        return 2 * max(self._draft_errors) if len(self._draft_errors) >= ENOUGH_DRAFTS else 1.0

    def _certified(
        self, candidate: Candidate, module: Module, options: str, draft: bool, closely: bool = False
    ) -> Certified:
        computation = module.computation
        draft = draft and (computation, options, False) not in self._done
        key = (computation, options, draft)
        known = self._done.get(key)
        if known is None or (closely and known.doubt):
            if computation not in self._functions:
                # One function, so that JAX traces and lowers it once for all options.
                self._functions[computation] = self.typed(module.function())
            function, donated = self._functions[computation], self.donation.arguments
            inputs = self.inputs
            if not self.around.empty:
                devices = self.target.devices(self.around.mesh.size)
                function, inputs = self.around.on_every_device(function, inputs, devices)
            wanted = format_bytes(candidate.predicted_peak)
            if self.budget:
                wanted += f" of {format_bytes(self.budget)}"
            certified = self.stopwatch.timed(
                "compile",
                lambda: certify(
                    function,
                    inputs,
                    options,
                    donated=donated,
                    draft=draft,
                    closely=closely,
                    target=self.target,
                ),
                f"compiling candidate {len(self._functions)} ({wanted})",
            )
            # Where the compiler has no faster way, this is no draft.
            key = (computation, options, certified.draft)
            self._done[key] = certified
        return self._done[key]

    def emitted(self, candidate: Candidate, options: str = HONEST, panel: int | None = None) -> Module:
        """A candidate's source, in the form that is fast under the given options."""
        names = input_names(candidate.schedule.program, self.names)
        emission = self.emission(candidate, options, panel)
        return self.stopwatch.timed("emit", lambda: emission.module(names, self.donation.pairs))

    def emission(self, candidate: Candidate, options: str = HONEST, panel: int | None = None) -> Emission:
        """The input of the emitter for a candidate.

        **Arguments:**

        - `panel`: bytes that the library may pack for a product, as `CodegenOptions` has it.
        """
        # A device that is absent calls nobody back.
        shown = self.stopwatch.progress.wanted and self.target.absent is None
        often = updates(candidate.predicted_seconds) if shown else 0
        # XLA's own fusions compute what a reduction reads as it goes, however long it is.
        fused = None if options == OWN else self.codegen.fused_reduction
        codegen = replace(self.codegen, fused_reduction=fused, panel=panel)
        schedule, makers = candidate.schedule, candidate.makers
        return Emission(
            schedule,
            makers,
            often,
            codegen,
            candidate.relayouts,
            candidate.fused_products,
            candidate.read_repeatedly,
            comes_after(schedule, self.target.machine),
        )

    def typed(self, function: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """The function, with the weak types of the traced function's results."""
        return lambda *values: self.traced.typed(function(*values))


def input_names(program: Program, names: Sequence[str]) -> list[str]:
    """The names of a program's inputs: those of the arguments, and numbered ones for captured arrays."""
    extra = len(program.inputs) - len(names)
    return [*names, *(f"constant_{number}" for number in range(extra))]


def total_bytes(avals: Sequence[Any]) -> int:
    """Bytes of arrays of these types. Extended dtypes, such as random keys, are not counted."""
    plain = [aval for aval in avals if not jnp.issubdtype(aval.dtype, jax.dtypes.extended)]
    return sum(aval.size * aval.dtype.itemsize for aval in plain if aval.dtype != jax.dtypes.float0)
