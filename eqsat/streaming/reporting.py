"""From a planned program to its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from eqsat.ir.axis import Axis
from eqsat.ir.control import WHILE_ITERATIONS, While, iterations
from eqsat.ir.labels import axis_labels
from eqsat.planning.recording import rules_fired
from eqsat.reports.stream_plan import PassRecord, StreamPlan
from eqsat.streaming.accounting import chunk_bytes, longest_chunks, read_bytes, reading, whole_bytes
from eqsat.streaming.planner import StreamedProgram
from eqsat.streaming.segments import Segment
from eqsat.streaming.steps import ControlFlow, Pass, Picking, Step, inner_steps, outermost


def stream_plan(
    program: StreamedProgram,
    title: str,
    names: Sequence[str],
    budgets: tuple[int, int],
    rate: float,
    planning_seconds: float,
) -> StreamPlan:
    """The report.

    **Arguments:**

    - `names`: of the inputs.
    - `budgets`: bytes of the device's memory, and of the host's.
    - `rate`: bytes per second at which reading is predicted.
    """
    streaming, lengths = program.streaming, program.lengths
    labels = axis_labels(streaming.program, names)
    read: dict[str, float] = {}
    picked: dict[str, int] = {}
    for load, times in reading(streaming.steps, lengths):
        if isinstance(load, Picking):
            picked[names[load.source]] = picked.get(names[load.source], 0) + times * whole_bytes(load)
            continue
        name = _name(load.kind, load.source, names)
        read[name] = read.get(name, 0.0) + times
    steps = tuple(each.plan for each in program.programs.values())
    rules = sum((Counter(step.rules_fired) for step in steps), Counter(rules_fired(program.candidate)))
    return StreamPlan(
        title,
        budgets[0],
        program.peak,
        budgets[1],
        program.host_peak,
        tuple(_records(streaming.steps, program, labels, names, 0, 1)),
        read_bytes(streaming.steps, lengths),
        program.touched,
        read,
        WHILE_ITERATIONS if _ends_by_a_condition(streaming.steps) else None,
        picked,
        rate,
        program.seconds,
        steps,
        rules,
        planning_seconds,
    )


def _records(
    steps: Sequence[Step],
    program: StreamedProgram,
    labels: Mapping[Axis, str],
    inputs: Sequence[str],
    depth: int,
    times: int,
) -> Iterator[PassRecord]:
    outer = outermost(program.streaming.steps)
    for step in steps:
        inside, count = depth, times
        if isinstance(step, Pass):
            length = program.lengths[step.id]
            own = set(_segments(step))
            peaks = [each.peak for key, each in program.programs.items() if key[0] in own]
            yield PassRecord(
                labels.get(step.axis, step.axis.name),
                step.axis.size,
                length,
                depth,
                times,
                tuple(dict.fromkeys(_name(load.kind, load.source, inputs) for load in step.loads)),
                chunk_bytes(step, longest_chunks(program.streaming, program.lengths) | {step.axis: length}),
                step.combines,
                max(peaks, default=0),
                program.parts.share(length) if step.id in outer else length,
            )
            inside, count = depth + 1, times * -(-step.axis.size // length)
        elif isinstance(step, ControlFlow):
            inside, count = depth + 1, times * iterations(step.control)
        for inner in inner_steps(step):
            yield from _records(inner, program, labels, inputs, inside, count)


def _ends_by_a_condition(steps: Sequence[Step]) -> bool:
    """Whether a loop around passes does."""
    return any(
        (isinstance(step, ControlFlow) and isinstance(step.control, While))
        or any(map(_ends_by_a_condition, inner_steps(step)))
        for step in steps
    )


def _segments(step: Step) -> Iterator[Segment]:
    """The segments that run while a step does."""
    if isinstance(step, Segment):
        yield step
    for steps in inner_steps(step):
        for inner in steps:
            yield from _segments(inner)


def _name(kind: str, source: int, inputs: Sequence[str]) -> str:
    return inputs[source] if kind == "input" else "what was kept"
