"""Predicts peak memory, by simulation, and time.

`storage` decides what a block stores, and from which step to which; this module adds the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan, iterations
from eqsat.ir.memory_order import Order, array_of, memory_order
from eqsat.ir.ops import Dot, Opaque, Operation
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, Schedule, work_of
from eqsat.planning.horizontal_fusion import fused_products
from eqsat.planning.library_scratch import library_scratch
from eqsat.planning.memo import Remembered
from eqsat.planning.output_reuse import Temporary, hosted
from eqsat.planning.relayout import apart, relayouts
from eqsat.planning.storage import is_given, storage, stored_terms
from eqsat.targets.machine import Machine


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory use over the steps of a block.

    **Attributes:**

    - `peak`: the most bytes in use at one time: temporaries, results, copies, and panels that products pack.
    - `step`: the step at the peak.
    - `timeline`: the bytes in use during each step.
    - `buffers`: the stored terms, with their bytes, and the first and last steps of their lives.
    - `hosted`: the same of stored terms that are placed in the buffers of results.
    - `inside`: the usage of the block inside that step, if there is one.
    """

    peak: int
    step: int
    timeline: tuple[int, ...]
    buffers: tuple[tuple[Term, int, int, int], ...]
    hosted: tuple[tuple[Term, int, int, int], ...]
    inside: Usage | None

    @property
    def live(self) -> tuple[tuple[Term, int], ...]:
        """The stored terms alive at the peak with their bytes, largest first; without those hosted."""
        return self._alive(hosted=False)

    @property
    def live_or_hosted(self) -> tuple[tuple[Term, int], ...]:
        """The stored terms alive at the peak with their bytes, largest first."""
        return self._alive(hosted=True)

    def _alive(self, hosted: bool) -> tuple[tuple[Term, int], ...]:
        found = {
            term.number: (term, size)
            for term, size, birth, death in (*self.buffers, *(self.hosted if hosted else ()))
            if birth <= self.step <= death
        }
        if self.inside is not None:
            found.update({term.number: (term, size) for term, size in self.inside._alive(hosted)})
        return tuple(sorted(found.values(), key=lambda item: -item[1]))


Path = tuple[int, ...]
"""Identifies a buffer: the steps of the loops around it, outermost first, then the number of its term."""

NOTHING: frozenset[Path] = frozenset()

_PEAKS: Remembered[int] = Remembered()
_SECONDS: Remembered[float] = Remembered()


