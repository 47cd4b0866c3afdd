"""What is in the memory of each device while the segments of a program run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan, Switch, carried
from eqsat.streaming.accounting import Lengths, ahead_bytes, load_bytes, longest_chunks, variants
from eqsat.streaming.device_parts import ONE_DEVICE, DeviceParts
from eqsat.streaming.keys import Key
from eqsat.streaming.segments import Piece, Segment
from eqsat.streaming.states import part_bytes
from eqsat.streaming.steps import ControlFlow, Load, Pass, Picking, Step, Streaming, needs


@dataclass(frozen=True)
class Use:
    """A segment at certain chunk lengths, and what is in the device's memory while it runs.

    **Attributes:**

    - `first`: whether it works on the first chunk of the loop around it.
    - `beside`: bytes of arrays that it does not read: those that later steps read, what is read ahead, and
      what was read before and is not yet free.
    - `donated`: by input, whether an output takes its place.
    """

    segment: Segment
    lengths: tuple[tuple[Axis, int], ...]
    first: bool
    piece: Piece
    beside: int
    donated: tuple[bool, ...]


@dataclass(frozen=True)
class StepUses:
    """The segments of a program at all lengths at which they run.

    **Attributes:**

    - `lengths`: of chunks, by pass.
    - `arguments`: bytes of the arguments that are on the device, by position.
    - `parts`: how devices share out chunks.
    - `late`: how many chunks a device may still hold when all that reads them has ended.
    """

    streaming: Streaming
    lengths: Mapping[int, int]
    arguments: Mapping[int, int]
    parts: DeviceParts = ONE_DEVICE
    late: int = 0

    def __iter__(self) -> Iterator[Use]:
        steps = self.streaming.steps
        sizes = {Key("argument", number): count for number, count in self.arguments.items()}
        ahead = ahead_bytes(steps, longest_chunks(self.streaming, self.lengths), self._shared(steps))
        yield from self._in_steps(steps, {}, sizes, frozenset(), (1 + self.late) * ahead, False)

    def _shared(self, steps: Sequence[Step]) -> dict[Axis, int]:
        """By axis of the outermost passes, how much of a chunk a device has at most."""
        found: dict[Axis, int] = {}
        for step in steps:
            shares: dict[Axis, int] = {}
            if isinstance(step, Pass):
                lengths = variants(step, self.lengths[step.id])
                shares = {step.axis: max(self.parts.share(length) for length, _ in lengths)}
            elif isinstance(step, ControlFlow):
                shares = self._shared([inner for body in step.bodies for inner in body])
            for axis, share in shares.items():
                found[axis] = max(found.get(axis, 0), share)
        return found

    def _in_steps(
        self,
        steps: Sequence[Step],
        opened: Lengths,
        sizes: Mapping[Key, int],
        later: Collection[Key],
        ahead: int,
        first: bool,
    ) -> Iterator[Use]:
        """The segments in some steps, of which what is in `later` is needed afterwards."""
        alive = dict(sizes)
        shared = self.parts.shared(opened)
        for number, step in enumerate(steps):
            needed = needs(steps[number + 1 :], set(later))
            match step:
                case Load(key=key) | Picking(key=key):
                    alive[key] = load_bytes(step, shared)
                case Segment():
                    use = _use(step, opened, alive, ahead, first)
                    yield use
                    alive |= self._output_bytes(step, opened, use.piece)
                case Pass():
                    states = {s.key: part_bytes(s.part, _open(shared, s.open)) for s in step.states}
                    around = {**alive, **states}
                    again = needs(step.steps, {one.key for one in step.written} | states.keys()) | needed
                    for length, starts in variants(step, self.lengths[step.id]):
                        inside = {**opened, step.axis: length}
                        mine = self.parts.shared(inside)
                        chunk = around | {load.key: load_bytes(load, mine) for load in step.loads}
                        chunk |= {s.key: part_bytes(s.part, _open(shared, s.open)) for s in step.restored}
                        yield from self._in_steps(step.steps, inside, chunk, again, ahead, starts)
                    alive |= states
                case ControlFlow():
                    yield from self._in_bodies(step, opened, alive, needed, ahead)
                    alive |= dict.fromkeys(step.results, 0) | self._result_bytes(step, opened)
            alive = {
                key: size
                for key, size in alive.items()
                if key in needed or key.kind in ("argument", "result")
            }

    def _in_bodies(
        self,
        flow: ControlFlow,
        opened: Lengths,
        sizes: Mapping[Key, int],
        needed: Collection[Key],
        ahead: int,
    ) -> Iterator[Use]:
        """The segments in the bodies of control flow, each with the carries before and after an iteration."""
        alive = dict(sizes) | self._result_bytes(flow, opened)
        around = set(needed) | set(flow.reads) | set(flow.results)
        for entries, body, outputs in zip(flow.entries, flow.bodies, flow.outputs, strict=True):
            keys = {entry.key for entry in entries}
            # Inputs of bodies are carries, which are counted, operands, or slices of operands.
            inside = alive | dict.fromkeys(keys, 0)
            yield from self._in_steps(body, opened, inside, around | keys | set(outputs), ahead, False)

    def _result_bytes(self, flow: ControlFlow, opened: Lengths) -> dict[Key, int]:
        """Bytes of the results of control flow: its carries, and what is stacked."""
        found: dict[Key, int] = {}
        body, outputs = flow.bodies[-1], flow.outputs[-1]
        for step in body:
            if isinstance(step, Segment):
                sizes = self._output_bytes(step, opened, step.piece(opened))
                for key, output in zip(flow.results, outputs, strict=False):
                    if output in sizes:
                        found[key] = sizes[output] * (1 if _carried(flow, key) else _times(flow))
        return found

    def _output_bytes(self, segment: Segment, opened: Lengths, piece: Piece) -> dict[Key, int]:
        return dict(zip(piece.writes, self.parts.output_bytes(segment, opened, piece), strict=True))


def _carried(flow: ControlFlow, key: Key) -> bool:
    return flow.results.index(key) < len(carried(flow.control)) or isinstance(flow.control, Switch)


def _times(flow: ControlFlow) -> int:
    return flow.control.length if isinstance(flow.control, Scan) else 1


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
