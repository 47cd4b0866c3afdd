"""Shows the progress of planning to waiting users."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

PATIENCE = 1.0
"""Seconds of planning after which a terminal shows the current step."""

INTERVAL = 0.25
"""Seconds between updates of the line."""

CLEAR = "\r\x1b[K"
"""Moves to the start of the terminal's line and clears it."""

_terminal = threading.Lock()
"""Held by the thread that writes the line, since there is only one line."""


class Progress:
    """Shows the current step of some work on stderr: on a terminal, in one line that vanishes at the end.

    **Arguments:**

    - `title`: the name of the work: "planning kernel".
    - `wanted`: True: from the start, with one line per step if stderr is no terminal. None: only on a
      terminal, after one second. False: never.
    - `file`: the stream to write to instead of stderr.
    """

    def __init__(self, title: str, wanted: bool | None = None, file: TextIO | None = None) -> None:
        self.title = title
        self.wanted = wanted
        self._file = sys.stderr if file is None else file
        self._step = "starting"
        self._began = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, step: str) -> None:
        """Set the current step, such as "applying rules"."""
        if self.wanted and self._thread is None and step != self._step:
            self._write(f"eqsat: {self.title}: {step}…\n")
        self._step = step

    def tell(self, news: str) -> None:
        """Report an intermediate result on a line of its own, if steps have lines of their own too."""
        if self.wanted and self._thread is None:
            self._write(f"eqsat: {self.title}: {news}\n")

    def __enter__(self) -> Self:
        if self.wanted is not False and _is_terminal(self._file):
            # A thread updates the line, since a step may take long.
            self._thread = threading.Thread(target=self._show, name="eqsat-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._done.wait(0 if self.wanted else PATIENCE) or not _terminal.acquire(blocking=False):
            return
        try:
            while True:
                seconds = time.monotonic() - self._began
                text = f"eqsat: {self.title} ({seconds:.0f} s): {self._step}…"
                self._write(CLEAR + text[: shutil.get_terminal_size().columns - 1])
                if self._done.wait(INTERVAL):
                    break
            self._write(CLEAR)
        finally:
            _terminal.release()

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a closed file is no reason not to plan
            self._file.write(text)
            self._file.flush()


SILENT = Progress("nothing", False)


def _is_terminal(file: TextIO) -> bool:
    try:
        return file.isatty()
    except (AttributeError, ValueError):  # no such method, or closed
        return False
