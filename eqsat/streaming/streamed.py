"""`StreamedFunction`: a function of arrays that are not in the device's memory, at some types of these."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from eqsat.compiler.default_budget import budget_bytes
from eqsat.compiler.settings import Settings
from eqsat.errors import EqsatError
from eqsat.frontend.trace import Traced
from eqsat.reports.stream_explanation import StreamExplanation
from eqsat.reports.stream_plan import StreamPlan
from eqsat.storage.fingerprints import Fingerprint, Unidentified
from eqsat.streaming.after_chunks import AfterChunks, interruptible
from eqsat.streaming.budgets import smallest_budget, worthwhile
from eqsat.streaming.checkpoints import Checkpoints, Saved
from eqsat.streaming.compiled_steps import refuse_keys
from eqsat.streaming.execution import Execution
from eqsat.streaming.keys import Key
from eqsat.streaming.named_places import listed_places
from eqsat.streaming.options import StreamOptions
from eqsat.streaming.planner import Settled, StreamedProgram, StreamPlanner
from eqsat.streaming.reporting import stream_plan
from eqsat.streaming.result_places import ResultPlaces
from eqsat.streaming.sources import Source, moved_sources
from eqsat.streaming.storage_blocks import CACHE_SHARE, Blocks
from eqsat.support.progress import Progress
from eqsat.support.units import format_bytes
from eqsat.targets.calibration import default_target
from eqsat.targets.device_memory import free_host_bytes

SAMPLE = 16 << 20
"""Bytes of the slice by which the rate of reading is measured."""

SCRATCH_SHARE = 1 / 2
"""The share of a disk's free bytes that scratch files may take."""

HOST_SHARE = 1 / 8
"""The share of the host's free memory that is the default host budget."""