class Simulator:
    """Simulates the memory use of a schedule on a machine."""

    def __init__(self, machine: Machine, chunks: Mapping[int, int]) -> None:
        self.machine = machine
        self.chunks = chunks

    def block(
        self,
        block: Block,
        lengths: Mapping[Axis, int],
        from_start: frozenset[int] = frozenset(),
        in_loop: bool = False,
        elsewhere: frozenset[Path] = NOTHING,
    ) -> Usage:
        """The usage of one run of a block.

        **Arguments:**

        - `lengths`: the chunk lengths of the loops around the block.
        - `from_start`: terms whose buffers exist all the time, as those of a program's results do.
        - `in_loop`: whether the block is the body of a loop over chunks, before which copies may be made.
        - `elsewhere`: buffers that take no memory of their own.
        """
        model = CostModel(self.machine, lengths)
        if from_start:
            elsewhere = self._hosted(block, lengths, from_start)
        timeline = self._timeline(block, lengths, model, from_start, in_loop, elsewhere)
        spans = tuple(_spans(block, model, from_start, elsewhere))
        every = _spans(block, model, from_start, NOTHING) if elsewhere else ()
        placed = tuple(span for span in every if (span[0].number,) in elsewhere)
        peak = max(timeline, default=0)
        if not peak:
            return Usage(0, 0, timeline, spans, placed, None)
        index = timeline.index(peak)
        step = block.steps[index]
        inside: Usage | None = None
        if isinstance(step, Loop):
            inner = _inside(index, elsewhere)
            inside = self.block(step.body, self._within(step, lengths), in_loop=True, elsewhere=inner)
        elif step.bodies and index in _entering(block):
            inside = self.bodies(step, lengths)
        return Usage(peak, index, timeline, spans, placed, inside)

    def bodies(self, step: Compute, lengths: Mapping[Axis, int]) -> Usage:
        """The usage of a call's bodies, of which one runs at a time."""
        largest = max(step.bodies, key=lambda body: self.peak(body, lengths))
        return self.block(largest, lengths)

    def peak(
        self,
        block: Block,
        lengths: Mapping[Axis, int],
        from_start: frozenset[int] = frozenset(),
        in_loop: bool = False,
        elsewhere: frozenset[Path] = NOTHING,
    ) -> int:
        """The peak of one run of a block; arguments as for `block`."""
        model = CostModel(self.machine, lengths)

        def find() -> int:
            paths = self._hosted(block, lengths, from_start) if from_start else elsewhere
            return max(self._timeline(block, lengths, model, from_start, in_loop, paths), default=0)

        return _PEAKS.recall(block, model, self.chunks, find, (from_start, in_loop, elsewhere))

    def _hosted(self, block: Block, lengths: Mapping[Axis, int], results: frozenset[int]) -> frozenset[Path]:
        """The buffers of a program's outermost block and its loops that are placed in buffers of results."""
        model = CostModel(self.machine, lengths)
        written = [
            (span.bytes(model), (span.birth,))
            for span in storage(block, model).spans
            if span.term.number in results
        ]
        return hosted(written, self._temporaries(block, lengths, results)) if written else NOTHING

    def _temporaries(
        self,
        block: Block,
        lengths: Mapping[Axis, int],
        results: frozenset[int],
        path: Path = (),
    ) -> Iterator[tuple[Path, Temporary]]:
        """The buffers of a block and of its loops; `path` holds the steps that lead to the block."""
        model = CostModel(self.machine, lengths)
        for span in storage(block, model).spans:
            if span.term.number not in results:
                lasting = Temporary(span.bytes(model), (*path, span.birth), (*path, span.death, math.inf))
                yield (*path, span.term.number), lasting
        for index, step in enumerate(block.steps):
            if isinstance(step, Loop):
                within = self._within(step, lengths)
                yield from self._temporaries(step.body, within, results, (*path, index))

    def buffers(self, block: Block, results: frozenset[int]) -> Iterator[Temporary]:
        """The buffers and workspaces of a program's outermost block and its loops, results excepted."""
        elsewhere = self._hosted(block, {}, results)
        for path, temporary in self._temporaries(block, {}, results):
            if path not in elsewhere:
                yield temporary
        yield from self._workspaces(block, {})

    def _workspaces(
        self, block: Block, lengths: Mapping[Axis, int], path: tuple[int, ...] = ()
    ) -> Iterator[Temporary]:
        """What the ops of a block and of its loops take while they run."""
        model = CostModel(self.machine, lengths)
        routines = routine_buffers(block, model)
        for index, step in enumerate(block.steps):
            here = (*path, index)
            if isinstance(step, Loop):
                yield from self._workspaces(step.body, self._within(step, lengths), here)
                continue
            size = model.workspace(step.term.op, step.term.args, orders(step.term))
            if size := size + routines.get(index, 0):
                yield Temporary(size, here, (*here, math.inf))

    def _within(self, loop: Loop, lengths: Mapping[Axis, int]) -> dict[Axis, int]:
        """The chunk lengths of the loops around a loop's body."""
        return {**lengths, loop.axis: self.chunks[loop.id]}

    def _timeline(
        self,
        block: Block,
        lengths: Mapping[Axis, int],
        model: CostModel,
        from_start: frozenset[int],
        in_loop: bool,
        elsewhere: frozenset[Path],
    ) -> tuple[int, ...]:
        """The bytes in use during each step of a block."""
        change = [0] * (len(block.steps) + 2)
        fast = self.machine.fast_memory
        kept = [0] * (len(block.steps) + 2)
        for term, size, birth, death in _spans(block, model, from_start, elsewhere):
            change[birth] += size
            change[death + 1] -= size
            # Calls, such as sorts, read and write the device's memory.
            called = isinstance(term.op, (Opaque, Operation))
            if size <= fast and term.number not in from_start and not called:
                kept[birth] += size
                kept[death + 1] -= size
        timeline: list[int] = []
        entering = _entering(block)
        copies, routines = relayouts(block, model), routine_buffers(block, model)
        together = fused_products(block, model)
        held = [*(relayout.held for relayout in copies.values()), *(group.held for group in together)]
        alive = sum(held) if in_loop else 0
        first = {group.products[0].number: group for group in together}
        last = {group.products[-1].number: group for group in together}
        small = 0
        for index, step in enumerate(block.steps):
            alive += change[index]
            small += kept[index]
            during = alive - min(small, fast)
            if isinstance(step, Loop):
                inner = _inside(index, elsewhere)
                during += self.peak(step.body, self._within(step, lengths), in_loop=True, elsewhere=inner)
            else:
                if index in entering:
                    during += max(self.peak(body, lengths) for body in step.bodies)
                during += model.workspace(step.term.op, step.term.args, orders(step.term))
                during += routines.get(index, 0)
                number = step.term.number
                for copied in (copies.get(number), first.get(number)):
                    if copied is not None:
                        during += copied.bytes + (0 if in_loop else copied.held)
                if number in first:
                    alive += first[number].result_bytes
                    during += first[number].result_bytes
                if number in last:
                    alive -= last[number].result_bytes
            timeline.append(during)
        return tuple(timeline)


