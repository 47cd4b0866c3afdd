"""Runs the steps of a program: passes read, compute and write chunk by chunk, and can stop after any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.axis import layout_axes
from eqsat.ir.constants import constant_value
from eqsat.ir.control import Scan, Switch, While
from eqsat.ir.dtypes import numpy_dtype
from eqsat.ir.ops import Const
from eqsat.streaming.buffers import Buffers
from eqsat.streaming.device_parts import part_on_host, whole_on_host
from eqsat.streaming.keys import Key
from eqsat.streaming.picking import read_picked
from eqsat.streaming.places import Position
from eqsat.streaming.planner import StreamedProgram
from eqsat.streaming.prefetch import Prefetcher
from eqsat.streaming.segments import Segment
from eqsat.streaming.sinks import Sink
from eqsat.streaming.sources import MovedSource, Source
from eqsat.streaming.steps import (
    ControlFlow,
    Load,
    Pass,
    Picking,
    Result,
    State,
    Step,
    Written,
    needs,
    reads_back,
)

Array = np.ndarray[Any, Any]

Path = tuple[tuple[int, int], ...]
"""How far a run has come: for each loop that is running, the number of its step, and of its chunk."""


@dataclass(frozen=True)
class KeptResult:
    """Where an output goes, and the layout that it has there."""

    sink: Sink
    result: Result


@dataclass
class Execution:
    """One run of a program.

    **Attributes:**

    - `sources`: the arguments that are read by chunks, by position.
    - `kept`: where outputs go, by the number of the kept result that they are.
    - `arrays`: what the device holds, by name; and states that are saved, which are arrays of NumPy.
    - `read_bytes`: how much has been read.
    - `at_chunk`: is called after every chunk.
    - `double`: whether JAX has 64-bit numbers enabled.
    - `path`: how far it has come.
    """

    program: StreamedProgram
    sources: Mapping[int, Source | MovedSource]
    kept: Mapping[int, Sequence[KeptResult]]
    arrays: dict[Key, Any]
    at_chunk: Callable[[Execution], None]
    double: bool = False
    path: list[tuple[int, int]] = field(default_factory=list)
    read_bytes: int = 0
    _reader: Prefetcher[tuple[Pass, Position]] | None = None
    _buffers: Buffers = field(default_factory=Buffers)

    def run(self, resumed: Path = ()) -> None:
        """Run all steps, or those after a chunk at which an earlier run stopped."""
        self._steps(self.program.streaming.steps, Position(), frozenset(), False, resumed)

    def _steps(
        self, steps: Sequence[Step], at: Position, later: frozenset[Key], first: bool, resumed: Path
    ) -> None:
        for number, step in enumerate(steps):
            if resumed and number < resumed[0][0]:
                continue
            needed = frozenset(needs(steps[number + 1 :], set(later)))
            match step:
                case Load(key=key):
                    self.arrays[key], _ = self.program.parts.together(partial(self._read, step, at))
                case Picking(key=key):
                    self.arrays[key] = self.program.parts.together(partial(self._pick, step, at))
                case Segment():
                    self._segment(step, at, first)
                case ControlFlow():
                    self._control(step, number, at, needed, resumed)
                case Pass() if self._reader is not None:
                    self._pass(step, number, at, needed, resumed)
                case Pass():
                    if reads_back((step,)):
                        self.program.parts.wait("what is read back is written")
                    items = chunks(step, self.program.lengths, at, resumed[1:], resumed[:1])
                    with Prefetcher(items, self._read_all) as self._reader:
                        try:
                            self._pass(step, number, at, needed, resumed)
                        finally:
                            self._reader = None
            resumed = ()
            self._keep(needed)

    def _keep(self, needed: frozenset[Key]) -> None:
        gone = [key for key in self.arrays if key not in needed and key.kind not in ("argument", "result")]
        for key in gone:
            del self.arrays[key]

    def _segment(self, segment: Segment, at: Position, first: bool) -> None:
        key = (segment, tuple(at.lengths.items()), first)
        compiled = self.program.programs[key]
        starts = {Key("start", axis.id): np.int32(start) for axis, start in at.starts.items()}
        values = [starts[name] if name.kind == "start" else self.arrays[name] for name in compiled.reads]
        for name, donated in zip(compiled.reads, compiled.donated, strict=True):
            if donated:
                del self.arrays[name]
        results = compiled.compilation.run(*values, donated=compiled.donated)
        # What a computation reads is held until it ends, even if it is dropped before. What comes next would
        # be given memory of its own meanwhile, beyond what is certified.
        jax.block_until_ready(results)
        del values
        self.arrays.update(zip(compiled.writes, results, strict=True))

    def _pass(self, one: Pass, number: int, at: Position, needed: frozenset[Key], resumed: Path) -> None:
        length = self.program.lengths[one.id]
        begins, inside = 0, resumed[1:]
        states = {state.key for state in one.states} | {state.saved for state in one.saved}
        if resumed:
            begins = resumed[0][1] + (0 if inside else 1)
        else:
            self.arrays |= {state.key: self._initial(state, at) for state in one.states if state.part.initial}
        kept = states | {written.key for written in one.written}
        after = needed | needs(one.steps, kept) | {state.saved for state in one.restored}
        starts_apart = any(state.part.initial is None and not state.part.given for state in one.states)
        for chunk in range(begins, -(-one.axis.size // length)):
            here = at.within(one.axis, *one.chunk(chunk, length))
            buffers: list[Array] = []
            if not inside:
                assert self._reader is not None
                loaded, buffers = self.program.parts.together(self._reader.next)
                self.arrays |= loaded
                self.read_bytes += sum(round(loaded[load.key].nbytes * load.share) for load in one.loads)
                del loaded
                self._exchange(one, here.starts[one.axis] // length, length)
            self.path.append((number, chunk))
            self._steps(one.steps, here, after | kept, starts_apart and chunk == 0, inside)
            inside = ()
            for written in one.written:
                self.program.parts.together(partial(self._write, written, here))
            gone = {load.key for load in one.loads} | {written.key for written in one.written}
            self._keep(frozenset((after | states) - gone))
            jax.block_until_ready(
                [self.arrays[state.key] for state in one.states if state.key in self.arrays]
            )
            while buffers:
                self._buffers.give_back(buffers.pop())
            self.at_chunk(self)
            self.path.pop()

    def _exchange(self, one: Pass, chunk: int, length: int) -> None:
        """Save the states that a pass has before a chunk, and restore those of earlier passes."""
        for state in one.saved:
            value = whole_on_host(self.arrays[state.key])
            if state.saved not in self.arrays:
                count = -(-one.axis.size // length)
                self.arrays[state.saved] = np.empty((count, *value.shape), value.dtype)
            self.arrays[state.saved][chunk] = value
        for state in one.restored:
            self.arrays[state.key] = self.program.parts.whole(self.arrays[state.saved][chunk])

    def _initial(self, state: State, at: Position) -> jax.Array:
        part = state.part
        assert part.initial is not None
        value = constant_value(Const(part.initial, part.dtype))
        if not jnp.issubdtype(part.dtype, jnp.inexact) and not isinstance(value, bool):
            value = int(part.initial)
        return self.program.parts.filled(at, part.axes, state.open, value, part.dtype)

    # Control flow

    def _control(
        self, flow: ControlFlow, number: int, at: Position, needed: frozenset[Key], resumed: Path
    ) -> None:
        """Run a loop or a choice. Passes inside have readers of their own."""
        reader, self._reader = self._reader, None
        later = needed | flow.reads | frozenset(flow.results)
        turn, place = divmod(resumed[0][1], len(flow.bodies)) if resumed else (0, 0)
        inside = resumed[1:]

        def body(which: int, turn: int, values: Mapping[int, jax.Array]) -> list[jax.Array]:
            nonlocal inside
            keys = frozenset(entry.key for entry in flow.entries[which])
            if not inside:
                for entry in flow.entries[which]:
                    operand = flow.operands[entry.operand]
                    value = values.get(entry.operand)
                    if operand is not None and value is None:
                        value = self.arrays[operand]
                    assert value is not None
                    self.arrays[entry.key] = value
            self.path.append((number, turn * len(flow.bodies) + which))
            outputs = frozenset(flow.outputs[which])
            self._steps(flow.bodies[which], at, later | keys | outputs, False, inside)
            inside = ()
            self.path.pop()
            found = [self.arrays[key] for key in flow.outputs[which]]
            self._keep(later)
            return found

        match flow.control:
            case Switch():
                place = place if resumed else self._choice(flow)
                self.arrays.update(zip(flow.results, body(place, 0, {}), strict=True))
            case While(carried=positions):
                if not resumed:
                    self._carry(flow, positions)
                while True:
                    values = {p: self.arrays[key] for p, key in zip(positions, flow.results, strict=True)}
                    if place == 0 and not bool(body(0, turn, values)[0]):
                        break
                    place = 0
                    self.arrays.update(zip(flow.results, body(1, turn, values), strict=True))
                    turn += 1
            case Scan(carried=positions, sliced=sequences, length=length, reverse=reverse):
                if not resumed:
                    self._carry(flow, positions)
                if not length:
                    stacked_keys = flow.results[len(positions) :]
                    for one in flow.known:
                        if one.key in stacked_keys:
                            self.arrays[one.key] = jnp.zeros(at.shape(one.layout, one.open), one.dtype)
                for each in range(turn, length):
                    index = length - 1 - each if reverse else each
                    values = {p: self.arrays[key] for p, key in zip(positions, flow.results, strict=False)}
                    for position in sequences:
                        operand = flow.operands[position]
                        assert operand is not None
                        # A static index would compile a program of its own for every iteration.
                        values[position] = jax.lax.dynamic_index_in_dim(
                            self.arrays[operand], np.int32(index), keepdims=False
                        )
                    outputs = body(0, each, values)
                    carries, stacked = outputs[: len(positions)], outputs[len(positions) :]
                    self.arrays.update(zip(flow.results, carries, strict=False))
                    for key, entry in zip(flow.results[len(positions) :], stacked, strict=True):
                        whole = self.arrays.get(key)
                        if whole is None:
                            whole = self.program.parts.stacked(length, entry)
                        self.arrays[key] = jax.lax.dynamic_update_index_in_dim(whole, entry, index, 0)
        self._reader = reader

    def _carry(self, flow: ControlFlow, positions: Sequence[int]) -> None:
        for position, key in zip(positions, flow.results, strict=False):
            operand = flow.operands[position]
            if operand is None:
                raise EqsatError("a loop carries an argument that is read by chunks")
            self.arrays[key] = self.arrays[operand]

    def _choice(self, flow: ControlFlow) -> int:
        operand = flow.operands[0]
        assert operand is not None
        return min(max(int(self.arrays[operand]), 0), len(flow.bodies) - 1)

    # Reading and writing

    def _read_all(self, item: tuple[Pass, Position]) -> tuple[dict[Key, jax.Array], list[Array]]:
        """The chunks that a pass reads at a position, and the memory that they are in."""
        one, at = item
        found, buffers = {}, []
        with jax.enable_x64(self.double):  # which is a setting of each thread
            for load in one.loads:
                found[load.key], memory = self._read(load, at)
                buffers += memory
        return found, buffers

    def _read(self, load: Load, at: Position) -> tuple[jax.Array, list[Array]]:
        """A chunk on the devices, and the memory that its parts are in."""
        buffers: list[Array] = []

        def part(at: Position, _: jax.Device | None) -> Array:
            into = self._buffers.take(at.shape(load.layout, load.open), numpy_dtype(load.dtype))
            buffers.append(into)
            self._read_part(load, at, into)
            return into

        return self.program.parts.arranged(at, load.layout, load.open, part), buffers

    def _read_part(self, load: Load, at: Position, into: Array) -> None:
        if load.kind == "input":
            self.sources[load.source].read(at.slices(load.layout, load.open), into)
            return
        kept = self.kept[load.source][0]
        layout, order = kept.result.layout, layout_axes(kept.result.layout)
        kept.sink.read(
            at.slices(layout, load.open),
            into,
            lambda found: at.arranged(found, order, load.layout, load.open),
        )

    def _pick(self, step: Picking, at: Position) -> jax.Array:
        indices = self.arrays[step.indices]

        def part(at: Position, device: jax.Device | None) -> Array:
            into = np.empty(at.shape(step.layout, step.open), numpy_dtype(step.dtype))
            around = at.slices(step.table, step.open)
            read_picked(self.sources[step.source], step.pick, part_on_host(indices, device), around, into)
            self.read_bytes += into.nbytes
            return into

        return self.program.parts.arranged(at, step.layout, step.open, part)

    def _write(self, written: Written, at: Position) -> None:
        found = self.program.parts.on_host(self.arrays[written.key], at, written.layout, written.open)
        for here, values in found:
            for kept in self.kept[written.result]:
                layout = kept.result.layout
                arranged = here.arranged(values, written.order, layout, written.open)
                kept.sink.write(here.slices(layout, written.open), arranged)


def chunks(
    one: Pass, lengths: Mapping[int, int], at: Position, inside: Path = (), begun: Path = ()
) -> Iterator[tuple[Pass, Position]]:
    """The chunks of a pass, and of those inside, in the order in which they are read.

    **Arguments:**

    - `begun`, `inside`: how far an earlier run came in this pass, and in those inside.
    """
    length = lengths[one.id]
    begins = begun[0][1] + (0 if inside else 1) if begun else 0
    for chunk in range(begins, -(-one.axis.size // length)):
        here = at.within(one.axis, *one.chunk(chunk, length))
        if not inside:
            yield one, here
        for number, step in enumerate(one.steps):
            if inside and number < inside[0][0]:
                continue
            if isinstance(step, Pass):
                yield from chunks(step, lengths, here, inside[1:], inside[:1])
            inside = ()
