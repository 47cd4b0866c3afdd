"""From candidates to a plan's records: its loops, its memory over time, and what was too big as written."""

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
"""More steps than this are put together: a picture shows no more."""

MOST_AT_PEAK = 3
"""How many arrays of a peak a refusal tells of."""

BIG_SHARE = 10
"""An array is worth telling of if it takes this part of a peak."""

MOST_TENSORS = 12
"""How many arrays of a kind a plan keeps."""


def rules_fired(candidate: Candidate) -> dict[str, int]:
    """How many ops of a candidate each rule made; of two branches, in the one for data that passes."""
    if candidate.branches:
        return rules_fired(candidate.branches[-1])
    return dict(Counter(candidate.makers.values()))


def guard_record(candidate: Candidate) -> GuardRecord | None:
    """What a candidate tests of its data, if anything."""
    if not candidate.branches:
        return None
    plain = candidate.branches[0]
    return GuardRecord(candidate.tests, plain.predicted_seconds, rules_fired(plain))


def recorded(
    plan: Plan, written: Candidate, chosen: Candidate | None, names: Sequence[str], machine: Machine
) -> Plan:
    """A plan with what reports tell of it.

    **Arguments:**

    - `written`: the program as written.
    - `chosen`: the one that the plan is for, if it is another.
    - `names`: of the inputs.
    """
    # What is left as it is has no copies made for it.
    before = Recorder(written.schedule, names, replace(machine, copies=False))
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
    """The largest arrays besides arguments at a schedule's peak, and what stops their axes from being split.

    **Arguments:**

    - `names`: of the program's inputs.
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
    """Records one schedule.

    **Attributes:**

    - `loops_in_order`: the loops, each followed by those inside of it, and the block that each is in.
    """

    def __init__(self, schedule: Schedule, names: Sequence[str], machine: Machine) -> None:
        self.schedule = schedule
        self.machine = machine
        self.words = Describer(schedule.program, names)
        self.loops_in_order: list[tuple[Loop, Placed]] = []
        self.blocks = list(self._placed(Placed(schedule.block, (), {}, 1)))
        self._again = computed_again(self.blocks, machine)

    def _placed(self, placed: Placed) -> Iterator[Placed]:
        """A block and all inside of it, those of a call once for all of its results."""
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
        """The loops, outer before inner."""
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
        """What one run of a block stores, inner loops' results included, largest first."""
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
        """What is there at the simulated peak besides arguments, largest first."""
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
                if work_of(step.term) in entered:  # It has run, for another result of the call.
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
        """The chunk lengths of the loops in a step of the outermost block."""
        if position >= len(self.schedule.block.steps):
            return {}
        inside = Block((self.schedule.block.steps[position],), ())
        return {loop.axis: self.schedule.chunks[loop.id] for loop in inside.loops}

    def larger_than(self, room: int, most: int) -> tuple[TensorRecord, ...]:
        """What is stored that is larger than the room there is, largest first; if nothing is, the largest.

        **Arguments:**

        - `most`: bytes of the certified peak. XLA fuses what is larger, which simulation does not know.
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
        """The calls that are given, or make, arrays of so many bytes, and need axes of them whole."""
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
    """Whether a term is no part of the user's function, but of tests of its data."""
    return isinstance(term.op, Operation) and term.op.spec.name in MAGNITUDES


def merged(steps: Sequence[StepRecord]) -> Iterator[StepRecord]:
    """The steps, several in a row put together if there are too many: what takes most memory names them."""
    together = -(-len(steps) // MOST_STEPS)
    for start in range(0, len(steps), max(together, 1)):
        group = steps[start : start + together]
        largest = max(group, key=lambda step: step.bytes)
        yield replace(largest, seconds=sum(step.seconds for step in group))
