"""Where chunks are in arrays: slices by the axes that are open, and arrays in another order of their axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.ir.axis import Axis, Layout, layout_axes, parts
from eqsat.streaming.sources import Slices


@dataclass(frozen=True)
class Position:
    """The current chunks of the loops that are running: by axis, where each begins, and how long it is."""

    starts: Mapping[Axis, int] = field(default_factory=dict)
    lengths: Mapping[Axis, int] = field(default_factory=dict)

    def within(self, axis: Axis, start: int, length: int) -> Position:
        """The position in a chunk of a further loop."""
        return Position({**self.starts, axis: start}, {**self.lengths, axis: length})

    def size(self, axis: Axis, opened: frozenset[Axis]) -> int:
        """The length of an axis of which a value is the current chunk if it is one of `opened`."""
        return self.lengths[axis] if axis in opened else axis.size

    def shape(self, layout: Layout, opened: frozenset[Axis]) -> tuple[int, ...]:
        """The shape of a chunk."""
        return tuple(math.prod(self.size(axis, opened) for axis in parts(dimension)) for dimension in layout)

    def slices(self, layout: Layout, opened: frozenset[Axis]) -> Slices:
        """Where a chunk is in an array of that layout. Of a dimension, only the first axis is open."""
        found = []
        for dimension in layout:
            first, *rest = parts(dimension) or (None,)
            inner = math.prod(axis.size for axis in rest if axis is not None)
            if first is None:
                found.append(slice(0, 1))
            elif first in opened:
                start = self.starts[first]
                found.append(slice(start * inner, (start + self.lengths[first]) * inner))
            else:
                found.append(slice(0, first.size * inner))
        return tuple(found)

    def arranged(
        self,
        values: np.ndarray[Any, Any],
        order: Sequence[Axis],
        layout: Layout,
        opened: frozenset[Axis],
    ) -> np.ndarray[Any, Any]:
        """A chunk with dimensions in one order of axes, as a chunk of an array of another layout.

        Axes that only the layout has are broadcast along.
        """
        wanted = layout_axes(layout)
        values = values.reshape([self.size(axis, opened) for axis in order])
        missing = [axis for axis in wanted if axis not in order]
        values = values.reshape((*values.shape, *(1 for _ in missing)))
        found = [*order, *missing]
        values = values.transpose([found.index(axis) for axis in wanted])
        values = np.broadcast_to(values, [self.size(axis, opened) for axis in wanted])
        return values.reshape(self.shape(layout, opened))


def can_be_sliced(layout: Layout, opened: frozenset[Axis]) -> bool:
    """Whether chunks of these axes are slices of an array: each is the first axis of its dimension."""
    return all(not opened & set(parts(dimension)[1:]) for dimension in layout)
