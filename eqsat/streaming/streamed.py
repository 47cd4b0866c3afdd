"""`StreamedFunction`: a function of arrays that are not in the device's memory, at some types of these."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.compiler.settings import Settings
from eqsat.errors import EqsatError
from eqsat.frontend.trace import Traced
from eqsat.reports.stream_plan import StreamPlan
from eqsat.storage.fingerprints import Fingerprint, Unidentified
from eqsat.streaming.accounting import read_bytes
from eqsat.streaming.checkpoints import Checkpoints, Saved, on_disk
from eqsat.streaming.execution import Execution
from eqsat.streaming.options import StreamOptions
from eqsat.streaming.planner import Settled, StreamedProgram, StreamPlanner
from eqsat.streaming.reporting import stream_plan
from eqsat.streaming.result_places import ResultPlaces
from eqsat.streaming.segments import Key
from eqsat.streaming.sources import Source, SourceView
from eqsat.support.progress import Progress
from eqsat.support.units import format_bytes, format_seconds
from eqsat.targets.calibration import default_target
from eqsat.targets.device_memory import free_budget, free_host_bytes

SCRATCH_SHARE = 1 / 2
"""The share of a disk's free bytes that scratch files may take."""

HOST_SHARE = 1 / 8
"""The share of the host's free memory that is the default host budget."""


class StreamedFunction:
    """A function at some types of arguments, of which some are read by chunks.

    **Attributes:**

    - `traced`: the function.
    - `streamed`: the positions of these arguments.
    - `names`: of all arguments.
    """

    def __init__(
        self,
        traced: Traced,
        streamed: Sequence[int],
        names: Sequence[str],
        settings: Settings,
        options: StreamOptions,
        title: str,
    ) -> None:
        self.traced = traced
        self.streamed = tuple(streamed)
        self.names = tuple(names)
        self.settings = settings
        self.options = options
        self.title = title
        self.target = settings.target or default_target()
        self._programs: dict[Any, StreamedProgram] = {}
        self._seconds = 0.0
        self._planning = threading.RLock()

    @cached_property
    def budget(self) -> int:
        """Bytes of the device's memory."""
        if self.settings.budget is not None:
            return self.settings.budget
        if self.target.usable_memory is not None and self.target.absent is not None:
            return self.target.usable_memory
        return free_budget([jax.devices()[0]])

    @cached_property
    def host_budget(self) -> int:
        """Bytes of the host's memory for what is read and written."""
        given = self.options.host_budget
        return int(HOST_SHARE * free_host_bytes()) if given is None else given

    @cached_property
    def planner(self) -> StreamPlanner:
        return StreamPlanner(
            self.traced.closed, self.streamed, self.settings, self.target, self.title, self.names
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
                    self.settings.observer.planned(self.title, self._described(self._programs[key]))
            return self._programs[key]

    def _described(self, program: StreamedProgram) -> StreamPlan:
        budgets = self.budget, self.host_budget
        rate = self.target.machine.streamed
        names = self.planner.names
        return stream_plan(program, self.title, names, budgets, rate, self._seconds)

    def _scratch_room(self) -> float:
        """Bytes that scratch files may take: half of what is free on their disk."""
        if self.options.scratch is None:
            return 0
        folder = Path(self.options.scratch)
        folder.mkdir(parents=True, exist_ok=True)
        return SCRATCH_SHARE * shutil.disk_usage(folder).free

    def plan(self) -> StreamPlan:
        """How it is computed."""
        return self._described(self.program())

    def run(self, leaves: Sequence[Any]) -> Any:
        """The results: arrays of JAX, and arrays of NumPy for those that have an axis that is read by chunks.

        **Raises:** `BudgetError`, and `EqsatError` if something can't be read or written.
        """
        sources = {number: Source(leaves[number], self.names[number]) for number in self.streamed}
        arrays = {
            Key("argument", number): jnp.asarray(leaf, aval.dtype)
            for number, (leaf, aval) in enumerate(zip(leaves, self.traced.closed.in_avals, strict=True))
            if number not in self.streamed
        }
        checkpoints = self._checkpoints(sources, arrays)
        saved = checkpoints.read() if checkpoints else None
        program = self.program(saved)
        for number, constant in enumerate(program.hoisted):
            arrays[Key("argument", len(leaves) + number)] = constant
        results = ResultPlaces.of(
            program.streaming,
            self.traced,
            sources.values(),
            self.options,
            self.host_budget,
            self.title,
            saved is not None,
        )
        if saved:
            arrays |= {key: jnp.asarray(value) for key, value in saved.arrays.items()}
        try:
            with (
                _interruptible() as interrupted,
                Progress(f"running {self.title}", self.settings.progress) as progress,
            ):
                run = Execution(
                    program,
                    self._with_views(sources),
                    results.kept,
                    arrays,
                    lambda _: None,
                    self.settings.double,
                )
                run.read_bytes = saved.read_bytes if saved else 0
                run.at_chunk = self._at_chunk(program, saved, checkpoints, results, progress, interrupted)
                run.run(saved.path if saved else ())
            found = results.results(run.arrays)
        except BaseException:
            results.abandoned()
            raise
        if checkpoints:
            checkpoints.remove()
        return self.traced.unflatten(found)

    def _with_views(self, sources: Mapping[int, Source]) -> dict[int, Source | SourceView]:
        """What is read, by position: arguments, and slices of them."""
        views = {
            number: sources[view.source].view(view.slices) for number, view in self.planner.views.items()
        }
        return {**sources, **views}

    def _at_chunk(
        self,
        program: StreamedProgram,
        saved: Saved | None,
        checkpoints: Checkpoints | None,
        results: ResultPlaces,
        progress: Progress,
        interrupted: Callable[[], bool],
    ) -> Callable[[Execution], None]:
        total = read_bytes(program.streaming.steps, program.lengths)
        began = time.monotonic()
        before: list[int] = []

        def at_chunk(run: Execution) -> None:
            if not before:
                before.append(run.read_bytes)
            seconds = time.monotonic() - began
            rate = run.read_bytes / seconds if seconds > 0 else 0.0
            left = (total - run.read_bytes) / rate if rate else 0.0
            progress.say(
                f"read {format_bytes(run.read_bytes)} of {format_bytes(total)}, {format_bytes(rate)}/s,"
                f" {format_seconds(left)} left"
            )
            stop = interrupted()
            if checkpoints and (stop or checkpoints.due):
                results.flush()
                checkpoints.write(
                    Saved(
                        saved.budget if saved else self.budget,
                        program.streaming.digest,
                        program.lengths,
                        tuple(run.path),
                        on_disk(run.arrays),
                        run.read_bytes,
                    )
                )
            if stop:
                raise KeyboardInterrupt

        return at_chunk

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


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """A context in which Ctrl-C is noted for the end of a chunk; a second one is not waited for."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        if noted.is_set():
            raise KeyboardInterrupt
        noted.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGINT, before)
