"""Trading: longer chunks of one loop for shorter ones of another.

Blocks of one size for all loops are fast where each loop does its own work. But what an inner loop computes
for every turn of one around it is computed less often if that one's chunks are longer, whatever those of the
inner one. Where memory is tight, the lengths that fit are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.planning.blocks import Block, Loop, Schedule
from eqsat.planning.tying import Ties

STEPS = (2.0, 1.5)
"""Factors between the lengths tried."""

MOST_TRADES = 12
"""So many lengths are changed, one after the other."""

WORTHWHILE = 0.98
"""A trade is made if what comes of it takes less than this part of the time."""

Length = Callable[[int, int], int]
"""A chunk length that cuts an axis of that size evenly, of at most so much."""


def traded(
    schedule: Schedule,
    peak: int,
    together: Ties,
    fixed: Mapping[int, int],
    even: Length,
    seconds: Callable[[Schedule], float],
    fitting: Callable[[Schedule], int | None],
) -> tuple[Schedule, int]:
    """The schedule with other lengths of chunks with which it is faster, and its peak.

    **Arguments:**

    - `peak`: of the schedule, which fits.
    - `together`, `fixed`: loops that have one length, and loops whose lengths are given.
    - `seconds`, `fitting`: the time of a schedule, and its peak; None if it does not fit.
    """
    groups = _groups(schedule.block, together, fixed)
    least = seconds(schedule)
    for _ in range(MOST_TRADES if len(groups) > 1 else 0):
        found = None
        for chunks in _trades(schedule, groups, even):
            other = replace(schedule, chunks=chunks)
            takes = seconds(other)
            if takes < WORTHWHILE * least and (needs := fitting(other)) is not None:
                found, peak, least = other, needs, takes
        if found is None:
            break
        schedule = found
    return schedule, peak


def _groups(block: Block, together: Ties, fixed: Mapping[int, int]) -> list[tuple[Loop, ...]]:
    """The loops whose lengths may be changed, those that have one length together."""
    loops = {loop.id: loop for loop in block.loops}
    tied = [tuple(loops[one] for one in sorted(some)) for some in together]
    alone = [(loop,) for loop in loops.values() if not any(loop in some for some in tied)]
    return [some for some in (*tied, *alone) if not any(loop.id in fixed for loop in some)]


def _trades(schedule: Schedule, groups: Sequence[tuple[Loop, ...]], even: Length) -> Iterator[dict[int, int]]:
    """The lengths with those of one group longer, and those of another one shorter or as they are."""
    chunks = dict(schedule.chunks)

    def scaled(group: tuple[Loop, ...], factor: float) -> dict[int, int]:
        size, now = group[0].axis.size, chunks[group[0].id]
        length = max(even(size, max(1, int(factor * now))), *(loop.shortest for loop in group), 1)
        return {loop.id: length for loop in group} if length != now else {}

    for group in groups:
        for step in STEPS:
            longer = scaled(group, step)
            if not longer:
                continue
            yield chunks | longer
            for other in groups:
                if other is not group:
                    for factor in STEPS:
                        if shorter := scaled(other, 1 / factor):
                            yield chunks | longer | shorter
