"""Deadlines for planning."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time after which nothing more is tried. Elapsed time counts, not processor time.

    **Attributes:**

    - `seconds`: the time that was allowed.
    - `end`: the end, in seconds of `time.monotonic`.

    >>> Deadline.after(None).passed(), Deadline.after(0).passed()
    (False, True)
    """

    seconds: float
    end: float

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        """The deadline this many seconds from now; no deadline if None."""
        return NO_DEADLINE if seconds is None else Deadline(seconds, time.monotonic() + seconds)

    def passed(self) -> bool:
        return time.monotonic() >= self.end


NO_DEADLINE = Deadline(math.inf, math.inf)
