"""`StreamedFunction`: a function of arrays that are not in the device's memory, at some types of these."""

from __future__ import annotations

import contextlib
import hashlib
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
from eqsat.frontend.trace import Traced, as_weak
from eqsat.ir.axis import layout_axes
from eqsat.ir.dtypes import numpy_dtype
from eqsat.reports.stream_plan import StreamPlan
from eqsat.storage.fingerprints import Fingerprint, Unidentified
from eqsat.streaming.accounting import read_bytes
from eqsat.streaming.checkpoints import Checkpoints, Saved, on_disk
from eqsat.streaming.execution import Execution, KeptResult
from eqsat.streaming.named_places import named_places
from eqsat.streaming.options import StreamOptions
from eqsat.streaming.places import Position
from eqsat.streaming.planner import Settled, StreamedProgram, StreamPlanner
from eqsat.streaming.reporting import stream_plan
from eqsat.streaming.segments import Key
from eqsat.streaming.sinks import sink
from eqsat.streaming.sources import Source
from eqsat.support.progress import Progress
from eqsat.support.units import format_bytes, format_seconds
from eqsat.targets.calibration import default_target
from eqsat.targets.device_memory import free_budget, free_host_bytes

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
                    self._programs[key] = self.planner.planned(budget, self.host_budget, settled)
                    self._seconds = time.perf_counter() - began
            return self._programs[key]

    def plan(self) -> StreamPlan:
        """How it is computed."""
        program = self.program()
        budgets = self.budget, self.host_budget
        rate = self.target.machine.streamed
        return stream_plan(program, self.title, self.names, budgets, rate, self._seconds)

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
        results = self._sinks(program, sources, checkpoints, saved is not None)
        kept: dict[int, list[KeptResult]] = {}
        for each in results:
            if each is not None and each.result.kind == "kept":
                kept.setdefault(each.result.number, []).append(each)
        if saved:
            arrays |= {key: jnp.asarray(value) for key, value in saved.arrays.items()}
        try:
            with (
                _interruptible() as interrupted,
                Progress(f"running {self.title}", self.settings.progress) as progress,
            ):
                run = Execution(program, sources, kept, arrays, lambda _: None, self.settings.double)
                run.read_bytes = saved.read_bytes if saved else 0
                run.at_chunk = self._at_chunk(program, saved, checkpoints, results, progress, interrupted)
                run.run(saved.path if saved else ())
            found = self._found(run, results)
        except BaseException:
            for each in results:
                if each is not None:
                    each.sink.abandoned()
            raise
        if checkpoints:
            checkpoints.remove()
        return self.traced.unflatten(found)

    def _at_chunk(
        self,
        program: StreamedProgram,
        saved: Saved | None,
        checkpoints: Checkpoints | None,
        results: Sequence[KeptResult | None],
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
                for each in results:
                    if each is not None:
                        each.sink.flush()
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

    def _sinks(
        self,
        program: StreamedProgram,
        sources: Mapping[int, Source],
        checkpoints: Checkpoints | None,
        resumed: bool,
    ) -> list[KeptResult | None]:
        """For each output, where it goes; None for those that stay on the device."""
        outs = named_places(self.options.out, self.traced, sources.values(), self.title)
        found: list[KeptResult | None] = []
        try:
            self._add_sinks(program, outs, checkpoints, resumed, found)
        except BaseException:
            for each in found:
                if each is not None:
                    each.sink.abandoned()
            raise
        return found

    def _add_sinks(
        self,
        program: StreamedProgram,
        outs: Sequence[Any],
        checkpoints: Checkpoints | None,
        resumed: bool,
        found: list[KeptResult | None],
    ) -> None:
        held = 0
        for number, result in enumerate(program.streaming.results):
            out = outs[number]
            on_device = not set(layout_axes(result.layout)) & self._streamed_axes(program)
            if on_device and out is None:
                found.append(None)
                continue
            aval = self.traced.closed.out_avals[number]
            shape, dtype = tuple(aval.shape), numpy_dtype(str(aval.dtype))
            scratch = Path(checkpoints.folder) / f"result-{number}.npy" if checkpoints else None
            if out is None and checkpoints is None:
                held += aval.size * dtype.itemsize
                if held > self.host_budget:
                    raise EqsatError(
                        f"the results of {self.title} take {format_bytes(held)} of the host's memory, more"
                        f" than the host budget of {format_bytes(self.host_budget)}: name files for them, as"
                        ' in optimize(f, out="result.npy"), or a larger host_budget'
                    )
            found.append(KeptResult(sink(out, shape, dtype, resumed, scratch), result))

    def _streamed_axes(self, program: StreamedProgram) -> set[Any]:
        return {each.axis for each in program.streaming.passes}

    def _weakly_typed(self, number: int, result: jax.Array) -> Any:
        """A result, of a weak type if the function's is."""
        aval = self.traced.closed.out_avals[number]
        return as_weak(result) if aval.weak_type else result

    def _found(self, run: Execution, results: Sequence[KeptResult | None]) -> list[Any]:
        found: list[Any] = []
        for number, each in enumerate(results):
            key = Key("result", number)
            if each is None:
                found.append(self._weakly_typed(number, run.arrays[key]))
                continue
            if each.result.kind == "device":
                whole = Position()
                values = np.asarray(run.arrays[key])
                each.sink.write(whole.slices(each.result.layout, frozenset()), values)
            found.append(each.sink.finished())
        return found


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