def _spans(
    block: Block, model: CostModel, from_start: frozenset[int], elsewhere: frozenset[Path]
) -> Iterator[tuple[Term, int, int, int]]:
    """The stored terms of a block, with their bytes, and the first and last steps of their lives."""
    end = len(block.steps)
    for span in storage(block, model).spans:
        birth, death = (0, end) if span.term.number in from_start else (span.birth, span.death)
        if (span.term.number,) not in elsewhere:
            yield span.term, span.bytes(model), birth, death


def routine_buffers(block: Block, model: CostModel) -> dict[int, int]:
    """By step, the bytes of copies that libraries overwrite, and of their results that nothing reads."""
    found: dict[int, int] = {}
    read: dict[Hashable, set[int]] = {}
    called = [
        (index, step.term)
        for index, step in enumerate(block.steps)
        if isinstance(step, Compute) and isinstance(step.term.op, (Opaque, Operation))
    ]
    for _, term in called:
        if isinstance(term.op, Opaque):
            read.setdefault(work_of(term), set()).add(term.op.result)
    last = {span.term.number: span.death for span in storage(block, model).spans} if called else {}
    for index, term in called:
        if not term.args:
            continue
        operand = array_of(term.args[0])
        size = 0
        if is_given(operand) or last.get(operand.number, index) > index:
            size += model.copied(term.op, term.args)
        # All results of a call are made at once.
        if (work := work_of(term)) in read:
            size += model.unread(term.op, term.args, read.pop(work))
        if size:
            found[index] = size
    return found


def orders(term: Term) -> tuple[Order | None, ...]:
    """The orders of the axes of operands of products and scans, as they lie, where they are given."""
    scans = isinstance(term.op, Opaque) and isinstance(term.op.call.control, Scan)
    return tuple(map(memory_order, term.args)) if scans or isinstance(term.op, Dot) else ()


def _inside(index: int, paths: frozenset[Path]) -> frozenset[Path]:
    """The paths through a step, as seen from the block inside it."""
    return frozenset(path[1:] for path in paths if len(path) > 1 and path[0] == index) if paths else NOTHING


