"""The lengths of the chunks that are read: long enough to be quick, and short enough for both memories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import numpy_dtype
from eqsat.planning.chunks import DIVISOR_SLACK, even_length
from eqsat.streaming.accounting import chunk_bytes
from eqsat.streaming.steps import ControlFlow, Pass, Step, Streaming, outermost, passes_in

CHUNK = 64 << 20
"""Bytes of a chunk with which the time to start reading it, and a program on it, no longer counts."""

SHARE = 1 / 6
"""The share of the free memory that a chunk may take: the next one is there too, and what is made of it."""

OUTER_SHARE = 1 / 4
"""The share for a pass with another pass inside, which is repeated for each of its chunks."""


def chunk_lengths(streaming: Streaming, free: int, host_free: int, count: int = 1) -> dict[int, int]:
    """By pass, the length of its chunks to try first.

    **Arguments:**

    - `count`: how many devices share out the chunks of the outermost passes.
    - `free`: bytes of the device's memory that arguments and results leave.
    - `host_free`: bytes of the host's budget that results leave.
    """
    found: dict[int, int] = {}
    idle: list[Pass] = []
    sizes = {kept.number: numpy_dtype(kept.dtype).itemsize for kept in streaming.kept}

    def choose(one: Pass, opened: Mapping[Axis, int]) -> None:
        inner = list(passes_in(one.steps))
        share = OUTER_SHARE if inner else SHARE
        devices = 1 if opened else count
        most = min(devices * free * share, host_free * share)
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
        idle.extend([] if row else [one])
        # Passes of one loop go through the same chunks.
        length = usable(one, length, devices)
        found[one.id] = min(length, found.get(one.id, length))
        each(one.steps, {**opened, one.axis: found[one.id]})

    def each(steps: Sequence[Step], opened: Mapping[Axis, int]) -> None:
        for step in steps:
            if isinstance(step, Pass):
                choose(step, opened)
            elif isinstance(step, ControlFlow):
                for body in step.bodies:
                    each(body, opened)

    each(streaming.steps, {})
    for one in idle:
        # What is made of a chunk is about as large as where others read along the axis.
        others = [found[other.id] for other in streaming.passes if other.axis == one.axis]
        found[one.id] = min(others)
    return found


def usable(one: Pass, length: int, count: int = 1) -> int:
    """A length that a pass can have: an even one, at least as long as its folds need.

    **Arguments:**

    - `count`: how many devices share out the chunks, which divide the length if they can.
    """
    shortest = min(max(one.shortest, 2), one.axis.size)
    if count > 1 and (found := _divided(one.axis.size, length, max(shortest, 2 * count), count)):
        return found
    found = max(even_length(one.axis.size, max(length, 1)), shortest)
    while found < one.axis.size and one.axis.size % found == 1:
        found += 1  # A chunk of one entry would have no axis.
    return found


def _divided(size: int, longest: int, shortest: int, count: int) -> int | None:
    """A length that so many devices divide, after which they divide the rest, too, or have all of a little.

    None if there is none.
    """
    longest = min(longest, size) // count * count
    lengths = range(longest, max(shortest, longest // 2) - 1, -count)
    for length in lengths:
        if size % length == 0 and length >= DIVISOR_SLACK * longest:
            return length
    for length in lengths:
        rest = size % length
        if rest != 1 and (rest * count <= length or (rest % count == 0 and rest >= 2 * count)):
            return length
    return None


def shorter(streaming: Streaming, lengths: Mapping[int, int], count: int = 1) -> dict[int, int] | None:
    """The lengths to try next if the last ones were too long; None if there are none."""
    found = _all_usable(streaming, {number: length // 2 for number, length in lengths.items()}, count)
    return None if found == dict(lengths) else found


def shortest(streaming: Streaming, count: int = 1) -> dict[int, int]:
    """By pass, the shortest chunks that it can have."""
    return _all_usable(streaming, {one.id: 1 for one in streaming.passes}, count)


def _all_usable(streaming: Streaming, lengths: Mapping[int, int], count: int) -> dict[int, int]:
    outer = outermost(streaming.steps)
    return {one.id: usable(one, lengths[one.id], count if one.id in outer else 1) for one in streaming.passes}
