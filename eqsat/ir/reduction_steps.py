"""Long reductions in two steps: the parts of the first step, as XLA chooses them and as programs are emitted.

A GPU reduces a long row in two steps, since one group of threads would be slow at it, and the results of the
first step are stored. XLA makes about as many parts as each part has entries: 250 of 400 for 100,000 entries.
A group of threads is not slow up to thousands of entries, so a program that says itself what the parts are,
say 8 of 12,500, stores far less. Both the emitted programs and the storage model use this.
"""

from __future__ import annotations

import math

LEAST_SAVED = 1 << 20
"""Bytes. Where less would be saved, the steps are left to XLA, which keeps more of the device busy."""


def library_parts(length: int) -> int:
    """The parts that XLA makes: near the root of the length, with the least padding.

    Its pass is `TreeReductionRewriter`.

    >>> library_parts(30_000), library_parts(100_000), library_parts(10_007)
    (150, 250, 72)
    """
    root = math.isqrt(length)
    return min(range(root, root // 2, -1), key=lambda parts: -length % parts)


def part_length(length: int, longest: int, bytes_of_part: int, divisor: int | None = None) -> int | None:
    """The length of the parts of a reduction in two steps; None if it has one, or is left to XLA.

    **Arguments:**

    - `longest`: the longest reduction that is done in one step.
    - `bytes_of_part`: bytes of the results of one part, for all rows.
    - `divisor`: what the length of the parts must divide; the length itself by default.

    >>> part_length(100_000, 16_384, 400_000)
    12500
    """
    whole = divisor or length
    theirs = library_parts(length)
    if length <= longest:
        return None
    for parts in range(-(-whole // longest), theirs * whole // length + 1):
        if whole % parts == 0:
            part = whole // parts
            saved = (theirs - length // part) * bytes_of_part
            return part if saved >= LEAST_SAVED else None
    return None
