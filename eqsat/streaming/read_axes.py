"""Along which axes what is not in memory is read by chunks, and how much of it is touched by that."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from eqsat.ir.axis import Axis, layout_axes, layout_shape, parts
from eqsat.ir.moved_arrays import Moved, Whole
from eqsat.ir.moved_windows import Windows
from eqsat.ir.ops import Leaf
from eqsat.ir.picked_entries import picked_axes
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.streaming.accounting import longest_chunks, reading, whole_bytes
from eqsat.streaming.steps import Load, Streaming
from eqsat.streaming.storage_blocks import Blocks, touched

MOST_AXES = 4
"""How many axes of inputs may be looped over, unless more of them are the longest ones of inputs."""

MOST_LONGEST = 12
"""How many axes may be looped over that are the longest ones of inputs."""

SMALL = 8
"""A slice of an input along a streamed axis takes at most the free memory divided by this."""


@dataclass(frozen=True)
class ReadAxes:
    """The axes of the inputs of a program that are not in memory.

    **Attributes:**

    - `streamed`: the positions of these inputs.
    - `moved`: what some of them are of others, by position.
    - `tables`: the positions of those of which only entries are read that indices pick.
    - `blocks`: by position, the pieces that the others lie in.
    """

    program: Program
    streamed: tuple[int, ...]
    moved: Mapping[int, Moved]
    tables: Collection[int]
    blocks: Blocks

    @property
    def shares(self) -> dict[int, float]:
        """By position, how much is read, as a share of the size."""
        moved = {position: self.moved.get(position) for position in self.streamed}
        return {n: one.share if isinstance(one, Windows) else 1.0 for n, one in moved.items()}

    def over(self, free: int) -> tuple[Axis, ...]:
        """The axes that may be looped over: the longest of each input, and then the others.

        **Arguments:**

        - `free`: bytes of memory for chunks, and what is made of them.
        """
        found = set(picked_axes(self.program, free // SMALL))
        longest = set(found)
        for position, leaf in self._read():
            assert isinstance(leaf.op, Leaf)
            longest |= self._longest(position, leaf)
            for dimension in leaf.op.layout:
                axis = next(iter(parts(dimension)), None)
                once = layout_axes(leaf.op.layout).count(axis) == 1 if axis else False
                if axis is not None and once and axis.size > 1 and leaf.bytes // axis.size <= free // SMALL:
                    found.add(axis)
        ordered = sorted(found, key=lambda axis: (-axis.size, axis.id))
        first = [axis for axis in ordered if axis in longest][:MOST_LONGEST]
        others = [axis for axis in ordered if axis not in first]
        return (*first, *others[: max(0, MOST_AXES - len(first))])

    def touched_bytes(self, streaming: Streaming, lengths: Mapping[int, int], room: float) -> int:
        """Bytes that are touched in a whole run, where what is not in memory lies.

        **Arguments:**

        - `lengths`: of the chunks, by pass.
        - `room`: bytes of the host's memory for pieces of datasets.
        """
        chunks, found = longest_chunks(streaming, lengths), 0.0
        inputs = streaming.program.inputs
        for load, times in reading(streaming.steps, lengths):
            factor = 1.0
            if isinstance(load, Load) and load.kind == "input":
                opened = {
                    number: axis
                    for number, dimension in enumerate(load.layout)
                    if (axis := next(iter(parts(dimension)), None)) in load.open and axis is not None
                }
                factor = self._touched(load.source, inputs[load.source], opened, chunks, room)
            found += times * whole_bytes(load) * factor
        return round(found)

    def _read(self) -> Iterator[tuple[int, Term]]:
        """The inputs that are read by chunks, and their positions."""
        read = {term.number for term in self.program.known()}
        for position in self.streamed:
            leaf = self.program.inputs[position]
            if position not in self.tables and leaf.number in read:
                yield position, leaf

    def _longest(self, position: int, leaf: Term) -> set[Axis]:
        """The axis along which an input is read first of all: that of windows, or else its longest one."""
        moved, axes = self.moved.get(position), leaf.axes
        if isinstance(moved, Windows):
            assert isinstance(leaf.op, Leaf)
            own = layout_axes(leaf.op.layout[moved.dimension : moved.dimension + len(moved.sizes)])
            extents = {axis: abs(step) * axis.size for axis, step in zip(own, moved.steps, strict=True)}
            return {max(own, key=lambda axis: (extents[axis], axis.size))}
        return {max(axes, key=lambda axis: axis.size)} if axes else set()

    def _touched(
        self,
        position: int,
        leaf: Term,
        opened: Mapping[int, Axis],
        lengths: Mapping[Axis, int],
        room: float,
    ) -> float:
        """How many times as much is touched as is read, of chunks of the first axes of some dimensions."""
        assert isinstance(leaf.op, Leaf)
        shape = list(layout_shape(leaf.op.layout))
        moved = self.moved.get(position) or Whole(position, tuple(shape))
        for number, axis in opened.items():
            shape[number] = lengths[axis] * prod(each.size for each in parts(leaf.op.layout[number])[1:])
        return touched(moved, shape, self.blocks, room)
