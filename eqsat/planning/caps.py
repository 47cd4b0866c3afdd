"""The caps on stored values under which programs are extracted."""

from __future__ import annotations

import math
from collections.abc import Iterator

CAP_STEP = 10**0.5
"""The factor between successive caps.

The caps are the same for all budgets, so that a larger budget offers all programs that a smaller one does.
"""

LOWEST_CAP = 1 << 10
"""The lowest cap that is tried, in bytes: a compiled loop needs about this much for its own bookkeeping."""


def caps(free: float) -> Iterator[float]:
    """The caps to try with `free` bytes for temporaries: from the next cap above downwards.

    >>> [round(cap) for cap in caps(25_000)]
    [32382, 10240, 3238, 1024]
    """
    steps = math.ceil(math.log(max(free / LOWEST_CAP, 1.0), CAP_STEP))
    for step in range(steps, -1, -1):
        yield LOWEST_CAP * CAP_STEP**step


def between(cap: float) -> Iterator[float]:
    """The caps to try above one that is too low, and below the one before it.

    A program may need to store values that are not much smaller than those that it can do without.

    >>> [round(cap) for cap in between(1000)]
    [2371, 1778, 1334]
    """
    for step in (3, 2, 1):
        yield cap * CAP_STEP ** (step / 4)
