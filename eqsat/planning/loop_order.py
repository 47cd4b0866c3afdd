"""The steps that loops have to come after, so that arrays which these are the last to read are gone by then.

A compiler runs steps in an order of its own. A step that reduces a large array to a small one, which nothing
reads soon, may run after loops that the schedule has after it, and the large array stays until then. (XLA's
schedule for low memory, on CPU, did so for the gradients of small weights: 2 MB of 12.7 MB.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_extended
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Loop, Schedule
from eqsat.planning.liveness import Simulator
from eqsat.planning.tasks import Tasks, bits, tasks_of
from eqsat.targets.machine import Machine

SMALL_SHARE = 1 / 64
"""Arrays of less than this part of the block's peak make little difference."""


def comes_after(schedule: Schedule, machine: Machine) -> dict[int, tuple[int, ...]]:
    """By loop, the numbers of the values that have to be there before the loop begins."""
    simulator = Simulator(machine, schedule.chunks)
    results = frozenset(output.term.number for output in schedule.program.outputs)
    return dict(_in_block(schedule.block, simulator, {}, results))


def _in_block(
    block: Block, simulator: Simulator, lengths: Mapping[Axis, int], results: frozenset[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    if block.own_loops:
        yield from _of_tasks(block, tasks_of(block, simulator, lengths, results))
    for loop in block.own_loops:
        inner = {**lengths, loop.axis: simulator.chunks[loop.id]}
        yield from _in_block(loop.body, simulator, inner, frozenset())
    for body in block.bodies:
        yield from _in_block(body, simulator, lengths, frozenset())


def _of_tasks(block: Block, tasks: Tasks) -> Iterator[tuple[int, tuple[int, ...]]]:
    numbers = range(len(tasks.makes))
    profile = tasks.profile(numbers)
    peak = max(profile)
    # The tasks that are done before each one in any order, as bits.
    before: list[int] = []
    for task in numbers:
        before.append(_with_needs(before, tasks.needs(task)))
        step = block.steps[tasks.steps[task][0]]
        if not isinstance(step, Loop):
            continue
        kept = _kept(tasks, task, before[task])
        if profile[task] + sum(tasks.size[value] for value in kept) <= peak:
            continue
        awaited: set[int] = set()
        while kept:
            large = (value for value in kept if tasks.size[value] >= SMALL_SHARE * peak)
            waits = (_with_needs(before, kept[value]) & ~before[task] for value in large)
            first = next((wait for wait in waits if _frees(tasks, task, wait, kept)), 0)
            if not first:
                break
            awaited.update(bits(first))
            before[task] |= first
            kept = _kept(tasks, task, before[task])
        # What one of them needs is there already.
        needed = _with_needs(before, set().union(*map(tasks.needs, awaited)))
        terms = (_with_entries(block, tasks, other) for other in sorted(awaited) if not needed >> other & 1)
        after = tuple(term.number for term in terms if term is not None)
        if after:
            yield step.id, after


def _with_needs(before: Sequence[int], some: Collection[int]) -> int:
    """Tasks and those that are done before them, as bits."""
    found = 0
    for task in some:
        found |= before[task] | 1 << task
    return found


def _kept(tasks: Tasks, task: int, before: int) -> dict[int, list[int]]:
    """The values that may be there when a task runs though the schedule is done with them.

    **Arguments:**

    - `before`: the tasks that are done then, as bits.

    **Returns:** by value, its readers that may come after the task.
    """
    found = {}
    for value in (value for other in bits(before) for value in tasks.makes[other]):
        late = [reader for reader in tasks.readers[value] if not before >> reader & 1]
        if late and max(tasks.readers[value]) < task and not tasks.kept[value]:
            found[value] = late
    return found


def _frees(tasks: Tasks, task: int, wait: int, kept: Mapping[int, Sequence[int]]) -> bool:
    """Whether less is there when a task runs if other tasks, as bits, are done before it."""
    freed = sum(
        tasks.size[value] for value, late in kept.items() if all(wait >> reader & 1 for reader in late)
    )
    made = (value for other in bits(wait) for value in tasks.makes[other])
    alive = (value for value in made if max(tasks.readers[value], default=-1) > task or tasks.kept[value])
    return freed > sum(tasks.size[value] for value in alive)


def _with_entries(block: Block, tasks: Tasks, task: int) -> Term | None:
    """A result of a task that is an array of numbers and has entries."""
    for index in tasks.steps[task]:
        for result in block.steps[index].results:
            if not is_extended(result.dtype) and all(axis.size for axis in result.axes):
                return result
    return None
