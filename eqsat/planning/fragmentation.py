"""How much place the buffers of a program take beyond what is alive at a time.

XLA gives every buffer a fixed offset in one block of memory: the largest buffers first, each into the
smallest gap that is large enough while it is alive (`GlobalDecreasingSizeBestFitHeap`). Large buffers that
are alive for a moment, such as the workspaces of products, leave gaps that nothing else fits.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from eqsat.planning.blocks import Schedule
from eqsat.planning.liveness import Simulator
from eqsat.planning.output_reuse import Temporary
from eqsat.targets.machine import Machine

SMALL = 64
"""Buffers smaller than 1/64 of the largest one fit somewhere."""

MOST = 400
"""The number of buffers placed at most, the largest ones."""


def fragmentation(schedule: Schedule, machine: Machine) -> int:
    """Bytes of the gaps between the buffers of a schedule, on a machine whose products have workspaces."""
    if not machine.product_workspace:
        return 0
    results = frozenset(output.term.number for output in schedule.program.outputs)
    found = sorted(Simulator(machine, schedule.chunks).buffers(schedule.block, results), key=_order)[:MOST]
    large = [buffer for buffer in found if buffer.bytes * SMALL >= found[0].bytes]
    return height(large) - most_alive(large)


def _order(buffer: Temporary) -> tuple[object, ...]:
    return (-buffer.bytes, buffer.begin, buffer.end)


def height(buffers: Sequence[Temporary]) -> int:
    """Bytes of the block in which buffers, in this order, are placed one after the other.

    >>> from math import inf
    >>> product = Temporary(6, (0,), (1, inf))
    >>> softmax = Temporary(6, (1,), (2, inf))
    >>> first, second = (Temporary(33, (step,), (step, inf)) for step in (0, 2))
    >>> buffers = [first, second, product, softmax]
    >>> height(buffers), most_alive(buffers)
    (45, 39)
    """
    placed: list[tuple[int, int, Temporary]] = []
    for number, buffer in enumerate(buffers):
        offset, free = 0, None
        for start, _, other in placed:
            if other.begin > buffer.end or other.end < buffer.begin:
                continue
            gap = start - offset
            if gap >= buffer.bytes and (free is None or gap < free[0]):
                free = gap, offset
            offset = max(offset, start + other.bytes)
        insort(placed, (offset if free is None else free[1], number, buffer))
    return max((start + buffer.bytes for start, _, buffer in placed), default=0)


def most_alive(buffers: Iterable[Temporary]) -> int:
    """The most bytes that are alive at a time."""
    # A buffer is alive at the moment when another one ends.
    changes = sorted(
        change
        for buffer in buffers
        for change in ((buffer.begin, 0, buffer.bytes), (buffer.end, 1, -buffer.bytes))
    )
    most = alive = 0
    for *_, change in changes:
        alive += change
        most = max(most, alive)
    return most
