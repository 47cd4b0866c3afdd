"""Reads the next chunk in a thread while the current one is computed with."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

WAIT = 0.1
"""Seconds between looks at whether the reader is to stop."""


class Prefetcher(Generic[T]):
    """The results of a function for each of some items, in order; it is one item ahead at most.

    Use it as a context: leaving it stops the thread.
    """

    def __init__(self, items: Iterable[T], read: Callable[[T], Any]) -> None:
        self._items = iter(items)
        self._read = read
        self._found: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
        self._allowed = threading.Semaphore(1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eqsat-reader", daemon=True)

    def __enter__(self) -> Prefetcher[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._allowed.release()
        self._thread.join()

    def next(self) -> Any:
        """The result for the next item.

        **Raises:** what the function raised.
        """
        found, error = self._found.get()
        self._allowed.release()
        if error is not None:
            raise error
        return found

    def _run(self) -> None:
        try:
            for item in self._items:
                while not self._allowed.acquire(timeout=WAIT):
                    pass
                if self._stopped.is_set():
                    return
                found = self._read(item)
                self._found.put((found, None))
                del found
        except BaseException as error:  # whoever waits for it gets it
            self._found.put((None, error))
