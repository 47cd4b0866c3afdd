"""What planning is at, for who waits for it."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

PATIENCE = 1.0
"""Seconds of planning after which a terminal shows what it is at."""

INTERVAL = 0.25
"""Seconds between two states of the line."""

CLEAR = "\r\x1b[K"
"""To the start of the terminal's line, and nothing on it."""

_terminal = threading.Lock()
"""Held by the one who writes the line: there is one line, and there may be many threads."""


class Progress:
    """Says on stderr what some work is at: on a terminal in one line, which is gone when the work is done.

    **Arguments:**

    - `title`: the work: "planning kernel".
    - `wanted`: True: from the start, and if stderr is no terminal, in a line for each step. None: on a
      terminal, if it takes longer than a second. False: never.
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
        """What the work is at now: "applying rules"."""
        if self.wanted and self._thread is None and step != self._step:
            self._write(f"eqsat: {self.title}: {step}…\n")
        self._step = step

    def tell(self, news: str) -> None:
        """What has come of the work so far: a line of its own, and nothing where there is one line only."""
        if self.wanted and self._thread is None:
            self._write(f"eqsat: {self.title}: {news}\n")

    def __enter__(self) -> Self:
        if self.wanted is not False and _is_terminal(self._file):
            # In a thread, since a step may take long.
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
