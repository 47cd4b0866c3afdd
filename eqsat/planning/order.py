"""Orders a block's steps for a low peak, by beam search.

The search starts from a few orders that are quick to find; its result is never worse than the best of them.
It extends partial orders task by task and keeps the best of every length: those with the lowest peak, and
among these those with the least memory in use. A task that frees as much as it takes and does not raise the
peak is done at once, since nothing is gained by delaying it. In long blocks, only the steps around the peak
are reordered, as long as that lowers the peak, so that the effort is about linear.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis
from eqsat.planning.blocks import Block, Compute, Loop, Schedule, inner_blocks
from eqsat.planning.liveness import Simulator, predicted_peak
from eqsat.planning.tasks import Tasks, bits, steps_in_order, tasks_of
from eqsat.targets.machine import Machine

WINDOW = 192
"""The number of tasks around the peak that are reordered at once."""

WORTHWHILE = 0.99
"""Reordering is repeated as long as it lowers the peak to this part of its previous value or less."""

WIDTHS = (2, 64)
"""The minimum and maximum number of partial orders of one length that are extended."""

FEWEST_BRANCHES = 4
"""At least this many tasks are tried next, those that take least memory first, whatever the effort allows."""

EFFORT = 20_000
"""The approximate number of extensions that are examined in a window."""

MOST_ORDERS = 1_000
"""The number of orders in the cache; the least recently used are dropped."""

_ORDERS: dict[Hashable, list[int]] = {}
"""The cache of orders by the content of their tasks, most recently used last."""


def in_lean_order(schedule: Schedule, machine: Machine) -> Schedule:
    """The schedule with the steps of all blocks in the best order found; itself if the peak is no lower."""
    results = frozenset(output.term.number for output in schedule.program.outputs)
    block = _Sorter(machine, schedule.chunks).block(schedule.block, {}, results)
    if block is schedule.block:
        return schedule
    # Orders are compared without placing temporaries in buffers of results, so compare the real peaks.
    found = replace(schedule, block=block)
    return min(schedule, found, key=lambda either: predicted_peak(either, machine))


class _Sorter:
    """Orders the blocks of one program; a block inside another is reordered only if the peak is there."""

    def __init__(self, machine: Machine, chunks: Mapping[int, int]) -> None:
        self.simulator = Simulator(machine, chunks)
        self._sorted: dict[int, tuple[tuple[Block, ...], int]] = {}

    def block(self, block: Block, lengths: Mapping[Axis, int], results: frozenset[int]) -> Block:
        tasks = tasks_of(block, self.simulator, lengths, results)
        steps = list(block.steps)
        order = lean_order(tasks)
        improved = False
        while tasks.extra:
            profile = tasks.profile(order)
            task = order[profile.index(max(profile))]
            first = steps[tasks.steps[task][0]]
            if not inner_blocks(first):
                break
            inside, peak = self.inside(first, lengths)
            if peak >= tasks.extra[task]:
                break
            tasks.extra[task] = peak
            improved = True
            for index in tasks.steps[task]:
                steps[index] = _with_inside(steps[index], inside)
        if improved:
            block = replace(block, steps=tuple(steps))
            order = lean_order(tasks)
        if order == list(range(len(order))):
            return block
        return replace(block, steps=tuple(steps_in_order(block, tasks, order)))

    def inside(self, step: Compute | Loop, lengths: Mapping[Axis, int]) -> tuple[tuple[Block, ...], int]:
        """The blocks inside a step, reordered, and the largest of their peaks in bytes."""
        blocks = inner_blocks(step)
        if isinstance(step, Loop):
            lengths = {**lengths, step.axis: self.simulator.chunks[step.id]}
        if id(blocks[0]) not in self._sorted:
            found = tuple(self.block(block, lengths, frozenset()) for block in blocks)
            peak = max(self.simulator.peak(block, lengths) for block in found)
            self._sorted[id(blocks[0])] = (found, peak)
        return self._sorted[id(blocks[0])]


def _with_inside(step: Compute | Loop, blocks: tuple[Block, ...]) -> Compute | Loop:
    return replace(step, body=blocks[0]) if isinstance(step, Loop) else replace(step, bodies=blocks)


def lean_order(tasks: Tasks) -> list[int]:
    """The order of the tasks with the lowest peak found; the order of their numbers if no peak is lower.

    Orders are cached, since many candidates share blocks, and many blocks have the same tasks.
    """
    content = tasks.content()
    order = _ORDERS.pop(content, None)
    if order is None:
        order = _lean_order(tasks)
        while len(_ORDERS) >= MOST_ORDERS:
            del _ORDERS[next(iter(_ORDERS))]
    _ORDERS[content] = order
    return list(order)


def _lean_order(tasks: Tasks) -> list[int]:
    bound = tasks.bound()
    best = list(range(len(tasks.makes)))
    peak = tasks.peak(best)
    for seed in (_depth_first, _list_order):
        if peak <= bound:
            return best
        order = seed(tasks)
        if (other := tasks.peak(order)) < peak:
            best, peak = order, other
    while peak > bound:
        profile = tasks.profile(best)
        at = profile.index(peak)
        start = max(0, min(at - WINDOW // 2, len(best) - WINDOW))
        window = _Window(tasks, best, start, min(start + WINDOW, len(best)))
        found = window.search(peak, bound)
        if found is None:
            break
        best[start : start + len(found)] = found
        before, peak = peak, tasks.peak(best)
        if len(found) == len(best) or peak > WORTHWHILE * before:
            break
    return best


def _depth_first(tasks: Tasks) -> list[int]:
    """The depth-first order: operands first that need most memory to compute and leave least behind.

    For trees, it is the best order that completes every subtree before the next (Sethi and Ullman).
    """
    count = len(tasks.makes)
    needs = [sorted(tasks.needs(task)) for task in range(count)]
    left = [sum(tasks.size[value] for value in tasks.makes[task]) for task in range(count)]
    peak = [0] * count
    for task in range(count):
        needs[task].sort(key=lambda other: left[other] - peak[other])
        held = 0
        for other in needs[task]:
            peak[task] = max(peak[task], held + peak[other])
            held += left[other]
        peak[task] = max(peak[task], held + left[task] + tasks.extra[task])
    last = [task for task in range(count) if not any(tasks.readers[value] for value in tasks.makes[task])]
    last.sort(key=lambda task: left[task] - peak[task])
    order: list[int] = []
    done = [False] * count
    stack = [(task, False) for task in reversed(last)]
    while stack:
        task, leaving = stack.pop()
        if done[task]:
            continue
        if leaving:
            done[task] = True
            order.append(task)
            continue
        stack.append((task, True))
        stack.extend((other, False) for other in reversed(needs[task]) if not done[other])
    return order


def _list_order(tasks: Tasks) -> list[int]:
    """The greedy order: the next task is always the one that is ready and adds least to the memory in use."""
    waiting = [len(tasks.needs(task)) for task in range(len(tasks.makes))]
    left = [len(readers) for readers in tasks.readers]

    def added(task: int) -> int:
        freed = sum(
            tasks.size[value] for value in tasks.reads[task] if left[value] == 1 and not tasks.kept[value]
        )
        return sum(tasks.size[value] for value in tasks.makes[task]) - freed

    ready = [(added(task), task) for task, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    done: set[int] = set()
    while ready:
        cost, task = heapq.heappop(ready)
        if task in done:
            continue
        if (now := added(task)) < cost:
            heapq.heappush(ready, (now, task))
            continue
        done.add(task)
        order.append(task)
        for value in tasks.reads[task]:
            left[value] -= 1
            if left[value] == 1:
                # Its last reader frees it, so that reader has become cheaper.
                for other in tasks.readers[value]:
                    if other not in done and not waiting[other]:
                        heapq.heappush(ready, (added(other), other))
        for reader in {reader for value in tasks.makes[task] for reader in tasks.readers[value]}:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (added(reader), reader))
    return order


@dataclass(slots=True)
class _State:
    """A partial order. It is never modified, but a frozen dataclass would take three times as long to make.

    **Attributes:**

    - `done`, `ready`: the tasks done, and those that can be done next, as bits.
    - `alive`: bytes in use now, which depend only on the set of tasks done.
    - `peak`: the peak so far, in bytes.
    - `last`, `before`: the task done last, and the state before it.
    """

    done: int
    ready: int
    alive: int
    peak: int
    last: int = -1
    before: _State | None = None

    def order(self) -> list[int]:
        found = []
        state: _State | None = self
        while state is not None and state.before is not None:
            found.append(state.last)
            state = state.before
        return found[::-1]


class _Window:
    """A contiguous range of the tasks in an order, to be reordered."""

    def __init__(self, tasks: Tasks, order: Sequence[int], start: int, stop: int) -> None:
        self.tasks = list(order[start:stop])
        local = {task: number for number, task in enumerate(self.tasks)}
        earlier = set(order[:start])
        self.count = len(self.tasks)
        self.adds = [sum(tasks.size[v] for v in tasks.makes[task]) for task in self.tasks]
        self.extra = [tasks.extra[task] for task in self.tasks]
        self.needs = [0] * self.count
        # For each task, the values that it may free: their bytes, and their readers in the window.
        self.frees: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        # The same for the values that its own result may overwrite.
        self.over: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        # The tasks that share operands with it: once it is done, they may be the last readers.
        self.beside = [0] * self.count
        self.alive = self._alive(tasks, order[:start])
        self.looked = 0
        self.branches = max(FEWEST_BRANCHES, EFFORT // (8 * self.count))
        seen: set[int] = set()
        for number, task in enumerate(self.tasks):
            for other in tasks.needs(task):
                if other in local:
                    self.needs[number] |= 1 << local[other]
            for value in (*tasks.reads[task], *tasks.makes[task]):
                if value in seen or tasks.kept[value] or not tasks.size[value]:
                    continue
                seen.add(value)
                readers = [reader for reader in tasks.readers[value] if reader not in earlier]
                if all(reader in local for reader in readers):
                    here = [local[reader] for reader in readers] or [local[tasks.maker[value]]]
                    mask = sum(1 << reader for reader in here)
                    for reader in here:
                        self.frees[reader].append((tasks.size[value], mask))
                        self.beside[reader] |= mask
                        if value in tasks.over[self.tasks[reader]]:
                            self.over[reader].append((tasks.size[value], mask))
        # For each task, the tasks that need it, as bits, each with all tasks that it needs.
        self.after: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        for number, needs in enumerate(self.needs):
            for other in bits(needs):
                self.after[other].append((1 << number, needs))
        # The tasks that may free as much as they add, as bits; no other task can be free of cost.
        self.frugal = sum(
            1 << number
            for number, adds in enumerate(self.adds)
            if adds <= sum(size for size, _ in self.frees[number])
        )

    @staticmethod
    def _alive(tasks: Tasks, before: Sequence[int]) -> int:
        """The bytes in use when the tasks `before` are done."""
        if not before:
            return 0
        left = [len(readers) for readers in tasks.readers]
        alive = 0
        for task in before:
            for value in tasks.reads[task]:
                left[value] -= 1
        for task in before:
            alive += sum(tasks.size[v] for v in tasks.makes[task] if left[v] or tasks.kept[v])
        return alive

    def search(self, limit: int, bound: int) -> list[int] | None:
        """The best order found with a peak below `limit`; None if there is none.

        **Arguments:**

        - `bound`: a lower bound on the peak; peaks up to it count as equal.
        """
        everything = (1 << self.count) - 1
        ready = sum(1 << number for number, needs in enumerate(self.needs) if not needs)
        layers: list[dict[int, _State]] = [{} for _ in range(self.count + 1)]
        self._enter(layers, _State(0, ready, self.alive, 0), ready, bound)
        for number, layer in enumerate(layers[:-1]):
            states = sorted(layer.values(), key=lambda state: (max(state.peak, bound), state.alive))
            layer.clear()
            share = (EFFORT - self.looked) // (self.count - number)
            enough = self.looked + share
            for position, state in enumerate(states[: WIDTHS[1]]):
                if position >= WIDTHS[0] and self.looked > enough:
                    break
                next_ones = []
                for task in bits(state.ready):
                    peak, alive = self._memory(state, task)
                    if peak < limit:
                        next_ones.append((peak, alive, task))
                if len(next_ones) > self.branches:
                    next_ones.sort(key=lambda memory: (max(memory[0], bound), memory[1]))
                for peak, alive, task in next_ones[: self.branches]:
                    after = self._done(state, task, peak, alive)
                    again = self.beside[task] | after.ready & ~state.ready
                    if peak > max(state.peak, bound):
                        again = everything
                    self._enter(layers, after, again, bound)
        if not layers[-1]:
            return None
        (found,) = layers[-1].values()
        return [self.tasks[number] for number in found.order()]

    def _enter(self, layers: list[dict[int, _State]], state: _State, changed: int, bound: int) -> None:
        """Do all tasks that cost nothing, then add the state to its layer unless one as good is there.

        **Arguments:**

        - `changed`: the tasks that may now cost nothing, as bits.
        """
        while looking := changed & state.ready:
            frugal = looking & self.frugal
            if not frugal:
                self.looked += looking.bit_count()
                break
            bit = frugal & -frugal
            task = bit.bit_length() - 1
            # The tasks before it are examined too, and count towards the effort.
            passed = looking & (bit - 1)
            self.looked += passed.bit_count()
            changed &= ~(passed | bit)
            peak, alive = self._memory(state, task)
            if alive <= state.alive and peak <= max(state.peak, bound):
                after = self._done(state, task, peak, alive)
                changed |= self.beside[task] | after.ready & ~state.ready
                state = after
        layer = layers[state.done.bit_count()]
        known = layer.get(state.done)
        if known is None or state.peak < known.peak:
            layer[state.done] = state

    def _memory(self, state: _State, task: int) -> tuple[int, int]:
        """The peak and the bytes in use after one more task."""
        self.looked += 1
        left = ~(state.done | 1 << task)
        taken = state.alive + self.adds[task]
        most = taken + self.extra[task]
        if self.over[task]:
            most -= max((size for size, readers in self.over[task] if not readers & left), default=0)
        for size, readers in self.frees[task]:
            if not readers & left:
                taken -= size
        return (most if most > state.peak else state.peak), taken

    def _done(self, state: _State, task: int, peak: int, alive: int) -> _State:
        """The state after one more task, with the given peak and bytes in use."""
        done = state.done | 1 << task
        ready = state.ready & ~(1 << task)
        left = ~done
        for bit, needs in self.after[task]:
            if not needs & left:
                ready |= bit
        return _State(done, ready, alive, peak, task, state)
