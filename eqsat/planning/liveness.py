"""Peak memory by simulation: what is stored, from when, until when.

A value is stored when its op writes a buffer, when something reads it from memory, or when computing
it anew for every consumer would be expensive. Everything else is fused into its consumers, and keeps
what it reads alive until they have run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.engine.cost import CostModel, Value
from eqsat.ir.axis import Axis
from eqsat.ir.control import turns
from eqsat.ir.dtypes import accumulator
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.formula import Monoid
from eqsat.ir.merging import Merging
from eqsat.ir.ops import Const, Fold, Iota, Leaf, Map, Op, Opaque, Rename
from eqsat.ir.term import Term, reachable
from eqsat.machine import Machine
from eqsat.planning.blocks import Block, Compute, Loop, Schedule, dependencies

EXPENSIVE = 3.0
"""Elementwise cost per element from which XLA stores a value rather than compute it twice."""


def value_of(term: Term) -> Value:
    """What the cost model needs to know of a term."""
    return Value(term.axes, term.open, term.dtype)


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory over the steps of a block.

    **Attributes:**

    - `peak`: most bytes of temporaries and results at any one time.
    - `step`: the step where that is.
    - `timeline`: bytes while each step runs.
    - `live`: the stored terms alive at the peak, largest first, with their bytes.
    """

    peak: int
    step: int
    timeline: tuple[int, ...]
    live: tuple[tuple[Term, int], ...]


class Simulator:
    """Simulates the memory of a schedule on a machine."""

    def __init__(self, machine: Machine, chunks: Mapping[int, int]) -> None:
        self.machine = machine
        self.chunks = chunks

    def block(
        self, block: Block, lengths: Mapping[Axis, int], from_start: frozenset[int] = frozenset()
    ) -> Usage:
        """Usage of one run of a block.

        **Arguments:**

        - `lengths`: the chunk lengths of the loops around it.
        - `from_start`: terms whose buffers are there all the time, as a program's results' are.
        """
        model = CostModel(self.machine, lengths)
        stored = stored_terms(block, model)
        last = _last_uses(block, stored)
        end = len(block.steps)
        spans: dict[int, tuple[Term, int, int, int]] = {}
        for index, step in enumerate(block.steps):
            sizes = result_bytes(step, model)
            for result in step.results:
                number = result.number
                if number in stored:
                    always = number in from_start
                    birth, death = (0, end) if always else (index, last.get(number, index))
                    spans[number] = (result, sizes[number], birth, death)
        change = [0] * (end + 2)
        for _, size, birth, death in spans.values():
            change[birth] += size
            change[death + 1] -= size
        peak, peak_step, alive = 0, 0, 0
        inside: Usage | None = None
        timeline: list[int] = []
        entered: set[int] = set()
        for index, step in enumerate(block.steps):
            alive += change[index]
            inner: Usage | None = None
            if isinstance(step, Loop):
                inner = self.block(step.body, {**lengths, step.axis: self.chunks[step.id]})
            elif step.bodies and id(step.bodies) not in entered:
                # One of them at a time, and once for all results of one call.
                entered.add(id(step.bodies))
                inner = max((self.block(body, lengths) for body in step.bodies), key=lambda usage: usage.peak)
            during = alive + (inner.peak if inner else 0)
            timeline.append(during)
            if during > peak:
                peak, peak_step, inside = during, index, inner
        snapshot = {
            term.number: (term, size)
            for term, size, birth, death in spans.values()
            if birth <= peak_step <= death
        }
        if inside is not None:
            snapshot.update({term.number: (term, size) for term, size in inside.live})
        live = tuple(sorted(snapshot.values(), key=lambda item: -item[1]))
        return Usage(peak, peak_step, tuple(timeline), live)


def result_bytes(step: Compute | Loop, model: CostModel) -> dict[int, int]:
    """Bytes of the buffers of a step's results, by number, given the chunk lengths around it.

    A fold takes what it carries. A part of a state that several folds share counts with the first.
    """
    merging = Merging()
    counted: set[int] = set()
    sizes: dict[int, int] = {}
    for result in step.results:
        match result.op:
            case Fold(monoid=Monoid() as monoid):
                state = merging.state(monoid, result.args)
                carried = {part.number: part for part in state.earlier if part.number not in counted}
                counted.update(carried)
                sizes[result.number] = sum(
                    model.bytes(Value(part.axes, result.open, part.dtype)) for part in carried.values()
                )
            case Fold(monoid=str()):
                carried_dtype = accumulator(result.dtype)
                sizes[result.number] = model.bytes(Value(result.axes, result.open, carried_dtype))
            case _:
                sizes[result.number] = model.bytes(value_of(result))
    return sizes


