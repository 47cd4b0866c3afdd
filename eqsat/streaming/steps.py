"""The steps of a program whose loops over chunks run in Python, as data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.control import Control
from eqsat.ir.dtypes import numpy_dtype
from eqsat.ir.picked_entries import Pick
from eqsat.ir.program import Program
from eqsat.streaming.keys import Key
from eqsat.streaming.segments import Known, Segment
from eqsat.streaming.states import Part


@dataclass(frozen=True)
class Load:
    """A chunk, or all, of an array outside the device's memory, which is read and sent to the device.

    **Attributes:**

    - `key`: what the chunk is called there.
    - `kind`, `source`: "input" and its position, or "result" and the number of what an earlier pass wrote.
    - `layout`: the dimensions of the array that it comes from.
    - `open`: the axes of which it is the current chunk.
    - `share`: how much is read for it, as a share of its size: less where windows overlap.
    """

    key: Key
    kind: str
    source: int
    layout: Layout
    dtype: str
    open: frozenset[Axis]
    share: float = 1.0


@dataclass(frozen=True)
class Picking:
    """Entries of an array outside the device's memory, which indices on the device pick.

    **Attributes:**

    - `key`: what they are called on the device.
    - `source`: the position of the array, of dimensions `table`.
    - `indices`: their key: an array with one column for each dimension that they are of.
    - `layout`: the dimensions of the entries.
    - `open`: the axes of which they are the current chunk.
    """

    key: Key
    source: int
    table: Layout
    indices: Key
    pick: Pick
    layout: Layout
    dtype: str
    open: frozenset[Axis]

    @property
    def reads(self) -> frozenset[Key]:
        """What it reads that is on the device before it."""
        return frozenset({self.indices})

    @property
    def index_axes(self) -> tuple[Axis, ...]:
        """The axes of the indices."""
        behind = len(self.table) - len(self.pick.dropped)
        return layout_axes(self.layout[: len(self.layout) - behind])


@dataclass(frozen=True)
class Written:
    """A chunk of a result that goes to where the result is kept outside the device's memory.

    **Attributes:**

    - `result`: the number of the result's term.
    - `layout`: the chunk's dimensions.
    - `open`: the axes of which it is the current chunk.
    """

    key: Key
    result: int
    layout: Layout
    open: frozenset[Axis]

    @property
    def order(self) -> tuple[Axis, ...]:
        """The axes of its dimensions."""
        return layout_axes(self.layout)


@dataclass(frozen=True)
class State:
    """An array that a pass carries from chunk to chunk; `open` are the axes of the loops around the pass."""

    key: Key
    part: Part
    open: frozenset[Axis]

    @property
    def saved(self) -> Key:
        """What it is called on the host, with an entry for each chunk."""
        return replace(self.key, kind="saved")


@dataclass(frozen=True, eq=False)
class Pass:
    """A loop over the chunks of an axis that runs in Python.

    **Attributes:**

    - `id`: of the loop in its program.
    - `shortest`: the shortest length that its chunks may have.
    - `combines`: how it combines the chunks into its results, in words.
    - `loads`: what is read for each chunk, before the steps.
    - `reverse`: whether it begins with the last chunk.
    - `saved`: those of `states` of which it keeps, on the host, what they are before each chunk.
    - `restored`: the states that an earlier pass over the same chunks has saved.
    """

    id: int
    axis: Axis
    shortest: int
    combines: tuple[str, ...]
    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    states: tuple[State, ...]
    written: tuple[Written, ...]
    reverse: bool = False
    saved: tuple[State, ...] = ()
    restored: tuple[State, ...] = ()

    def chunk(self, number: int, length: int) -> tuple[int, int]:
        """Where the chunk of a number begins if chunks are so long, and its length."""
        if self.reverse:
            number = -(-self.axis.size // length) - 1 - number
        start = number * length
        return start, min(length, self.axis.size - start)

    @cached_property
    def reads(self) -> frozenset[Key]:
        """What it reads that is there before it."""
        made = {load.key for load in self.loads} | {Key("start", self.axis.id)}
        made |= {state.key for state in self.states if not state.part.given}
        made |= {state.key for state in self.restored}
        found = {state.key for state in self.states if state.part.given}
        found |= {state.saved for state in self.restored}
        return frozenset(found | needs(self.steps, {one.key for one in self.written}) - made)


@dataclass(frozen=True)
class Entry:
    """An input of a body of control flow: what it is called, and the operand that it comes from."""

    key: Key
    operand: int


@dataclass(frozen=True, eq=False)
class ControlFlow:
    """A loop or a choice of the program that runs in Python, since its bodies make passes.

    **Attributes:**

    - `id`: unique in the program.
    - `operands`: by position, the array; None for one that bodies read by chunks.
    - `entries`, `bodies`, `outputs`: for each body, its inputs, its steps, and the arrays that it computes.
    - `results`: by number of a result, what it is called.
    - `known`: of those that later steps read, also the dimensions.
    """

    id: int
    control: Control
    operands: tuple[Key | None, ...]
    entries: tuple[tuple[Entry, ...], ...]
    bodies: tuple[tuple[Step, ...], ...]
    outputs: tuple[tuple[Key, ...], ...]
    results: tuple[Key, ...]
    known: tuple[Known, ...]

    @cached_property
    def reads(self) -> frozenset[Key]:
        """What it reads that is there before it."""
        return frozenset(key for key in self.operands if key is not None)


Step = Segment | Pass | Load | Picking | ControlFlow


@dataclass(frozen=True)
class Kept:
    """A value that is kept outside the device's memory, chunk by chunk; `axes` are its dimensions."""

    number: int
    axes: tuple[Axis, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        return math.prod(axis.size for axis in self.axes) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Result:
    """Where an output of the program is in the end.

    **Attributes:**

    - `kind`: "device", or "kept" by chunks outside the device's memory.
    - `number`: of the output, or of the kept result.
    - `layout`: the dimensions of the output.
    """

    kind: str
    number: int
    layout: Layout


@dataclass(frozen=True, eq=False)
class Streaming:
    """A whole program as steps; for each output, `results` says where it is in the end.

    `axes` are those along which it may read by chunks.
    """

    program: Program
    steps: tuple[Step, ...]
    kept: tuple[Kept, ...]
    results: tuple[Result, ...]
    axes: frozenset[Axis]

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """All passes, outer before inner."""
        return tuple(passes_in(self.steps))

    def leaves_device(self, result: Result) -> bool:
        """Whether an output is no array of the device in the end, as it has an axis of a pass."""
        return any(one.axis in layout_axes(result.layout) for one in self.passes)

    @cached_property
    def digest(self) -> str:
        """What tells the program from others for the same function, also in another process."""
        terms = [
            (
                term.number,
                type(term.op).__name__,
                getattr(term.op, "name", getattr(term.op, "kind", "")),
                term.dtype,
                sorted((axis.id, axis.size) for axis in term.axes),
                [arg.number for arg in term.args],
            )
            for term in self.program.reachable()
        ]
        passes = [
            (one.id, one.axis.id, [each.key for each in one.states], [each.key for each in one.loads])
            for one in self.passes
        ]
        return hashlib.sha256(repr((terms, passes)).encode()).hexdigest()


def passes_in(steps: Sequence[Step]) -> Iterator[Pass]:
    """All passes in some steps, outer before inner."""
    for step in steps:
        if isinstance(step, Pass):
            yield step
        for inner in inner_steps(step):
            yield from passes_in(inner)


def outermost(steps: Sequence[Step]) -> frozenset[int]:
    """The numbers of the passes that are in no other."""
    found = frozenset[int]()
    for step in steps:
        if isinstance(step, Pass):
            found |= {step.id}
        elif isinstance(step, ControlFlow):
            found = found.union(*map(outermost, step.bodies))
    return found


def reads_back(steps: Sequence[Step]) -> bool:
    """Whether some steps read what an earlier pass has written."""
    loads = [load for step in steps for load in (step.loads if isinstance(step, Pass) else (step,))]
    return any(isinstance(load, Load) and load.kind == "result" for load in loads) or any(
        reads_back(inner) for step in steps for inner in inner_steps(step)
    )


def inner_steps(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps inside a step."""
    match step:
        case Pass(steps=steps):
            return (steps,)
        case ControlFlow(bodies=bodies):
            return bodies
    return ()


def reads(step: Step) -> frozenset[Key]:
    """What a step reads that is there before it."""
    return frozenset() if isinstance(step, Load) else frozenset(step.reads)


def writes(step: Step) -> frozenset[Key]:
    """What a step leaves on the device."""
    match step:
        case Load(key=key) | Picking(key=key):
            return frozenset({key})
        case Segment():
            return frozenset(step.writes)
        case Pass(states=states, saved=saved):
            return frozenset([*(state.key for state in states), *(state.saved for state in saved)])
        case ControlFlow(results=results):
            return frozenset(results)
    raise AssertionError(step)


def needs(steps: Sequence[Step], later: set[Key]) -> set[Key]:
    """What must be there before some steps, so that these, and what comes later, have what they read."""
    needed = set(later)
    for step in reversed(steps):
        needed = (needed - writes(step)) | reads(step)
    return needed
