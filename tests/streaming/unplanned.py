"""Runs functions by passes over their arguments, with steps that are compiled but not planned."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.compiler.program_function import program_function
from eqsat.compiler.settings import Settings
from eqsat.frontend.trace import trace
from eqsat.ir.axis import Axis
from eqsat.ir.spec import check_program
from eqsat.streaming.accounting import load_bytes
from eqsat.streaming.chunk_lengths import usable
from eqsat.streaming.execution import Execution, KeptResult, Path
from eqsat.streaming.keys import Key
from eqsat.streaming.planner import StreamedProgram, StreamPlanner
from eqsat.streaming.segments import Piece, Segment
from eqsat.streaming.sinks import Sink
from eqsat.streaming.sources import Source, moved_sources
from eqsat.streaming.steps import Load, Step, Streaming, inner_steps
from eqsat.targets.calibration import default_target


class UnplannedPiece:
    """A piece as it is written, with the attributes of a planned one."""

    def __init__(self, piece: Piece) -> None:
        check_program(piece.program)
        self.reads, self.writes = piece.reads, piece.writes
        self.donated = tuple(key.kind == "state" and key in self.writes for key in self.reads)
        names = [f"x{number}" for number in range(len(self.reads))]
        self._run = jax.jit(program_function(piece.program, names, default_target().machine))

    @property
    def compilation(self) -> UnplannedPiece:
        return self

    def run(self, *values: Any, donated: tuple[bool, ...] = ()) -> Sequence[Any]:
        assert donated == self.donated
        results: Sequence[Any] = self._run(*values)
        return results


class UnplannedPieces(dict[Any, Any]):
    """The pieces of a program, made when they are asked for."""

    def __missing__(self, key: tuple[Segment, tuple[tuple[Axis, int], ...], bool]) -> UnplannedPiece:
        segment, lengths, first = key
        self[key] = UnplannedPiece(segment.piece(dict(lengths), first))
        return self[key]


@functools.cache
def pieces_of(steps: Streaming) -> UnplannedPieces:
    """The pieces of a program, which all runs of it share."""
    return UnplannedPieces()


def planner(
    fn: Callable[..., Any],
    args: Sequence[Any],
    streamed: Sequence[int],
    accuracy: str = "reassociates",
) -> StreamPlanner:
    closed = trace(fn, tuple(args), {}).closed
    names = [f"argument_{number}" for number in range(len(closed.in_avals))]
    settings, unnamed = Settings(None, (), accuracy, None), [True] * len(closed.out_avals)
    return StreamPlanner(closed, streamed, settings, default_target(), "f", names, unnamed)


def every_steps(planner: StreamPlanner, free: int) -> Iterator[Streaming]:
    """The steps of all programs that are found. They are extracted within the planner's settings."""
    axes = planner.axes.over(free)
    for candidate in planner._candidates(free, axes):
        yield planner._steps(candidate, frozenset(axes))


def steps_of(planner: StreamPlanner, free: int) -> Streaming:
    """The steps of the first program that reads nothing larger than the free memory at once.

    **Raises:** `StopIteration` if there is none.
    """
    with planner.settings.alone():
        return next(steps for steps in every_steps(planner, free) if _reads_little(steps.steps, free))


def _reads_little(steps: Sequence[Step], free: int) -> bool:
    return all(
        not (isinstance(step, Load) and load_bytes(step, {}) > free)
        and all(_reads_little(inner, free) for inner in inner_steps(step))
        for step in steps
    )


def run_by_passes(
    planner: StreamPlanner,
    steps: Streaming,
    args: Sequence[Any],
    length: int | Mapping[int, int],
    stop: Callable[[Execution], None] = lambda _: None,
    resumed: tuple[Path, Mapping[Key, Any]] = ((), {}),
    sinks: Sequence[Sink | None] | None = None,
) -> list[Any]:
    """The results with chunks of about `length` entries along every axis.

    **Arguments:**

    - `length`: or of just as many as it says, by pass.
    - `stop`: is called after each chunk.
    - `resumed`: how far an earlier run came, and what it held.
    - `sinks`: where results go, which an earlier run may have begun to write.
    """
    lengths = length if isinstance(length, Mapping) else {one.id: usable(one, length) for one in steps.passes}
    candidate: Any = None  # which runs need not know
    program = StreamedProgram(steps, lengths, pieces_of(steps), 0, 0, planner.hoisted, 0.0, 0, candidate)
    read = [number for number in planner.streamed if number not in planner.moved]
    sources: dict[int, Any] = {number: Source(args[number], f"x{number}") for number in read}
    sources |= moved_sources(planner.moved, sources)
    arrays: dict[Key, Any] = {
        Key("argument", number): jnp.asarray(arg)
        for number, arg in enumerate([*args, *planner.hoisted])
        if number not in planner.streamed
    }
    arrays |= {
        key: np.array(value) if key.kind == "saved" else jnp.asarray(value)
        for key, value in resumed[1].items()
    }
    sinks = new_sinks(planner, steps) if sinks is None else sinks
    kept: dict[int, list[KeptResult]] = {}
    for result, sink in zip(steps.results, sinks, strict=True):
        if sink is not None:
            kept.setdefault(result.number, []).append(KeptResult(sink, result))
    execution = Execution(program, sources, kept, arrays, stop)
    execution.run(resumed[0])
    return [
        execution.arrays[Key("result", number)] if sink is None else sink.array
        for number, sink in enumerate(sinks)
    ]


def new_sinks(planner: StreamPlanner, steps: Streaming) -> list[Sink | None]:
    """For each result, where it goes; None if it stays on the device."""
    return [
        Sink(np.full(aval.shape, 77, aval.dtype)) if result.kind == "kept" else None
        for result, aval in zip(steps.results, planner.closed.out_avals, strict=True)
    ]
