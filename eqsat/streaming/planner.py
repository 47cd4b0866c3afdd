"""Plans a function of arrays that are not in memory: its passes over them, and the programs of these."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from eqsat.compiler.settings import Settings
from eqsat.errors import BudgetError, EqsatError
from eqsat.frontend.counted_reads import with_sequences
from eqsat.frontend.lower import lower
from eqsat.ir.axis import Axis
from eqsat.ir.exact_forms import with_exact_forms
from eqsat.ir.excess_rows import with_excess_rows
from eqsat.ir.lean_loops import with_lean_loops
from eqsat.ir.moved_arrays import Filled, Moved, Taken, Whole
from eqsat.ir.moved_windows import Windows
from eqsat.ir.stream_inputs import with_stream_inputs
from eqsat.ir.streams import UnsupportedError, with_reads
from eqsat.planning.candidates import Candidate
from eqsat.planning.capped_extraction import CappedExtraction
from eqsat.planning.materialisation import with_kept
from eqsat.planning.search_space import prepare
from eqsat.rulesets.selection import rules_for
from eqsat.streaming.accounting import (
    host_bytes,
    longest_chunks,
    result_bytes,
    saved_bytes,
)
from eqsat.streaming.chunk_lengths import chunk_lengths, shorter, shortest
from eqsat.streaming.compiled_steps import Compiled, compiled_step
from eqsat.streaming.device_parts import ONE_DEVICE, DeviceParts
from eqsat.streaming.read_axes import SMALL, ReadAxes
from eqsat.streaming.segments import Segment
from eqsat.streaming.short_chunks import check_chunks, python_seconds
from eqsat.streaming.step_building import streaming
from eqsat.streaming.step_uses import StepUses
from eqsat.streaming.steps import Streaming
from eqsat.streaming.storage_blocks import CACHE_SHARE, Blocks, rows_block
from eqsat.streaming.whole_files import needing_whole
from eqsat.support.units import format_bytes
from eqsat.targets.target import Target

MOST_TRIED = 6
"""How many programs are tried before the budget is refused."""

MOST_BESIDE = 1.5
"""Other programs are tried if a call takes more times as long as computing, and reading all once."""

FASTER = 0.9
"""Others are compiled that should take less than this share of the time if chunks were as long as axes."""

MOST_SPILLED = 3
"""How many values are kept in scratch files, one after the other."""

ADVICE = 'name files for them, as in optimize(f, out="result.npy"), or a larger host_budget'
"""What to do about results that exceed the host budget."""

ProgramKey = tuple[Segment, tuple[tuple[Axis, int], ...], bool]


@dataclass(frozen=True)
class StreamedProgram:
    """A function as passes over arrays outside the device's memory.

    **Attributes:**

    - `lengths`: of the chunks, by pass.
    - `programs`: what is compiled.
    - `peak`: bytes of the device's memory, at most; `host_peak`: of the host's.
    - `hoisted`: the arrays that the function captures.
    - `seconds`: the predicted time.
    - `touched`: bytes that reading touches where the arrays lie.
    - `candidate`: the program whose outermost loops are the passes.
    - `parts`: how devices share out chunks.
    """

    streaming: Streaming
    lengths: Mapping[int, int]
    programs: Mapping[ProgramKey, Compiled]
    peak: int
    host_peak: int
    hoisted: tuple[jax.Array, ...]
    seconds: float
    touched: int
    candidate: Candidate
    parts: DeviceParts = ONE_DEVICE


@dataclass(frozen=True)
class Settled:
    """What an earlier run has settled: the digest of its steps, and the lengths of its chunks, by pass."""

    steps: str
    lengths: Mapping[int, int]


class AnotherProgramError(EqsatError):
    """The program of an earlier run is not among those that are found."""


class StreamPlanner:
    """Plans one function at some types of arguments.

    **Attributes:**

    - `streamed`: the positions of the arguments that are not in memory.
    - `names`: of all inputs: arguments, captured arrays, and what is moved of arguments.
    - `unnamed`: by output, whether the caller names no place for it.
    - `moved`: what is moved of arguments and an input of its own, by position.
    - `tables`: the positions of those of which only entries are read that indices pick.
    - `parts`: how the devices of a mesh share out chunks.
    - `axes`: those along which arguments are read by chunks.

    **Arguments:**

    - `blocks`: by position of an argument, the pieces in which it lies; by default, rows.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        streamed: Sequence[int],
        settings: Settings,
        target: Target,
        title: str,
        names: Sequence[str],
        unnamed: Sequence[bool],
        blocks: Blocks | None = None,
    ) -> None:
        self.closed = closed
        self.unnamed = tuple(unnamed)
        self.streamed = tuple(streamed)
        self.settings = settings
        self.target = target
        self.title = title
        self.parts = DeviceParts.of(settings.mesh)
        program, hoisted = lower(with_sequences(closed), platforms=target.platforms, streamed=True)
        exact = settings.accuracy == "exact"
        program = with_lean_loops(with_exact_forms(program) if exact else with_excess_rows(program), exact)
        self.hoisted = tuple(map(jnp.asarray, hoisted))
        inputs = with_stream_inputs(program, self.streamed, exact)
        self.moved = {**inputs.read, **inputs.tables}
        self.tables = frozenset(inputs.tables)
        self.program = with_reads(inputs.program, (*self.streamed, *inputs.read))
        self.streamed = (*self.streamed, *self.moved)
        rows = {n: rows_block(closed.in_avals[n].shape, closed.in_avals[n].dtype.itemsize) for n in streamed}
        self.axes = ReadAxes(self.program, self.streamed, self.moved, self.tables, {**rows, **(blocks or {})})
        constants = [f"constant_{number}" for number in range(len(hoisted))]
        self.names = (*names, *constants, *(_moved_name(one, names) for one in self.moved.values()))

    def planned(
        self,
        budget: int,
        host_budget: int,
        settled: Settled | None = None,
        scratch: float = 0,
    ) -> StreamedProgram:
        """The fastest program that fits; or that of an earlier run.

        **Arguments:**

        - `scratch`: bytes of scratch files that it may keep values in.

        **Raises:** `BudgetError` if there is none; `AnotherProgramError` if that of the earlier run is not
            found.
        """
        if settled is not None and scratch:
            with contextlib.suppress(AnotherProgramError):
                return self._fastest(budget, host_budget, settled)
        found = self._fastest(budget, host_budget, None if scratch else settled)
        if not scratch:
            return found
        others = list(self._spilling(found, budget, host_budget, settled, scratch))
        if settled is None:
            return min([found, *others], key=lambda one: one.seconds)
        if not others:
            raise self._not_found(budget)
        return others[0]

    def _spilling(
        self,
        found: StreamedProgram,
        budget: int,
        host_budget: int,
        settled: Settled | None,
        scratch: float,
    ) -> Iterator[StreamedProgram]:
        """The program with some of the values that passes compute again in scratch files."""
        free = budget - self.held_bytes
        room = self.program.fixed_bytes + scratch
        candidate = found.candidate
        for _ in range(MOST_SPILLED):
            other = with_kept(replace(candidate, predicted_peak=0), room, self.target.machine, free)
            if other.schedule is candidate.schedule:
                return
            candidate = other
            steps = self._steps(candidate, found.streaming.axes, spill=free // SMALL)
            if settled is None:
                with contextlib.suppress(BudgetError):
                    yield self._within(steps, candidate, budget, host_budget, None)
            elif steps.digest == settled.steps:
                yield self._within(steps, candidate, budget, host_budget, settled.lengths)

    def _not_found(self, budget: int) -> AnotherProgramError:
        return AnotherProgramError(
            f"the checkpoint of {self.title} is of a program that is not found within {format_bytes(budget)}:"
            " call it with the options that it was made with, or delete the checkpoint to begin anew"
        )

    def _fastest(self, budget: int, host_budget: int, settled: Settled | None = None) -> StreamedProgram:
        """The fastest program that fits, without scratch files; or that of an earlier run.

        **Raises:** `BudgetError` if there is none; `AnotherProgramError` if that of the earlier run is not
            found.
        """
        free = budget - self.held_bytes
        if free <= 0:
            raise BudgetError(
                f"{self.title}: the arguments that stay on the device take {format_bytes(self.held_bytes)},"
                f" more than the budget of {format_bytes(budget)}",
                self.held_bytes,
            )
        axes = self.axes.over(free)
        refused: BudgetError | None = None
        best: StreamedProgram | None = None
        seen, compiled = set[str](), set[Any]()
        tried = 0
        unsupported: UnsupportedError | None = None
        for candidate in self._candidates(free, axes):
            try:
                steps = self._steps(candidate, frozenset(axes))
            except UnsupportedError as error:
                unsupported = error
                continue
            if steps.digest in seen or (settled is not None and steps.digest != settled.steps):
                continue
            seen.add(steps.digest)
            least = self._least_seconds(steps, candidate, host_budget)
            alike = (round(least, 6), tuple((one.axis, len(one.loads)) for one in steps.passes))
            if best is not None and (alike in compiled or least >= FASTER * self._total_seconds(best)):
                continue
            compiled.add(alike)
            try:
                found = self._within(
                    steps, candidate, budget, host_budget, settled.lengths if settled else None
                )
            except BudgetError as error:
                refused = error
            else:
                best = found if best is None else min(best, found, key=self._total_seconds)
                once = candidate.seconds + self._streamed_bytes / self.target.machine.streamed
                if settled is not None or self._total_seconds(best) <= MOST_BESIDE * once:
                    break
            tried += 1
            if tried == MOST_TRIED:
                break
        if best is not None:
            return best
        if refused is not None:
            raise refused
        if settled is not None:
            raise self._not_found(budget)
        why = f": {unsupported}" if unsupported else ""
        names = ", ".join(dict.fromkeys(self.names[position] for position in self.streamed))
        whole = needing_whole(self.program, axes, self.names)
        advice = f"These may need one of them whole: {whole}. " if whole else "A larger budget may do. "
        raise BudgetError(
            f"{self.title}: no program was found that needs only chunks of the arguments that are not in"
            f" memory ({names}) within {format_bytes(budget)}{why}. {advice}Write what they are given, or"
            " what they make, to a file by a call of its own (out=), and read that by another; raise the"
            " budget; or allow more rewrites with accuracy="
        )

    def _total_seconds(self, program: StreamedProgram) -> float:
        """The time of a call, with what reading takes."""
        return program.seconds + program.touched / self.target.machine.streamed

    def _least_seconds(self, steps: Streaming, candidate: Candidate, host_budget: int) -> float:
        """The least time of a program: with chunks as long as axes."""
        lengths = {one.id: one.axis.size for one in steps.passes}
        machine, room = self.target.machine, CACHE_SHARE * host_budget
        reading = self.axes.touched_bytes(steps, lengths, room) / machine.streamed
        return candidate.seconds + python_seconds(steps, lengths, machine) + reading

    @property
    def _streamed_bytes(self) -> int:
        """Bytes of all that is not in memory."""
        return sum(self.program.inputs[n].bytes for n in self.streamed if n not in self.moved)

    @property
    def held_bytes(self) -> int:
        """Bytes of the arguments and captured arrays on the device."""
        return sum(
            leaf.bytes for position, leaf in enumerate(self.program.inputs) if position not in self.streamed
        )

    def _steps(self, candidate: Candidate, axes: frozenset[Axis], spill: float = math.inf) -> Streaming:
        schedule = candidate.schedule
        return streaming(schedule.program, schedule.block, self.axes.shares, axes, spill)

    def _candidates(self, free: int, axes: tuple[Axis, ...]) -> Iterator[Candidate]:
        """Programs that store no value over some cap, from the highest cap down; the fastest first."""
        target = self.target
        rules = rules_for(
            self.settings.rules, self.settings.accuracy, target.new_product_precision, target.compiler.rules
        )
        budget = free + self.program.fixed_bytes
        space = prepare(self.program, rules, budget, target.machine, axes=axes)
        extraction = CappedExtraction.within(space, budget)
        seen: set[tuple[Any, ...]] = set()
        while extraction.next_step() is not None:
            taken = sorted(extraction.take(), key=lambda one: one.seconds)
            for candidate in (*taken, *(one.recomputing for one in taken if one.recomputing is not None)):
                program = candidate.schedule.program
                key = tuple((output.term.number, output.layout) for output in program.outputs)
                if key not in seen:
                    seen.add(key)
                    yield candidate

    def _within(
        self,
        steps: Streaming,
        candidate: Candidate,
        budget: int,
        host_budget: int,
        settled: Mapping[int, int] | None,
    ) -> StreamedProgram:
        """A program with the longest chunks that fit, of those that are tried."""
        results = result_bytes(steps, self.unnamed)
        if results >= host_budget:
            raise BudgetError(
                f"{self.title}: results in arrays of NumPy take {format_bytes(results)} of the host's memory,"
                f" and the host budget is {format_bytes(host_budget)}: {ADVICE}"
            )
        count, free = self.parts.count, budget - self.held_bytes
        lengths = dict(settled or chunk_lengths(steps, free, host_budget - results, count))
        if not settled and self._least_bytes(steps) > budget:
            lengths = shortest(steps, count)  # which says how much is needed
        slowdown = None if settled else self.settings.max_slowdown
        refusals: dict[ProgramKey, BudgetError] = {}
        while True:
            refused: BudgetError | None = None
            host = host_bytes(steps, longest_chunks(steps, lengths), self.unnamed)
            host += saved_bytes(steps, lengths)
            if host <= host_budget:
                machine = self.target.machine
                check_chunks(self.title, steps, lengths, candidate.seconds, machine, budget, slowdown)
                try:
                    programs = self._programs(steps, lengths, budget, refusals)
                except BudgetError as error:
                    refused = error
                else:
                    peak = max((each.peak for each in programs.values()), default=self.held_bytes)
                    return StreamedProgram(
                        steps,
                        lengths,
                        programs,
                        peak,
                        host,
                        self.hoisted,
                        candidate.seconds + python_seconds(steps, lengths, machine),
                        self.axes.touched_bytes(steps, lengths, CACHE_SHARE * host_budget),
                        candidate,
                        self.parts,
                    )
            found = None if settled else shorter(steps, lengths, count)
            if found is None:
                chunks = "chunks as its checkpoint has them" if settled else "the shortest chunks"
                raise refused or self._exceeds_host(chunks, host, results, host_budget)
            lengths = found

    def _least_bytes(self, steps: Streaming) -> int:
        """Bytes of what a device holds beside the temporaries of any segment, with the shortest chunks."""
        most = 0
        for use in self._uses(steps, shortest(steps, self.parts.count)):
            inputs = use.piece.program.inputs
            reused = sum(leaf.bytes for leaf, given in zip(inputs, use.donated, strict=True) if given)
            read = use.piece.program.fixed_bytes - reused
            most = max(most, use.beside + read // self.parts.count)
        return most

    def _uses(self, steps: Streaming, lengths: Mapping[int, int]) -> StepUses:
        arguments = {
            position: leaf.bytes
            for position, leaf in enumerate(self.program.inputs)
            if position not in self.streamed
        }
        return StepUses(steps, lengths, arguments, self.parts, self.target.machine.late_chunks)

    def _exceeds_host(self, chunks: str, host: int, results: int, host_budget: int) -> BudgetError:
        beside = f", {format_bytes(results)} of them for results in arrays of NumPy" if results else ""
        advice = f": {ADVICE}" if results else ""
        return BudgetError(
            f"{self.title}: {chunks} of what is read and written exceed the host budget of"
            f" {format_bytes(host_budget)}: they take {format_bytes(host)}{beside}{advice}"
        )

    def _programs(
        self,
        steps: Streaming,
        lengths: Mapping[int, int],
        budget: int,
        refusals: dict[ProgramKey, BudgetError],
    ) -> dict[ProgramKey, Compiled]:
        """What is compiled, if all of it fits.

        **Arguments:**

        - `refusals`: what did not fit with other chunks, which is not tried again in less than it needs.

        **Raises:** `BudgetError` if something does not fit.
        """
        found: dict[ProgramKey, Compiled] = {}
        for use in self._uses(steps, lengths):
            key = (use.segment, use.lengths, use.first)
            refused = refusals.get(key)
            if refused is not None and budget - use.beside < (refused.smallest_peak or 0):
                raise refused
            if key not in found:
                try:
                    found[key] = compiled_step(
                        use, budget, self.settings, self.target, self.title, self.parts
                    )
                except BudgetError as error:
                    if use.beside < budget:  # else, it is refused for what is beside it
                        refusals[key] = error
                    raise
        return found


def _moved_name(moved: Moved, names: Sequence[str]) -> str:
    of = " and ".join(names[position] for position in sorted(moved.sources))
    match moved:
        case Whole():
            return of
        case Taken():
            return f"a slice of {of}"
        case Windows():
            return f"windows of {of}"
        case Filled():
            return "nothing"
        case _:
            return f"{of}, rearranged"
