"""What happens between the chunks of a run: progress is shown, checkpoints are written, Ctrl-C is heard."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from eqsat.streaming.accounting import read_bytes
from eqsat.streaming.checkpoints import Checkpoints, Saved, on_disk
from eqsat.streaming.execution import Execution
from eqsat.streaming.planner import StreamedProgram
from eqsat.streaming.result_places import ResultPlaces
from eqsat.support.progress import Progress
from eqsat.support.units import format_bytes, format_seconds


@dataclass
class AfterChunks:
    """Is called after every chunk of a run.

    **Attributes:**

    - `budget`: bytes of the device's memory that the program is for.
    - `interrupted`: whether the run is to stop.
    - `before`: how many bytes an earlier run has read.
    """

    program: StreamedProgram
    budget: int
    checkpoints: Checkpoints | None
    results: ResultPlaces
    progress: Progress
    interrupted: Callable[[], bool]
    before: int
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._total = read_bytes(self.program.streaming.steps, self.program.lengths)

    def __call__(self, run: Execution) -> None:
        """Show progress, and write a checkpoint if one is due.

        **Raises:** `KeyboardInterrupt` after Ctrl-C, with a checkpoint written.
        """
        self._show(run.read_bytes)
        stop = self.interrupted()
        if self.checkpoints and (stop or self.checkpoints.due):
            self.results.flush()
            self.checkpoints.write(
                Saved(
                    self.budget,
                    self.program.streaming.digest,
                    self.program.lengths,
                    tuple(run.path),
                    on_disk(run.arrays),
                    run.read_bytes,
                    self.results.samples,
                )
            )
        if stop:
            raise KeyboardInterrupt

    def _show(self, count: int) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (count - self.before) / seconds
        left = format_seconds((self._total - count) / rate) if rate else "unknown time"
        read = f"read {format_bytes(count)} of {format_bytes(self._total)}"
        self.progress.say(f"{read}, {format_bytes(rate)}/s, {left} left")


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
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
