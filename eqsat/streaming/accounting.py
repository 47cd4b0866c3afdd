"""How much memory the steps of a program take: on the device, and beside it for what is read and written."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import Scan, Switch, carried, iterations
from eqsat.ir.dtypes import numpy_dtype
from eqsat.streaming.keys import Key
from eqsat.streaming.segments import Piece, Segment
from eqsat.streaming.states import part_bytes
from eqsat.streaming.steps import ControlFlow, Load, Pass, Picking, Step, Streaming, inner_steps, needs

Lengths = Mapping[Axis, int]

INDEX_BYTES = 64
"""Bytes that an index takes beside what it picks: its place, in order, and among those that are distinct."""


@dataclass(frozen=True)
class Use:
    """A segment at certain chunk lengths, and what is in the device's memory while it runs.

    **Attributes:**

    - `first`: whether it works on the first chunk of the loop around it.
    - `beside`: bytes of arrays that it does not read: those that later steps read, and what is read ahead.
    - `donated`: by input, whether an output takes its place.
    """

    segment: Segment
    lengths: tuple[tuple[Axis, int], ...]
    first: bool
    piece: Piece
    beside: int
    donated: tuple[bool, ...]


def load_bytes(load: Load | Picking, lengths: Lengths) -> int:
    """Bytes of a chunk."""
    sizes = [lengths[axis] if axis in load.open else axis.size for axis in layout_axes(load.layout)]
    return math.prod(sizes) * numpy_dtype(load.dtype).itemsize


def chunk_bytes(one: Pass, lengths: Lengths) -> int:
    """Bytes of all that is read for a chunk of a pass."""
    return sum(load_bytes(load, lengths) for load in one.loads)


def ahead_bytes(steps: Sequence[Step], lengths: Lengths) -> int:
    """Bytes of what is read ahead, at most, while some steps run."""
    found = 0
    for step in steps:
        match step:
            case Load() | Picking():
                found = max(found, load_bytes(step, lengths))
            case Pass():
                own, within = _read_by(step, lengths)
                found = max(found, own + within)
            case _:
                found = max([found, *(ahead_bytes(inner, lengths) for inner in inner_steps(step))])
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
    """How many chunks passes go through in a whole run; `while` loops run as assumed."""
    found = 0
    for step in steps:
        inside = sum(chunk_count(inner, lengths) for inner in inner_steps(step))
        if isinstance(step, Pass):
            inside = -(-step.axis.size // lengths[step.id]) * (1 + inside)
        elif isinstance(step, ControlFlow):
            inside *= iterations(step.control)
        found += inside
    return found


def written_bytes(streaming: Streaming) -> int:
    """Bytes of what is kept outside the device's memory."""
    return sum(kept.bytes for kept in streaming.kept)


def whole_bytes(load: Load | Picking) -> int:
    """Bytes of all chunks."""
    return math.prod(axis.size for axis in layout_axes(load.layout)) * numpy_dtype(load.dtype).itemsize


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


def uses(streaming: Streaming, lengths: Mapping[int, int], arguments: Mapping[int, int]) -> Iterator[Use]:
    """The segments of a program at all lengths at which they run.

    **Arguments:**

    - `lengths`: of chunks, by pass.
    - `arguments`: bytes of the arguments that are on the device, by position.
    """
    sizes = {Key("argument", number): count for number, count in arguments.items()}
    ahead = ahead_bytes(streaming.steps, longest_chunks(streaming, lengths))
    yield from _in_steps(streaming.steps, {}, sizes, lengths, frozenset(), ahead, False)


def _in_steps(
    steps: Sequence[Step],
    opened: Lengths,
    sizes: Mapping[Key, int],
    lengths: Mapping[int, int],
    later: Collection[Key],
    ahead: int,
    first: bool,
) -> Iterator[Use]:
    """The segments in some steps, of which what is in `later` is needed afterwards."""
    alive = dict(sizes)
    for number, step in enumerate(steps):
        needed = needs(steps[number + 1 :], set(later))
        match step:
            case Load(key=key) | Picking(key=key):
                alive[key] = load_bytes(step, opened)
            case Segment():
                use = _use(step, opened, alive, ahead, first)
                yield use
                alive |= _output_bytes(use.piece)
            case Pass():
                states = {s.key: part_bytes(s.part, _open(opened, s.open)) for s in step.states}
                around = {**alive, **states}
                again = needs(step.steps, {one.key for one in step.written} | states.keys()) | needed
                for length, starts in variants(step, lengths[step.id]):
                    inside = {**opened, step.axis: length}
                    chunk = around | {load.key: load_bytes(load, inside) for load in step.loads}
                    yield from _in_steps(step.steps, inside, chunk, lengths, again, ahead, starts)
                alive |= states
            case ControlFlow():
                yield from _in_bodies(step, opened, alive, lengths, needed, ahead)
                alive |= dict.fromkeys(step.results, 0) | _result_bytes(step, opened)
        alive = {
            key: size for key, size in alive.items() if key in needed or key.kind in ("argument", "result")
        }


def _in_bodies(
    flow: ControlFlow,
    opened: Lengths,
    sizes: Mapping[Key, int],
    lengths: Mapping[int, int],
    needed: Collection[Key],
    ahead: int,
) -> Iterator[Use]:
    """The segments in the bodies of control flow, each with the carries before and after an iteration."""
    alive = dict(sizes) | _result_bytes(flow, opened)
    around = set(needed) | set(flow.reads) | set(flow.results)
    for entries, body, outputs in zip(flow.entries, flow.bodies, flow.outputs, strict=True):
        keys = {entry.key for entry in entries}
        # Inputs of bodies are carries, which are counted, operands, or slices of operands.
        inside = alive | dict.fromkeys(keys, 0)
        yield from _in_steps(body, opened, inside, lengths, around | keys | set(outputs), ahead, False)


def _result_bytes(flow: ControlFlow, opened: Lengths) -> dict[Key, int]:
    """Bytes of the results of control flow: its carries, and what is stacked."""
    found: dict[Key, int] = {}
    body, outputs = flow.bodies[-1], flow.outputs[-1]
    for step in body:
        if isinstance(step, Segment):
            sizes = _output_bytes(step.piece(opened))
            for key, output in zip(flow.results, outputs, strict=False):
                if output in sizes:
                    found[key] = sizes[output] * (1 if _carried(flow, key) else _times(flow))
    return found


def _carried(flow: ControlFlow, key: Key) -> bool:
    return flow.results.index(key) < len(carried(flow.control)) or isinstance(flow.control, Switch)


def _times(flow: ControlFlow) -> int:
    return flow.control.length if isinstance(flow.control, Scan) else 1


def _output_bytes(piece: Piece) -> dict[Key, int]:
    return {key: output.bytes for key, output in zip(piece.writes, piece.program.outputs, strict=True)}


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


def _use(
    segment: Segment,
    opened: Lengths,
    alive: Mapping[Key, int],
    ahead: int,
    first: bool,
) -> Use:
    piece = segment.piece(opened, first)
    beside = sum(size for key, size in alive.items() if key not in piece.reads)
    donated = tuple(key.kind == "state" and key in piece.writes for key in piece.reads)
    return Use(segment, tuple(opened.items()), first, piece, beside + ahead, donated)


def _open(opened: Lengths, axes: frozenset[Axis]) -> Lengths:
    return {axis: length for axis, length in opened.items() if axis in axes}