def _entering(block: Block) -> frozenset[int]:
    """The steps at which the bodies of calls run: the first step of each call's results."""
    entered: dict[Hashable, int] = {}
    for index, step in enumerate(block.steps):
        if isinstance(step, Compute) and step.bodies:
            entered.setdefault(work_of(step.term), index)
    return frozenset(entered.values())


def simulate(schedule: Schedule, machine: Machine) -> tuple[int, Usage]:
    """The predicted peak of a schedule, in bytes, and the usage of its outermost block.

    The peak counts arguments, outputs and temporaries, as the certificate does.
    """
    results = frozenset(output.term.number for output in schedule.program.outputs)
    usage = Simulator(machine, schedule.chunks).block(schedule.block, {}, results)
    return _counted(schedule, usage.peak, machine), usage


def predicted_peak(schedule: Schedule, machine: Machine) -> int:
    """The same peak without the usage, which is faster to compute."""
    results = frozenset(output.term.number for output in schedule.program.outputs)
    return _counted(schedule, Simulator(machine, schedule.chunks).peak(schedule.block, {}, results), machine)


def _counted(schedule: Schedule, peak: int, machine: Machine) -> int:
    """The peak of a program, from the peak of its outermost block."""
    # An output has a buffer of its own, even if it repeats, broadcasts or returns an existing value.
    outputs = [out.term for out in schedule.program.outputs if not is_given(out.term)]
    beside = schedule.program.fixed_bytes + library_scratch(schedule.block, machine)
    return beside + peak - sum({term.number: term.bytes for term in outputs}.values())


def largest_stored(schedule: Schedule, machine: Machine) -> int:
    """Bytes of the largest value that a schedule stores, apart from its results."""
    return max((size for _, size in stored_values(schedule, machine)), default=0)


def stored_values(schedule: Schedule, machine: Machine) -> Iterator[tuple[Term, int]]:
    """The values that a schedule stores, apart from its results, and their bytes."""
    results = {output.term.number for output in schedule.program.outputs}

    def within(block: Block, lengths: Mapping[Axis, int]) -> Iterator[tuple[Term, int]]:
        model = CostModel(machine, lengths)
        stored = stored_terms(block, model) - results
        for body in block.bodies:
            yield from within(body, lengths)
        for step in block.steps:
            yield from ((one, model.bytes(one)) for one in step.results if one.number in stored)
            if isinstance(step, Loop):
                yield from within(step.body, {**lengths, step.axis: schedule.chunks[step.id]})

    return within(schedule.block, {})


def iterations_of(term: Term) -> int:
    """The number of times that the bodies of a call run."""
    assert isinstance(term.op, Opaque)
    assert term.op.call.control is not None
    return iterations(term.op.call.control)


def predicted_seconds(block: Block, model: CostModel, chunks: Mapping[int, int], times: int = 1) -> float:
    """The predicted time of a block in seconds, loops included.

    **Arguments:**

    - `times`: the number of runs of the block. All of its steps run that often, loop-invariant or not.
    """

    return times * _SECONDS.recall(block, model, chunks, lambda: _seconds(block, model, chunks))


def _seconds(block: Block, model: CostModel, chunks: Mapping[int, int]) -> float:
    """The predicted time of one run of a block in seconds."""

    def run(model: CostModel, term: Term) -> float:
        return model.once(term.op, term, term.args)

    seconds = sum(apart(block, model).values())
    seconds += sum(run(model, step.term) for step in block.steps if isinstance(step, Compute))
    for call in block.calls:
        again = iterations_of(call.term)
        seconds += sum(predicted_seconds(body, model, chunks, again) for body in call.bodies)
    for loop in block.own_loops:
        chunk = chunks[loop.id]
        inner = replace(model, chunks={**model.chunks, loop.axis: chunk})
        iterations = -(-loop.axis.size // chunk)
        seconds += predicted_seconds(loop.body, inner, chunks, iterations)
        seconds += iterations * model.machine.iteration
        seconds += iterations * sum(run(inner, result) for result in loop.results)
    return seconds