class StreamedFunction:
    """A function at some types of arguments, of which some are read by chunks.

    **Attributes:**

    - `traced`: the function.
    - `streamed`: the positions of these arguments; `blocks`: the pieces that each lies in.
    - `names`: of all arguments.
    """

    def __init__(
        self,
        traced: Traced,
        blocks: Blocks,
        names: Sequence[str],
        settings: Settings,
        options: StreamOptions,
        title: str,
    ) -> None:
        for aval in (*traced.closed.in_avals, *traced.closed.out_avals):
            refuse_keys(str(aval.dtype), title)
        self.traced = traced
        self.streamed = tuple(blocks)
        self.blocks = blocks
        self.names = tuple(names)
        self.settings = settings
        self.options = options
        self.title = title
        self.target = settings.target or default_target()
        self._programs: dict[Any, StreamedProgram] = {}
        self._seconds = 0.0
        self._rate: float | None = None
        self._planning = threading.RLock()

    @cached_property
    def budget(self) -> int:
        """Bytes of the device's memory."""
        mesh = self.planner.parts.mesh
        devices = [jax.devices()[0]] if mesh is None else mesh.local_devices
        return self.planner.parts.smallest(budget_bytes(self.settings, self.target, devices, ()))

    @cached_property
    def host_budget(self) -> int:
        """Bytes of the host's memory for what is read and written, and for results in arrays of NumPy."""
        given = self.options.host_budget
        found = int(HOST_SHARE * free_host_bytes()) if given is None else given
        return self.planner.parts.smallest(found)  # so that all processes make the same plan

    @cached_property
    def planner(self) -> StreamPlanner:
        return StreamPlanner(
            self.traced.closed,
            self.streamed,
            self.settings,
            self.target,
            self.title,
            self.names,
            [place is None for place in listed_places(self.options.out, self.traced, self.title)],
            self.blocks,
        )

    def program(self, saved: Saved | None = None) -> StreamedProgram:
        """What runs; planned when it is first asked for.

        **Arguments:**

        - `saved`: how far an earlier run has come, if its program is to go on.

        **Raises:** `BudgetError` if there is no program within the budgets; `EqsatError` if that of the
            earlier run is not found.
        """
        key = (saved.budget, saved.steps, *sorted(saved.lengths.items())) if saved else ()
        with self._planning:
            if key not in self._programs:
                with (
                    self.settings.alone(),
                    Progress(f"planning {self.title}", self.settings.progress) as progress,
                ):
                    progress.say("passes over what is not in memory")
                    began = time.perf_counter()
                    # Of the same budget, a machine that has more free makes the same program.
                    budget = min(saved.budget, self.budget) if saved else self.budget
                    settled = Settled(saved.steps, saved.lengths) if saved else None
                    self._programs[key] = self.planner.planned(
                        budget, self.host_budget, settled, self._scratch_room()
                    )
                    self._seconds = time.perf_counter() - began
                if self.settings.observer is not None:
                    described = self._described(self._programs[key], self.budget)
                    self.settings.observer.planned(self.title, described)
            return self._programs[key]

    def _described(self, program: StreamedProgram, budget: int) -> StreamPlan:
        budgets = budget, self.host_budget
        rate = self._rate or self.target.machine.streamed
        names = self.planner.names
        return stream_plan(program, self.title, names, budgets, rate, self._seconds)

    def _scratch_room(self) -> float:
        """Bytes that scratch files may take: half of what is free on their disk."""
        if self.options.scratch is None:
            return 0
        folder = Path(self.options.checkpoint or self.options.scratch)
        folder.mkdir(parents=True, exist_ok=True)
        return SCRATCH_SHARE * shutil.disk_usage(folder).free

    def plan(self, leaves: Sequence[Any]) -> StreamPlan:
        """How it is computed, with the time to read at the rate at which a slice is read now.

        **Arguments:**

        - `leaves`: the arguments, or the types of those that are absent.
        """
        program = self.program()
        if self._rate is None:
            sources = [Source(leaves[number], self.names[number]) for number in self.streamed]
            rates = [rate for source in sources if (rate := source.rate(SAMPLE)) is not None]
            self._rate = min(rates, default=None)
        return self._described(program, self.budget)

    def minimum_bytes(self) -> int:
        """The smallest budget of the device's memory for which a program is found, to a twentieth.

        **Raises:** `BudgetError` if there is none.
        """
        with (
            self.settings.alone(),
            Progress(f"the smallest budget of {self.title}", self.settings.progress) as progress,
        ):
            return smallest_budget(self._within(progress), self.planner.held_bytes, self._whole)

    def explained(self, count: int) -> StreamExplanation:
        """What so many budgets would cost.

        **Raises:** `BudgetError` if there is a program within none.
        """
        smallest = self.minimum_bytes()
        with (
            self.settings.alone(),
            Progress(f"explaining {self.title}", self.settings.progress) as progress,
        ):
            found = worthwhile(self._within(progress), smallest, self._whole, count)
            plans = tuple(self._described(program, budget) for budget, program in found)
        arguments = sum(leaf.bytes for leaf in self.planner.program.inputs)
        return StreamExplanation(self.title, arguments, self._whole - arguments, smallest, plans)

    @property
    def _whole(self) -> int:
        """Bytes of all arguments and results."""
        return self.planner.program.fixed_bytes

    def _within(self, progress: Progress) -> Callable[[int], StreamedProgram]:
        """What plans within a budget."""

        def planned(budget: int) -> StreamedProgram:
            progress.say(f"within {format_bytes(budget)}")
            return self.planner.planned(budget, self.host_budget, None, self._scratch_room())

        return planned

    def run(self, leaves: Sequence[Any]) -> Any:
        """The results: arrays of JAX, and arrays of NumPy for those that have an axis that is read by chunks.

        **Raises:** `BudgetError`, and `EqsatError` if something can't be read or written.
        """
        sources = {number: Source(leaves[number], self.names[number]) for number in self.streamed}
        parts = self.planner.parts
        if parts.several_processes and (self.options.checkpoint or self.options.scratch):
            raise EqsatError(
                f"{self.title} runs in several processes, which keep no checkpoints and no scratch files yet:"
                " leave out checkpoint= and scratch="
            )
        arrays: dict[Key, Any] = {
            Key("argument", number): parts.whole(leaf, aval.dtype)
            for number, (leaf, aval) in enumerate(zip(leaves, self.traced.closed.in_avals, strict=True))
            if number not in self.streamed
        }
        checkpoints = self._checkpoints(sources, arrays)
        saved = checkpoints.read() if checkpoints else None
        program = self.program(saved)
        for number, constant in enumerate(program.hoisted):
            arrays[Key("argument", len(leaves) + number)] = parts.whole(constant)
        results = ResultPlaces.of(
            program.streaming,
            self.traced,
            sources.values(),
            self.options,
            self.title,
            saved is not None,
            parts,
        )
        if saved:
            results.resume(saved.written)
            arrays |= {
                key: np.array(value) if key.kind == "saved" else parts.whole(value)
                for key, value in saved.arrays.items()
            }
        try:
            with (
                interruptible() as interrupted,
                Progress(f"running {self.title}", self.settings.progress) as progress,
            ):
                before = saved.read_bytes if saved else 0
                budget = saved.budget if saved else self.budget
                after = AfterChunks(program, budget, checkpoints, results, progress, interrupted, before)
                # A piece is there twice while it is read.
                room = (self.host_budget - program.host_peak) // (2 * len(sources))
                for source in sources.values():
                    source.keep_pieces(min(room, int(CACHE_SHARE * self.host_budget)))
                moved = moved_sources(self.planner.moved, sources)
                read, double = {**sources, **moved}, self.settings.double
                run = Execution(program, read, results.kept, arrays, after, double, read_bytes=before)
                run.run(saved.path if saved else ())
            found = results.results(run.arrays)
        except BaseException:
            results.abandoned()
            raise
        if checkpoints:
            checkpoints.remove()
        return self.traced.unflatten(found)

    def _checkpoints(
        self, sources: Mapping[int, Source], arrays: Mapping[Key, jax.Array]
    ) -> Checkpoints | None:
        if self.options.checkpoint is None:
            return None
        function = Fingerprint()
        try:
            function.add(self.traced.closed)
        except Unidentified as error:
            raise EqsatError(
                f"{self.title} can't have checkpoints: it contains what no other process can tell ({error})"
            ) from error
        digest = hashlib.sha256(function.hexdigest().encode())
        for number, source in sorted(sources.items()):
            digest.update(f"{number} {source.fingerprint()}".encode())
        for key, array in sorted(arrays.items()):
            digest.update(f"{key.number} {array.dtype} {array.shape}".encode() + np.asarray(array).tobytes())
        return Checkpoints(Path(self.options.checkpoint), digest.hexdigest())
