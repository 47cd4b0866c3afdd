"""Represents a block as tasks that make and read buffers, to be ordered.

A value that is not stored is no task of its own. It is computed where it is used, so its consumers read its
operands.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.engine.storage_model import StorageModel
from eqsat.ir.axis import Axis
from eqsat.planning.blocks import Block, Compute, Loop, dependencies, work_of
from eqsat.planning.liveness import Simulator
from eqsat.planning.storage import overwritten_on, storage


@dataclass(slots=True)
class Tasks:
    """Tasks, each of which makes and reads values that take memory.

    **Attributes:**

    - `makes`, `reads`: for each task, the values that it makes and reads. The numbers of tasks are a valid
      order.
    - `extra`: for each task, the further bytes that it takes while it runs.
    - `size`, `kept`: for each value, its bytes, and whether it is a result of the block.
    - `maker`, `readers`: for each value, the tasks that make and read it.
    - `steps`: for each task, the steps of the block that it stands for.
    - `over`: for each task, the values of the same size as its own that it reads. Its own may overwrite one
      of them if no later task reads it.
    """

    makes: list[list[int]] = field(default_factory=list)
    reads: list[list[int]] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    maker: list[int] = field(default_factory=list)
    readers: list[list[int]] = field(default_factory=list)
    steps: list[list[int]] = field(default_factory=list)
    over: list[list[int]] = field(default_factory=list)

    def task(self, reads: Iterable[int] = (), extra: int = 0) -> int:
        """Add a task and return its number."""
        number = len(self.makes)
        self.over.append([])
        self.makes.append([])
        self.reads.append(list(reads))
        self.extra.append(extra)
        self.steps.append([])
        for value in self.reads[number]:
            self.readers[value].append(number)
        return number

    def value(self, maker: int, size: int, kept: bool = False) -> int:
        """Add a value that a task makes and return its number."""
        number = len(self.size)
        self.size.append(size)
        self.kept.append(kept)
        self.maker.append(maker)
        self.readers.append([])
        self.makes[maker].append(number)
        return number

    def content(self) -> Hashable:
        """A key for the tasks, apart from the steps that they stand for."""
        values = [tuple(tuple(of_task) for of_task in all_) for all_ in (self.makes, self.reads, self.over)]
        return *values, tuple(self.extra), tuple(self.size), tuple(self.kept)

    def needs(self, task: int) -> set[int]:
        """The tasks whose values a task reads."""
        return {self.maker[value] for value in self.reads[task]}

    def profile(self, order: Sequence[int]) -> list[int]:
        """The bytes in use while each task runs, in the given order."""
        left = [len(readers) for readers in self.readers]
        alive, found = 0, []
        for task in order:
            alive += sum(self.size[value] for value in self.makes[task])
            spared = max((self.size[value] for value in self.over[task] if left[value] == 1), default=0)
            found.append(alive + self.extra[task] - spared)
            for value in self.reads[task]:
                left[value] -= 1
            for value in (*self.reads[task], *self.makes[task]):
                if not left[value] and not self.kept[value]:
                    alive -= self.size[value]
        return found

    def peak(self, order: Sequence[int]) -> int:
        return max(self.profile(order), default=0)

    def bound(self) -> int:
        """A lower bound on the peak of any order: the largest need of a single task, or all results."""
        own = [
            sum(self.size[value] for value in (*self.reads[task], *self.makes[task]))
            + self.extra[task]
            - max((self.size[value] for value in self.over[task]), default=0)
            for task in range(len(self.makes))
        ]
        kept = sum(size for size, kept in zip(self.size, self.kept, strict=True) if kept)
        return max([kept, *own])


def tasks_of(
    block: Block, simulator: Simulator, lengths: Mapping[Axis, int], results: frozenset[int]
) -> Tasks:
    """The tasks of a block: the steps that store values, with the values they read through fused terms.

    The set of values that a fused term reads is kept as the bits of an integer.
    """
    model = StorageModel(simulator.machine, lengths)
    stores = storage(block, model)
    sizes = {span.term.number: span.bytes(model) for span in stores.spans}
    places = overwritten_on(block, stores.stored, simulator.machine)
    needs = {term.number for term in block.needs}
    tasks = Tasks()
    value_of: dict[int, int] = {}
    fused: dict[int, int] = {}
    task_of: dict[object, int] = {}
    for index, step in enumerate(block.steps):
        read = 0
        for term in dependencies(step):
            value = value_of.get(term.number)
            read |= fused.get(term.number, 0) if value is None else 1 << value
        if isinstance(step, Compute) and step.term.number not in sizes:
            fused[step.term.number] = read
            continue
        key: object = ("loop", index) if isinstance(step, Loop) else work_of(step.term)
        if key not in task_of:
            extra = 0
            if isinstance(step, Loop):
                inner = {**lengths, step.axis: simulator.chunks[step.id]}
                extra = simulator.peak(step.body, inner)
            elif step.bodies:
                extra = max(simulator.peak(body, lengths) for body in step.bodies)
            task_of[key] = tasks.task(bits(read), extra)
        task = task_of[key]
        tasks.steps[task].append(index)
        tasks.over[task] += [value_of[term.number] for term in places.get(step.results[0].number, ())]
        for result in step.results:
            if result.number in sizes:
                size = 0 if result.number in results else sizes[result.number]
                value_of[result.number] = tasks.value(task, size, result.number in needs)
    return tasks


def steps_in_order(block: Block, tasks: Tasks, order: Sequence[int]) -> Iterator[Compute | Loop]:
    """The block's steps with its tasks in the given order; fused terms come just before their first use."""
    maker = {result.number: index for index, step in enumerate(block.steps) for result in step.results}
    done: set[int] = set()
    wanted = [index for task in order for index in tasks.steps[task]]
    for root in (*wanted, *range(len(block.steps))):
        stack = [(root, False)]
        while stack:
            index, leaving = stack.pop()
            if index in done:
                continue
            if leaving:
                done.add(index)
                yield block.steps[index]
                continue
            stack.append((index, True))
            below = [maker[term.number] for term in dependencies(block.steps[index]) if term.number in maker]
            stack.extend((other, False) for other in reversed(below) if other not in done)


def bits(number: int) -> Iterator[int]:
    """The positions of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
