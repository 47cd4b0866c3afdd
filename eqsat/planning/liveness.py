"""Peak memory by simulation, an upper bound of it, and predicted time.

What a block stores, and from when until when, is for `storage` to say; here it gets its bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.control import turns
from eqsat.ir.ops import Opaque
from eqsat.ir.term import Term
from eqsat.machine import Machine
from eqsat.planning.blocks import Block, Compute, Loop, Schedule, work_of
from eqsat.planning.storage import is_given, storage, stored_terms
from eqsat.planning.turning import apart, turnings


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory over the steps of a block.

    **Attributes:**

    - `peak`: most bytes of temporaries, results, panels that products pack and copies, at any one time.
    - `step`: the step where that is.
    - `timeline`: bytes while each step runs.
    - `buffers`: the stored terms, with their bytes, and the steps from and until which they are there.
    - `inside`: usage of the block inside of that step, if there is one.
    """

    peak: int
    step: int
    timeline: tuple[int, ...]
    buffers: tuple[tuple[Term, int, int, int], ...]
    inside: Usage | None

    @property
    def live(self) -> tuple[tuple[Term, int], ...]:
        """The stored terms alive at the peak, largest first, with their bytes."""
        found = {
            term.number: (term, size)
            for term, size, birth, death in self.buffers
            if birth <= self.step <= death
        }
        if self.inside is not None:
            found.update({term.number: (term, size) for term, size in self.inside.live})
        return tuple(sorted(found.values(), key=lambda item: -item[1]))


class Simulator:
    """Simulates the memory of a schedule on a machine."""

    def __init__(self, machine: Machine, chunks: Mapping[int, int]) -> None:
        self.machine = machine
        self.chunks = chunks

    def block(
        self,
        block: Block,
        lengths: Mapping[Axis, int],
        from_start: frozenset[int] = frozenset(),
        in_loop: bool = False,
    ) -> Usage:
        """Usage of one run of a block.

        **Arguments:**

        - `lengths`: the chunk lengths of the loops around it.
        - `from_start`: terms whose buffers are there all the time, as a program's results' are.
        - `in_loop`: whether it is the body of a loop over chunks, for which copies may be made before.
        """
        model = CostModel(self.machine, lengths)
        end = len(block.steps)
        spans: list[tuple[Term, int, int, int]] = []
        change = [0] * (end + 2)
        for span in storage(block, model).spans:
            always = span.term.number in from_start
            birth, death = (0, end) if always else (span.birth, span.death)
            size = span.bytes(model)
            spans.append((span.term, size, birth, death))
            change[birth] += size
            change[death + 1] -= size
        peak, peak_step = 0, 0
        inside: Usage | None = None
        timeline: list[int] = []
        entered: set[Hashable] = set()
        copies = turnings(block, model)
        alive = sum(turning.held for turning in copies.values()) if in_loop else 0
        for index, step in enumerate(block.steps):
            alive += change[index]
            inner: Usage | None = None
            if isinstance(step, Loop):
                inner = self.block(step.body, {**lengths, step.axis: self.chunks[step.id]}, in_loop=True)
            elif step.bodies and work_of(step.term) not in entered:
                # Once for all results of one call.
                entered.add(work_of(step.term))
                inner = self.bodies(step, lengths)
            during = alive + (inner.peak if inner else 0)
            if isinstance(step, Compute):
                during += model.workspace(step.term.op, step.term.args)
                if step.term.number in copies:
                    copied = copies[step.term.number]
                    during += copied.bytes + (0 if in_loop else copied.held)
            timeline.append(during)
            if during > peak:
                peak, peak_step, inside = during, index, inner
        return Usage(peak, peak_step, tuple(timeline), tuple(spans), inside)

    def bodies(self, step: Compute, lengths: Mapping[Axis, int]) -> Usage:
        """Usage of the programs inside of a call, of which one runs at a time."""
        return max((self.block(body, lengths) for body in step.bodies), key=lambda usage: usage.peak)


def simulate(schedule: Schedule, machine: Machine) -> tuple[int, Usage]:
    """The predicted peak of a schedule, in bytes, and the usage of its outermost block.

    The peak counts arguments, outputs and temporaries, as the certificate does.
    """
    outputs = schedule.program.outputs
    results = frozenset(output.term.number for output in outputs)
    usage = Simulator(machine, schedule.chunks).block(schedule.block, {}, results)
    # An output is a buffer of its own even if it repeats, broadcasts or hands on what is there already.
    counted = sum({out.term.number: out.term.bytes for out in outputs if not is_given(out.term)}.values())
    return schedule.program.fixed_bytes + usage.peak - counted, usage


def largest_stored(schedule: Schedule, machine: Machine) -> int:
    """Bytes of the largest value that a schedule stores, but for its results."""
    results = {output.term.number for output in schedule.program.outputs}

    def within(block: Block, lengths: Mapping[Axis, int]) -> int:
        model = CostModel(machine, lengths)
        stored = stored_terms(block, model) - results
        sizes = [0, *(within(body, lengths) for body in block.bodies())]
        for step in block.steps:
            sizes += [model.bytes(result) for result in step.results if result.number in stored]
            if isinstance(step, Loop):
                sizes.append(within(step.body, {**lengths, step.axis: schedule.chunks[step.id]}))
        return max(sizes)

    return within(schedule.block, {})


def turns_of(term: Term) -> int:
    """How often the bodies of a call run."""
    assert isinstance(term.op, Opaque)
    assert term.op.call.control is not None
    return turns(term.op.call.control)


def predicted_seconds(block: Block, model: CostModel, chunks: Mapping[int, int], times: int = 1) -> float:
    """Predicted time of a block, everything in its loops included.

    **Arguments:**

    - `times`: how often the block runs. Everything in it runs as often, whether it varies or not.
    """

    def run(model: CostModel, term: Term) -> float:
        return model.once(term.op, term, term.args)

    seconds = times * sum(apart(block, model).values())
    entered: set[int] = set()
    for step in block.steps:
        if isinstance(step, Compute):
            seconds += times * run(model, step.term)
            if step.bodies and id(step.bodies) not in entered:
                entered.add(id(step.bodies))
                again = times * turns_of(step.term)
                seconds += sum(predicted_seconds(body, model, chunks, again) for body in step.bodies)
            continue
        chunk = chunks[step.id]
        inner = replace(model, chunks={**model.chunks, step.axis: chunk})
        turns = times * -(-step.axis.size // chunk)
        seconds += predicted_seconds(step.body, inner, chunks, turns)
        seconds += turns * sum(run(inner, result) for result in step.results)
    return seconds