def stored_terms(block: Block, model: CostModel) -> set[int]:
    """The numbers of the block's terms that get a buffer."""
    stored: set[int] = set()
    uses: dict[int, int] = {}
    here = {result.number: result for step in block.steps for result in step.results}
    for step in block.steps:
        for result in step.results:
            if model.stores_result(result.op):
                stored.add(result.number)
        if isinstance(step, Loop):
            stored.update(term.number for term in step.imports if term.number in here)
            continue
        term = step.term
        reads = model.stores_operands(term.op, [value_of(arg) for arg in term.args])
        for arg in term.args:
            uses[arg.number] = uses.get(arg.number, 0) + 1
            if reads and arg.number in here:
                stored.add(arg.number)
    for number, count in uses.items():
        if count > 1 and number in here and is_expensive(here[number].op):
            stored.add(number)
    stored.update(term.number for term in block.needs if term.number in here)
    # An input is there already, and so is a slice of it that nothing reads from memory.
    return {number for number in stored if not _is_given(here[number])}


def is_expensive(op: Op) -> bool:
    return isinstance(op, Map) and ELEMENTWISE[op.name].cost >= EXPENSIVE


def _is_given(term: Term) -> bool:
    while isinstance(term.op, Rename):
        term = term.args[0]
    return isinstance(term.op, (Leaf, Const, Iota))


def _last_uses(block: Block, stored: set[int]) -> dict[int, int]:
    """For each stored term the last step that reads it, directly or through fused terms.

    Fused terms that nothing reads, read nothing. One pass from the end: whoever reads a term comes after it.
    """
    end = len(block.steps)
    last = {term.number: end for term in block.needs}
    for index in range(end - 1, -1, -1):
        step = block.steps[index]
        if isinstance(step, Loop) or step.term.number in stored:
            read: int | None = index
        else:
            read = last.get(step.term.number)
        if read is not None:
            for term in dependencies(step):
                last[term.number] = max(last.get(term.number, 0), read)
    return last


def simulate(schedule: Schedule, machine: Machine) -> tuple[int, Usage]:
    """The predicted peak of a schedule, in bytes, and the usage of its outermost block.

    The peak counts arguments, outputs and temporaries, as the certificate does.
    """
    outputs = schedule.program.outputs
    results = frozenset(output.term.number for output in outputs)
    usage = Simulator(machine, schedule.chunks).block(schedule.block, {}, results)
    # An output is a buffer of its own even if it repeats, broadcasts or hands on what is there already.
    counted = sum({out.term.number: out.term.bytes for out in outputs if not _is_given(out.term)}.values())
    return schedule.program.fixed_bytes + usage.peak - counted, usage


def upper_bound(schedule: Schedule, machine: Machine) -> int:
    """Bytes with every value of the program in a buffer of its own, at once: however ops are fused, it fits.

    Arguments, outputs and temporaries. Hidden intermediates are counted; workspaces of libraries, such
    as the packed panels of a matrix product, are no values of the program and are not.
    """

    def everything(block: Block, lengths: Mapping[Axis, int]) -> int:
        model = CostModel(machine, lengths)
        total = 0
        entered: set[int] = set()
        for step in block.steps:
            for result in step.results:
                total += 0 if _is_given(result) else model.bytes(value_of(result))
            if isinstance(step, Loop):
                total += merging_bytes(step, model)
                total += everything(step.body, {**lengths, step.axis: schedule.chunks[step.id]})
            elif id(step.bodies) not in entered:
                entered.add(id(step.bodies))
                total += sum(everything(body, lengths) for body in step.bodies)
        return total

    return schedule.program.fixed_bytes + everything(schedule.block, {})


def largest_stored(schedule: Schedule, machine: Machine) -> int:
    """Bytes of the largest value that a schedule stores, but for its results."""
    results = {output.term.number for output in schedule.program.outputs}

    def within(block: Block, lengths: Mapping[Axis, int]) -> int:
        model = CostModel(machine, lengths)
        stored = stored_terms(block, model) - results
        sizes = [0, *(within(body, lengths) for body in block.bodies())]
        for step in block.steps:
            sizes += [model.bytes(value_of(result)) for result in step.results if result.number in stored]
            if isinstance(step, Loop):
                sizes.append(within(step.body, {**lengths, step.axis: schedule.chunks[step.id]}))
        return max(sizes)

    return within(schedule.block, {})


def merging_bytes(loop: Loop, model: CostModel) -> int:
    """Bytes of every value that merging and finishing the states of a loop's folds makes."""
    merging = Merging()
    found: dict[int, int] = {}
    for result in loop.results:
        if isinstance(result.op, Fold) and isinstance(result.op.monoid, Monoid):
            state = merging.state(result.op.monoid, result.args)
            for term in reachable((*state.merged, state.finished)):
                found[term.number] = model.bytes(Value(term.axes, result.open, term.dtype))
    return sum(found.values())


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
        return model.once(term.op, value_of(term), [value_of(arg) for arg in term.args])

    seconds = 0.0
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
        inner = CostModel(model.machine, {**model.chunks, step.axis: chunk})
        turns = times * -(-step.axis.size // chunk)
        seconds += predicted_seconds(step.body, inner, chunks, turns)
        seconds += turns * sum(run(inner, result) for result in step.results)
    return seconds
