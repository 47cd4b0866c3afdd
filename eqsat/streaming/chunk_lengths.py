"""The lengths of the chunks that are read: long enough to be quick, and short enough for both memories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import numpy_dtype
from eqsat.planning.chunks import even_length
from eqsat.streaming.accounting import chunk_bytes
from eqsat.streaming.steps import ControlFlow, Pass, Step, Streaming, passes_in

CHUNK = 64 << 20
"""Bytes of a chunk with which the time to start reading it, and a program on it, no longer counts."""

SHARE = 1 / 6
"""The share of the free memory that a chunk may take: the next one is there too, and what is made of it."""

OUTER_SHARE = 1 / 4
"""The share for a pass with another pass inside, which is repeated for each of its chunks."""


def chunk_lengths(streaming: Streaming, free: int, host_free: int) -> dict[int, int]:
    """By pass, the length of its chunks to try first.

    **Arguments:**

    - `free`: bytes of the device's memory that arguments and results leave.
    - `host_free`: bytes of the host's budget that results leave.
    """
    found: dict[int, int] = {}
    sizes = {kept.number: numpy_dtype(kept.dtype).itemsize for kept in streaming.kept}

    def choose(one: Pass, opened: Mapping[Axis, int]) -> None:
        inner = list(passes_in(one.steps))
        share = OUTER_SHARE if inner else SHARE
        most = min(free * share, host_free * share)
        if not inner:
            most = min(most, CHUNK)
        row = chunk_bytes(one, {**opened, one.axis: 1})
        for written in one.written:
            lengths = {**opened, one.axis: 1}
            entries = math.prod(
                lengths[axis] if axis in written.open else axis.size for axis in written.order
            )
            row += entries * sizes[written.result]
        length = int(most / row) if row else one.axis.size
        found[one.id] = usable(one, length)
        each(one.steps, {**opened, one.axis: found[one.id]})

    def each(steps: Sequence[Step], opened: Mapping[Axis, int]) -> None:
        for step in steps:
            if isinstance(step, Pass):
                choose(step, opened)
            elif isinstance(step, ControlFlow):
                for body in step.bodies:
                    each(body, opened)

    each(streaming.steps, {})
    return found


def usable(one: Pass, length: int) -> int:
    """A length that a pass can have: an even one, at least as long as its folds need."""
    shortest = min(max(one.shortest, 2), one.axis.size)
    found = max(even_length(one.axis.size, max(length, 1)), shortest)
    while found < one.axis.size and one.axis.size % found == 1:
        found += 1  # A chunk of one entry would have no axis.
    return found


def shorter(streaming: Streaming, lengths: Mapping[int, int]) -> dict[int, int] | None:
    """The lengths to try next if the last ones were too long; None if there are none."""
    found = {one.id: usable(one, lengths[one.id] // 2) for one in streaming.passes}
    return None if found == dict(lengths) else found
