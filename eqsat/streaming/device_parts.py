"""How the devices of a mesh share out chunks: each receives its part of them, and all of everything else.

A chunk is split along the axis of the outermost pass, if the devices divide its length. So every array
between steps has a place that is known before anything is planned, and what a device holds can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout, parts
from eqsat.ir.dtypes import numpy_dtype
from eqsat.ir.ops import Leaf
from eqsat.streaming.places import Position
from eqsat.streaming.segments import Piece, Segment
from eqsat.targets.meshes import automatic

Array = np.ndarray[Any, Any]

R = TypeVar("R")


@dataclass(frozen=True)
class DeviceParts:
    """What each device has of chunks.

    **Attributes:**

    - `mesh`: the devices; None if there is one.
    """

    mesh: Mesh | None = None

    @staticmethod
    def of(mesh: Mesh | None) -> DeviceParts:
        """The same for a mesh that may be of one device."""
        return DeviceParts(None if mesh is None or mesh.size == 1 else automatic(mesh))

    @property
    def count(self) -> int:
        """How many devices there are."""
        return 1 if self.mesh is None else int(self.mesh.size)

    @property
    def several_processes(self) -> bool:
        """Whether some of the devices are those of other processes."""
        return self.mesh is not None and len(self.mesh.local_devices) < self.mesh.size

    @property
    def writes_whole(self) -> bool:
        """Whether it is this process that writes what all of them have."""
        return self.mesh is None or jax.process_index() == self.mesh.devices.flat[0].process_index

    def smallest(self, count: int) -> int:
        """The smallest of the counts that the processes have."""
        if not self.several_processes:
            return count
        with jax.core.eval_context():
            # JAX may have no 64-bit numbers.
            words = multihost_utils.process_allgather(np.array(divmod(count, 1 << 31), np.int32))
        return min((int(high) << 31) + int(low) for high, low in np.asarray(words))

    def wait(self, what: str) -> None:
        """Wait until all processes have come to the same point."""
        if self.several_processes:
            multihost_utils.sync_global_devices(f"eqsat: {what}")

    def together(self, action: Callable[[], R]) -> R:
        """Do what each process does by itself, such as reading: if it fails in one of them, it fails in all.

        **Raises:** what the action raises here; `EqsatError` if it failed in another process.
        """
        if not self.several_processes:
            return action()
        try:
            found = action()
        except BaseException:
            self.smallest(0)
            raise
        if not self.smallest(1):
            raise EqsatError("another process can't read or write its part: its own error says why")
        return found

    def share(self, length: int) -> int:
        """How many entries a device has of a chunk of the outermost pass."""
        split = length % self.count == 0 and length >= 2 * self.count
        return length // self.count if split else length

    def axis(self, lengths: Mapping[Axis, int]) -> Axis | None:
        """The axis that is split among the devices; None if none is.

        **Arguments:**

        - `lengths`: of the chunks of the loops around, outermost first.
        """
        first = next(iter(lengths.items()), None)
        return first[0] if first is not None and self.share(first[1]) < first[1] else None

    def shared(self, lengths: Mapping[Axis, int]) -> dict[Axis, int]:
        """The lengths of what a device has of chunks."""
        axis = self.axis(lengths)
        return {one: self.share(length) if one == axis else length for one, length in lengths.items()}

    def output_bytes(self, segment: Segment, lengths: Mapping[Axis, int], piece: Piece) -> Iterator[int]:
        """Bytes of what a device has of each result of a segment."""
        part = self._part(segment, lengths)
        for output in piece.program.outputs:
            yield output.bytes // (self.count if _is_split(output.layout, part) else 1)

    # Where arrays are

    def _part(self, segment: Segment, lengths: Mapping[Axis, int]) -> Axis | None:
        """The axis of a segment's program that is split."""
        axis = self.axis(lengths)
        return None if axis is None else segment.scope.part(axis, lengths[axis])

    def inputs(
        self, segment: Segment, lengths: Mapping[Axis, int], piece: Piece
    ) -> tuple[NamedSharding | None, ...]:
        """Where a segment's inputs are; None for places where chunks start, which are on the host."""
        if self.mesh is None:
            return ()
        part, found = self._part(segment, lengths), []
        for key, leaf in zip(piece.reads, piece.program.inputs, strict=True):
            assert isinstance(leaf.op, Leaf)
            found.append(None if key.kind == "start" else self._sharding(leaf.op.layout, part))
        return tuple(found) if any(found) else ()

    def outputs(
        self, segment: Segment, lengths: Mapping[Axis, int], piece: Piece
    ) -> tuple[NamedSharding, ...]:
        """Where a segment's results are to be."""
        if self.mesh is None:
            return ()
        part = self._part(segment, lengths)
        return tuple(self._sharding(output.layout, part) for output in piece.program.outputs)

    def _sharding(self, layout: Layout, axis: Axis | None) -> NamedSharding:
        assert self.mesh is not None
        if not _is_split(layout, axis):
            return NamedSharding(self.mesh, PartitionSpec())
        names = tuple(str(name) for name, length in self.mesh.shape.items() if length > 1)
        split = names if len(names) > 1 else names[0]
        first = [next(iter(parts(dimension)), None) for dimension in layout]
        return NamedSharding(self.mesh, PartitionSpec(*[None] * first.index(axis), split))

    # Arrays

    @cached_property
    def _number(self) -> dict[jax.Device, int]:
        assert self.mesh is not None
        return {device: number for number, device in enumerate(self.mesh.devices.flat)}

    def _split(self, at: Position, layout: Layout, opened: frozenset[Axis]) -> Axis | None:
        """The axis along which a chunk is split; None if all devices have all of it."""
        axis = self.axis(at.lengths)
        return axis if axis in opened and _is_split(layout, axis) else None

    def _place(self, at: Position, axis: Axis, device: jax.Device) -> Position:
        """Where the part of a chunk is that a device has."""
        share = self.share(at.lengths[axis])
        return at.within(axis, at.starts[axis] + self._number[device] * share, share)

    def arranged(
        self,
        at: Position,
        layout: Layout,
        opened: frozenset[Axis],
        made: Callable[[Position, jax.Device | None], Array],
    ) -> jax.Array:
        """A chunk on the devices, each part of which is made once.

        **Arguments:**

        - `made`: a part, by where it is, for a device that gets it; on one device, the whole chunk.
        """
        if self.mesh is None:
            chunk: jax.Array = jax.device_put(made(at, None))
            return chunk
        axis = self._split(at, layout, opened)
        found: dict[int, Array] = {}
        arrays = []
        for device in self.mesh.local_devices:
            place = at if axis is None else self._place(at, axis, device)
            key = 0 if axis is None else place.starts[axis]
            if key not in found:
                found[key] = made(place, device)
            arrays.append(jax.device_put(found[key], device))
        shape, sharding = at.shape(layout, opened), self._sharding(layout, axis)
        return jax.make_array_from_single_device_arrays(shape, sharding, arrays)

    def filled(
        self, at: Position, layout: Layout, opened: frozenset[Axis], value: Any, dtype: str
    ) -> jax.Array:
        """A chunk all of whose entries are one value."""
        if self.mesh is None:
            return jnp.full(at.shape(layout, opened), value, dtype)

        def part(at: Position, _: jax.Device | None) -> Array:
            entries: Array = np.full(at.shape(layout, opened), value, numpy_dtype(dtype))
            return entries

        return self.arranged(at, layout, opened, part)

    def stacked(self, length: int, entry: jax.Array) -> jax.Array:
        """Zeros for so many entries that are like one, and where it is."""
        shape, there = (length, *entry.shape), None
        if isinstance(entry.sharding, NamedSharding):
            there = NamedSharding(entry.sharding.mesh, PartitionSpec(None, *entry.sharding.spec))
        return jnp.zeros(shape, entry.dtype, device=there)

    def whole(self, array: Any, dtype: Any = None) -> jax.Array:
        """An array that all devices have."""
        if self.mesh is None:
            return jnp.asarray(array, dtype)
        there = NamedSharding(self.mesh, PartitionSpec())
        if isinstance(array, jax.Array) and not (self.several_processes and array.is_fully_addressable):
            moved: jax.Array = jax.device_put(array.astype(dtype or array.dtype), there)
            return moved
        host = np.asarray(array, dtype)
        return jax.make_array_from_callback(host.shape, there, lambda _: host, dtype=host.dtype)

    def on_host(
        self, array: jax.Array, at: Position, layout: Layout, opened: frozenset[Axis]
    ) -> Iterator[tuple[Position, Array]]:
        """What this process has to write of a chunk, part by part, with where it is."""
        if self.mesh is None:
            yield at, np.asarray(array)
            return
        axis = self._split(at, layout, opened)
        array = jax.device_put(array, self._sharding(layout, axis))
        if axis is None:
            if self.writes_whole:
                yield at, whole_on_host(array)
            return
        for shard in array.addressable_shards:
            yield self._place(at, axis, shard.device), np.asarray(shard.data)


ONE_DEVICE = DeviceParts()


def part_on_host(array: jax.Array, device: jax.Device | None) -> Array:
    """What a device has of an array, on the host."""
    for shard in array.addressable_shards if device is not None else ():
        if shard.device == device:
            return np.asarray(shard.data)
    return np.asarray(array)


def whole_on_host(array: jax.Array) -> Array:
    """An array that this process has all of, on the host.

    **Raises:** `EqsatError` if other processes have parts of it.
    """
    if not (array.is_fully_addressable or array.is_fully_replicated):
        raise EqsatError("a state that is split among several processes can't be saved")
    return np.asarray(array if array.is_fully_addressable else array.addressable_data(0))


def _is_split(layout: Layout, axis: Axis | None) -> bool:
    """Whether an axis is the first of a dimension, along which parts are slices."""
    return axis is not None and any(axis in parts(dimension)[:1] for dimension in layout)
