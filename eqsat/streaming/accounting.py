"""How much the steps of a program read, and how much memory they take beside that of the device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import iterations
from eqsat.ir.dtypes import numpy_dtype
from eqsat.streaming.states import part_bytes
from eqsat.streaming.steps import ControlFlow, Load, Pass, Picking, Step, Streaming, inner_steps

Lengths = Mapping[Axis, int]

INDEX_BYTES = 64
"""Bytes that an index takes beside what it picks: its place, in order, and among those that are distinct."""


def load_bytes(load: Load | Picking, lengths: Lengths) -> int:
    """Bytes of a chunk."""
    sizes = [lengths[axis] if axis in load.open else axis.size for axis in layout_axes(load.layout)]
    return math.prod(sizes) * numpy_dtype(load.dtype).itemsize


def chunk_bytes(one: Pass, lengths: Lengths) -> int:
    """Bytes of all that is read for a chunk of a pass."""
    return sum(load_bytes(load, lengths) for load in one.loads)


def ahead_bytes(steps: Sequence[Step], lengths: Lengths, shared: Lengths | None = None) -> int:
    """Bytes of what is read ahead, at most, while some steps run.

    **Arguments:**

    - `shared`: by axis of the outermost passes, how much of a chunk a device has, to count that alone.
    """
    found = 0
    for step in steps:
        match step:
            case Load() | Picking():
                found = max(found, load_bytes(step, lengths))
            case Pass():
                own, within = _read_by(step, {**lengths, step.axis: shared[step.axis]} if shared else lengths)
                found = max(found, own + within)
            case _:
                found = max([found, *(ahead_bytes(inner, lengths, shared) for inner in inner_steps(step))])
    return found


def _read_by(one: Pass, lengths: Lengths) -> tuple[int, int]:
    """Bytes that a pass reads ahead, and those that control flow in it does, whose reader runs beside."""
    own, within = chunk_bytes(one, lengths), 0
    for step in one.steps:
        if isinstance(step, Pass):
            inner, further = _read_by(step, lengths)
            own, within = max(own, inner), max(within, further)
        else:
            within = max(within, ahead_bytes([step], lengths))
    return own, within


def current_bytes(steps: Sequence[Step], lengths: Lengths) -> int:
    """Bytes of the chunks, at most, that passes are at while some steps run: one of each that is nested.

    What indices pick is a chunk as well.
    """
    found = 0
    for step in steps:
        own = 0
        if isinstance(step, Pass):
            own = chunk_bytes(step, lengths)
        elif isinstance(step, Picking):
            own = load_bytes(step, lengths)
        found = max([found, *(own + current_bytes(inner, lengths) for inner in inner_steps(step))])
    return found


def longest_chunks(streaming: Streaming, lengths: Mapping[int, int]) -> dict[Axis, int]:
    """By axis, the length of the longest chunks of any pass over it."""
    longest: dict[Axis, int] = {}
    for each in streaming.passes:
        longest[each.axis] = max(longest.get(each.axis, 0), lengths[each.id])
    return longest


def reading(
    steps: Sequence[Step], lengths: Mapping[int, int], times: int = 1, chunks: Lengths | None = None
) -> Iterator[tuple[Load | Picking, int]]:
    """What is read, each with how often it is read from beginning to end; `while` loops run as assumed.

    **Arguments:**

    - `chunks`: how many chunks of an axis the passes around read.
    """
    around = chunks or {}
    for step in steps:
        count, inside = times, around
        if isinstance(step, Load):
            yield step, times
        elif isinstance(step, Picking):
            yield step, times // math.prod(around[axis] for axis in step.open)
        elif isinstance(step, Pass):
            for load in step.loads:
                yield load, times
            number = -(-step.axis.size // lengths[step.id])
            count, inside = count * number, {**around, step.axis: number}
        elif isinstance(step, ControlFlow):
            count *= iterations(step.control)
        for inner in inner_steps(step):
            yield from reading(inner, lengths, count, inside)


def read_bytes(steps: Sequence[Step], lengths: Mapping[int, int]) -> int:
    """Bytes that are read in a whole run."""
    return sum(times * whole_bytes(load) for load, times in reading(steps, lengths))


def read_back_bytes(streaming: Streaming, lengths: Mapping[int, int]) -> int:
    """Bytes that are read of results of earlier passes."""
    loads = reading(streaming.steps, lengths)
    kept = [(load, times) for load, times in loads if isinstance(load, Load) and load.kind == "result"]
    return sum(times * whole_bytes(load) for load, times in kept)


def chunk_count(steps: Sequence[Step], lengths: Mapping[int, int]) -> int:
    """How many chunks, and entries that indices pick, are read one after the other in a whole run.

    `while` loops run as assumed.
    """
    found = 0
    for step in steps:
        inside = sum(chunk_count(inner, lengths) for inner in inner_steps(step))
        if isinstance(step, Pass):
            inside = -(-step.axis.size // lengths[step.id]) * (1 + inside)
        elif isinstance(step, ControlFlow):
            inside *= iterations(step.control)
        elif isinstance(step, Picking):
            inside = 1
        found += inside
    return found


def written_bytes(streaming: Streaming) -> int:
    """Bytes of what is kept outside the device's memory."""
    return sum(kept.bytes for kept in streaming.kept)


