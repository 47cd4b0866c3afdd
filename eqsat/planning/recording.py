"""Makes a plan's records from candidates: loops, memory over time, and the arrays too big as written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.magnitudes import MAGNITUDES
from eqsat.ir.ops import Const, Iota, Leaf, Operation, Rename
from eqsat.ir.term import Term
from eqsat.planning.barriers import Barriers
from eqsat.planning.blocks import Block, Compute, Loop, Schedule, combination, work_of
from eqsat.planning.candidates import Candidate
from eqsat.planning.describing import Describer
from eqsat.planning.graphing import graph_record
from eqsat.planning.liveness import iterations_of, predicted_seconds, simulate
from eqsat.planning.recomputing import Placed, computed_again
from eqsat.planning.relayout import apart
from eqsat.planning.storage import stored_terms
from eqsat.reports.plan import Plan
from eqsat.reports.records import LoopReport, MemoryRecord, StepRecord
from eqsat.support.records import GuardRecord, PeakTensor, Place, TensorRecord
from eqsat.targets.machine import Machine

MOST_STEPS = 300
"""At most this many steps are recorded, merged if there are more: a picture can show no more."""

MOST_AT_PEAK = 3
"""The number of arrays at a peak that a refusal reports."""

BIG_SHARE = 10
"""An array is reported if it takes at least 1/10 of a peak, or of the largest array at the peak."""

MOST_TENSORS = 12
"""The number of arrays, places or calls that each list in a plan keeps."""


def rules_fired(candidate: Candidate) -> dict[str, int]:
    """By rule, the number of ops that it made: in the branch for data that passes, if there are branches."""
    if candidate.branches:
        return rules_fired(candidate.branches[-1])
    return dict(Counter(candidate.makers.values()))


def guard_record(candidate: Candidate) -> GuardRecord | None:
    """The record of a candidate's tests of its data, if it has any."""
    if not candidate.branches:
        return None
    plain = candidate.branches[0]
    return GuardRecord(candidate.tests, plain.predicted_seconds, rules_fired(plain))


def recorded(
    plan: Plan, written: Candidate, chosen: Candidate | None, names: Sequence[str], machine: Machine
) -> Plan:
    """The plan with all records that reports show.

    **Arguments:**

    - `written`: the program as written.
    - `chosen`: the program that the plan is for, if it is a different one.
    - `names`: the names of the inputs.
    """
    before = Recorder(written.schedule, names, machine.unemitted)
    after = before if chosen is None else Recorder(chosen.schedule, names, machine)
    memory, written_peak = before.memory(), plan.original_peak_bytes
    room = plan.budget_bytes - plan.argument_bytes - plan.result_bytes
    planned = written if chosen is None else chosen
    return replace(
        plan,
        predicted_peak_bytes=planned.predicted_peak,
        predicted_seconds=planned.predicted_seconds,
        original_seconds=written.predicted_seconds,
        rules_fired=rules_fired(planned),
        guard=guard_record(planned),
        loops=() if chosen is None else after.loops(),
        before=memory,
        after=memory if chosen is None else after.memory(),
        too_big=before.larger_than(room, written_peak) if written_peak > plan.budget_bytes else (),
        graph=graph_record(after.schedule, after.words, machine),
        left_whole=after.needed_whole(plan.peak_bytes / BIG_SHARE) if plan.changed else (),
    )


def peak_tensors(schedule: Schedule, names: Sequence[str], machine: Machine) -> tuple[PeakTensor, ...]:
    """The largest arrays besides arguments at a schedule's peak, and the barriers to splitting their axes.

    **Arguments:**

    - `names`: the names of the program's inputs.
    """
    recorder = Recorder(schedule, names, machine)
    barriers = Barriers(schedule.program, recorder.words)
    live = recorder.live()[:MOST_AT_PEAK]
    return tuple(
        PeakTensor(tensor, tuple(barriers.of(term, axis) for axis in sorted(term.axes)))
        for term, tensor in live
        if tensor.bytes * BIG_SHARE >= live[0][1].bytes
    )


