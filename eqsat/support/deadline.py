"""When planning should be over."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time, on the clock on the wall, after which no more is tried.

    **Attributes:**

    - `seconds`: how long was allowed.
    - `end`: in seconds of `time.monotonic`.

    >>> Deadline.after(None).passed(), Deadline.after(0).passed()
    (False, True)
    """

    seconds: float
    end: float

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        """So many seconds from now; never if None."""
        return NO_DEADLINE if seconds is None else Deadline(seconds, time.monotonic() + seconds)

    def passed(self) -> bool:
        return time.monotonic() >= self.end


NO_DEADLINE = Deadline(math.inf, math.inf)