def whole_bytes(load: Load | Picking) -> int:
    """Bytes that are read for all chunks."""
    size = math.prod(axis.size for axis in layout_axes(load.layout)) * numpy_dtype(load.dtype).itemsize
    return round(size * load.share) if isinstance(load, Load) else size


def host_bytes(streaming: Streaming, lengths: Lengths, unnamed: Sequence[bool]) -> int:
    """Bytes outside the device's memory: chunks that are read and written, and results in arrays of NumPy.

    **Arguments:**

    - `unnamed`: by output, whether the caller names no place for it.
    """
    reading = current_bytes(streaming.steps, lengths) + ahead_bytes(streaming.steps, lengths)
    sizes = {kept.number: numpy_dtype(kept.dtype).itemsize for kept in streaming.kept}
    writing = [
        math.prod(lengths[axis] if axis in one.open else axis.size for axis in one.order) * sizes[one.result]
        for each in streaming.passes
        for one in each.written
    ]
    indices = _index_bytes(streaming.steps, lengths)
    return reading + sum(writing) + indices + result_bytes(streaming, unnamed)


def saved_bytes(streaming: Streaming, lengths: Mapping[int, int]) -> int:
    """Bytes of the states that passes save for others, on the host.

    **Arguments:**

    - `lengths`: of chunks, by pass.
    """
    longest, found = longest_chunks(streaming, lengths), 0
    for one in streaming.passes:
        count = -(-one.axis.size // lengths[one.id])
        found += count * sum(
            part_bytes(each.part, {axis: longest[axis] for axis in each.open}) for each in one.saved
        )
    return found


def result_bytes(streaming: Streaming, unnamed: Sequence[bool]) -> int:
    """Bytes of the results that are arrays of NumPy in the end: those that go nowhere else."""
    found = 0
    for number, result in enumerate(streaming.results):
        if unnamed[number] and streaming.leaves_device(result):
            dtype = numpy_dtype(streaming.program.outputs[number].term.dtype)
            found += math.prod(axis.size for axis in layout_axes(result.layout)) * dtype.itemsize
    return found


def _index_bytes(steps: Sequence[Step], lengths: Lengths) -> int:
    """Bytes that indices take on their way to what they pick, at most."""
    found = 0
    for step in steps:
        if isinstance(step, Picking):
            entries = math.prod(lengths[axis] if axis in step.open else axis.size for axis in step.index_axes)
            found = max(found, entries * INDEX_BYTES)
        for inner in inner_steps(step):
            found = max(found, _index_bytes(inner, lengths))
    return found


def variants(one: Pass, length: int) -> list[tuple[int, bool]]:
    """The lengths of the chunks of a pass, each with whether it is the first chunk."""
    whole, rest = divmod(one.axis.size, length)
    starting = any(state.part.initial is None and not state.part.given for state in one.states)
    found = [(length, starting)] if whole else []
    if whole > 1 and starting:
        found.append((length, False))
    if rest:
        found.append((rest, starting and not whole))
    return found