class Recorder:
    """Makes the records of one schedule.

    **Attributes:**

    - `loops_in_order`: the loops, each followed by those inside it, with the block that each is in.
    - `blocks`: all blocks, in the order in which they run.
    """

    def __init__(self, schedule: Schedule, names: Sequence[str], machine: Machine) -> None:
        self.schedule = schedule
        self.machine = machine
        self.words = Describer(schedule.program, names)
        self.loops_in_order: list[tuple[Loop, Placed]] = []
        self.blocks = list(self._placed(Placed(schedule.block, (), {}, 1)))
        self._again = computed_again(self.blocks, machine)

    def _placed(self, placed: Placed) -> Iterator[Placed]:
        """A block and all blocks inside it; the bodies of a call come once for all of its results."""
        yield placed
        entered: set[Hashable] = set()
        for step in placed.block.steps:
            if isinstance(step, Loop):
                chunk = self.schedule.chunks[step.id]
                loops = (*placed.loops, len(self.loops_in_order))
                self.loops_in_order.append((step, placed))
                iterations = placed.times * -(-step.axis.size // chunk)
                lengths = {**placed.lengths, step.axis: chunk}
                yield from self._placed(Placed(step.body, loops, lengths, iterations))
            elif step.bodies and work_of(step.term) not in entered:
                entered.add(work_of(step.term))
                iterations = placed.times * iterations_of(step.term)
                for body in step.bodies:
                    yield from self._placed(replace(placed, block=body, times=iterations))

    def loops(self) -> tuple[LoopReport, ...]:
        """The reports of the loops, outer before inner."""
        return tuple(
            self._loop(loop, placed, self._again.get(position, []))
            for position, (loop, placed) in enumerate(self.loops_in_order)
        )

    def _loop(self, loop: Loop, placed: Placed, again: Sequence[tuple[Term, float]]) -> LoopReport:
        chunk = self.schedule.chunks[loop.id]
        lengths = {**placed.lengths, loop.axis: chunk}
        made = self._stored(loop.body, lengths)
        places: dict[str, Place] = {}
        for tensor in made:
            if tensor.place:
                places.setdefault(tensor.place.short, tensor.place)
        model = CostModel(self.machine, placed.lengths)
        alone = Block((loop,), ())
        return LoopReport(
            loop.axis.name,
            loop.axis.size,
            chunk,
            -(-loop.axis.size // chunk),
            tuple(dict.fromkeys(map(combination, loop.results))),
            self.words.label(loop.axis),
            placed.loops[-1] if placed.loops else -1,
            made[:MOST_TENSORS],
            tuple(places.values())[:MOST_TENSORS],
            predicted_seconds(alone, model, self.schedule.chunks, placed.times),
            tuple(self.words.tensor(term, self.machine, lengths) for term, _ in again)[:MOST_TENSORS],
            sum((seconds for _, seconds in again), 0.0),
        )

    def _stored(self, block: Block, lengths: Mapping[Axis, int]) -> tuple[TensorRecord, ...]:
        """The arrays that one run of a block stores, inner loops' results included, largest first."""
        stored = stored_terms(block, CostModel(self.machine, lengths))
        terms = [result for step in block.steps for result in step.results]
        found = [self.words.tensor(t, self.machine, lengths) for t in terms if t.number in stored]
        return tuple(sorted(found, key=lambda tensor: -tensor.bytes))

    def memory(self) -> MemoryRecord:
        """Memory over time, by simulation."""
        peak, usage = simulate(self.schedule, self.machine)
        held = peak - usage.peak
        steps = list(self._steps(usage.timeline, held))
        arguments = [self.words.tensor(term, self.machine, {}) for term in self.schedule.program.inputs]
        live = [*(tensor for _, tensor in self.live()), *arguments]
        live.sort(key=lambda tensor: -tensor.bytes)
        return MemoryRecord(tuple(merged(steps)), peak, held, tuple(live[:MOST_TENSORS]))

    def live(self) -> list[tuple[Term, TensorRecord]]:
        """The arrays alive at the simulated peak besides arguments, largest first."""
        _, usage = simulate(self.schedule, self.machine)
        lengths = self._lengths_at(usage.step)
        return [(term, self.words.tensor(term, self.machine, lengths, size)) for term, size in usage.live]

    def _steps(self, timeline: Sequence[int], held: int) -> Iterator[StepRecord]:
        model = CostModel(self.machine, {})
        positions = {loop.id: number for number, (loop, _) in enumerate(self.loops_in_order)}
        longer = apart(self.schedule.block, model)
        entered: set[Hashable] = set()
        for step, size in zip(self.schedule.block.steps, timeline, strict=True):
            alone = step
            if isinstance(step, Compute):
                if isinstance(step.term.op, (Leaf, Const, Iota, Rename)):
                    continue
                if work_of(step.term) in entered:  # the call has run, for another of its results
                    alone = Compute(step.term)
                entered.add(work_of(step.term))
            seconds = predicted_seconds(Block((alone,), ()), model, self.schedule.chunks)
            seconds += longer.get(step.results[0].number, 0.0)
            place = self.words.place(step.results[0])
            if isinstance(step, Loop):
                chunk = self.schedule.chunks[step.id]
                iterations = -(-step.axis.size // chunk)
                label = f"loop over {self.words.label(step.axis)}: {iterations} chunks of {chunk}"
                yield StepRecord(label, seconds, held + size, positions[step.id], place)
            else:
                yield StepRecord(self.words.op(step.term), seconds, held + size, -1, place)

    def _lengths_at(self, position: int) -> dict[Axis, int]:
        """The chunk lengths of all loops in a step of the outermost block."""
        if position >= len(self.schedule.block.steps):
            return {}
        inside = Block((self.schedule.block.steps[position],), ())
        return {loop.axis: self.schedule.chunks[loop.id] for loop in inside.loops}

    def larger_than(self, room: int, most: int) -> tuple[TensorRecord, ...]:
        """The stored arrays of more than `room` bytes, largest first; the largest three if there are none.

        **Arguments:**

        - `most`: bytes of the certified peak. Larger arrays are left out: simulation stores them, but XLA
          must have fused them.
        """
        given = {term.number for term in self.schedule.program.inputs}
        given.update(output.term.number for output in self.schedule.program.outputs)
        found: dict[int, TensorRecord] = {}
        for placed in self.blocks:
            model = CostModel(self.machine, placed.lengths)
            stored = stored_terms(placed.block, model) - given
            for term in (result for step in placed.block.steps for result in step.results):
                if term.number in stored:
                    found[term.number] = self.words.tensor(term, self.machine, placed.lengths)
        largest = sorted(found.values(), key=lambda tensor: -tensor.bytes)
        largest = [tensor for tensor in largest if tensor.bytes <= most]
        return tuple([tensor for tensor in largest if tensor.bytes > room] or largest[:3])

    def needed_whole(self, least: float) -> tuple[PeakTensor, ...]:
        """The calls that need axes whole and read or make an array of at least `least` bytes."""
        barriers = Barriers(self.schedule.program, self.words)
        found: dict[Hashable, PeakTensor] = {}
        for placed in self.blocks:
            for term in (step.term for step in placed.block.steps if isinstance(step, Compute)):
                whole = () if _of_tests(term) else barriers.of_call(term)
                if whole:
                    around = [self.words.tensor(t, self.machine, placed.lengths) for t in (term, *term.args)]
                    largest = max(around, key=lambda tensor: tensor.bytes)
                    if largest.bytes >= least:
                        found.setdefault(work_of(term), PeakTensor(largest, whole))
        return tuple(sorted(found.values(), key=lambda peak: -peak.tensor.bytes)[:MOST_TENSORS])


def _of_tests(term: Term) -> bool:
    """Whether a term belongs to the tests of data, not to the user's function."""
    return isinstance(term.op, Operation) and term.op.spec.name in MAGNITUDES


def merged(steps: Sequence[StepRecord]) -> Iterator[StepRecord]:
    """The steps, with successive ones merged if there are too many, each named after its largest."""
    together = -(-len(steps) // MOST_STEPS)
    for start in range(0, len(steps), max(together, 1)):
        group = steps[start : start + together]
        largest = max(group, key=lambda step: step.bytes)
        yield replace(largest, seconds=sum(step.seconds for step in group))
