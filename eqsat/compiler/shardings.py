"""Where values are to lie on a mesh, by constraints, arguments and results, and what splits keep of that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from eqsat.frontend.placements import Constraint
from eqsat.ir.axis import Axis, Layout, as_dimension, parts
from eqsat.support.records import Place

Dims = tuple[tuple[str, ...], ...]
"""For each dimension of an array, the axes of the mesh that it is split over."""


def dims_of(spec: Iterable[Any], rank: int) -> Dims:
    """The axes by dimension of a `PartitionSpec`; a dimension that it leaves open has none.

    >>> dims_of(PartitionSpec("data", None, ("x", "y")), 4)
    (('data',), (), ('x', 'y'), ())
    """
    found = [
        ()
        if entry is None or entry is PartitionSpec.UNCONSTRAINED
        else tuple(map(str, entry))
        if isinstance(entry, tuple)
        else (str(entry),)
        for entry in spec
    ]
    return tuple(found + [()] * (rank - len(found)))


def spec_of(dims: Dims) -> PartitionSpec:
    """The `PartitionSpec` of axes by dimension."""
    entries = [names if len(names) > 1 else names[0] if names else None for names in dims]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


@dataclass(frozen=True)
class Wish:
    """A constraint that splits a value of a program, and what the splits so far have kept of it.

    **Attributes:**

    - `layout`: of the value on one device.
    - `result`: whether the value is a result, which is moved to where it has to be.
    - `kept`: the dimensions that are split as it asks, and over what.
    """

    layout: Layout
    dims: Dims
    origin: Place | None
    result: bool = False
    kept: frozenset[tuple[int, str]] = frozenset()

    @classmethod
    def of(cls, constraint: Constraint, mesh: Mesh, results: Iterable[tuple[Layout, Any]]) -> Wish:
        """The wish that a constraint is.

        **Arguments:**

        - `results`: the layouts of results, and the shardings that they have to have.
        """
        dims = dims_of(constraint.sharding.spec, len(constraint.layout))
        several = tuple(tuple(name for name in names if mesh.shape[name] > 1) for names in dims)
        result = (constraint.layout, constraint.sharding) in results
        return cls(constraint.layout, several, constraint.origin, result)

    @property
    def axes(self) -> set[Axis]:
        """The axes that it asks to split."""
        asked = (dimension for dimension, names in zip(self.layout, self.dims, strict=True) if names)
        return {axis for dimension in asked for axis in parts(dimension)[:1]}

    def split(self, axis: Axis, part: Axis, name: str) -> Wish:
        """The same when each device along the mesh's axis `name` has a `part` of an axis."""
        kept = {
            (number, name)
            for number, dimension in enumerate(self.layout)
            if name in self.dims[number] and parts(dimension)[:1] == (axis,)
        }
        layout = tuple(
            as_dimension(part if one == axis else one for one in parts(dimension))
            for dimension in self.layout
        )
        return replace(self, layout=layout, kept=self.kept | kept)

    @property
    def broken(self) -> int:
        """How many splits that it asks for are not there."""
        return sum(map(len, self.dims)) - len(self.kept)

    @property
    def ignored(self) -> bool:
        """Whether the value will not lie where it asks."""
        return self.broken > 0 and not self.result

    def __str__(self) -> str:
        return f"{spec_of(self.dims)}{f' at {self.origin}' if self.origin else ''}"


@dataclass(frozen=True)
class Ends:
    """Where arguments come from and results have to be; None where the plan may choose.

    **Attributes:**

    - `inputs`: for each argument. A program takes them there.
    - `outputs`: for each result.
    """

    inputs: tuple[NamedSharding | None, ...]
    outputs: tuple[NamedSharding | None, ...]

    def moved(self, mesh: Mesh, avals: Sequence[Any], dims: Sequence[Dims]) -> int:
        """The bytes that a device gets of arguments where the program needs them elsewhere."""
        return sum(
            0 if here is None else _moved(mesh, here, aval, one)
            for here, aval, one in zip(self.inputs, avals, dims, strict=True)
        )

    def returned(self, mesh: Mesh, avals: Sequence[Any], dims: Sequence[Dims]) -> int:
        """The bytes that a device gets of results where the program leaves them elsewhere."""
        return sum(
            0 if there is None else _fetched(aval, there, _is_within(one, _wanted(there, aval, one)))
            for there, aval, one in zip(self.outputs, avals, dims, strict=True)
        )


def _wanted(there: NamedSharding, aval: Any, dims: Dims) -> Dims:
    """Where a result has to be; dimensions that are left open are as the program leaves them."""
    wanted = dims_of(there.spec, aval.ndim)
    entries = (*there.spec, *[None] * (aval.ndim - len(there.spec)))
    return tuple(
        has if entry is PartitionSpec.UNCONSTRAINED else names
        for has, entry, names in zip(dims, entries, wanted, strict=True)
    )


def _moved(mesh: Mesh, here: NamedSharding, aval: Any, dims: Dims) -> int:
    there = NamedSharding(mesh, spec_of(dims))
    same = here.mesh.axis_names == mesh.axis_names and here.mesh.axis_sizes == mesh.axis_sizes
    at_hand = here.is_fully_replicated or (same and _is_within(dims_of(here.spec, aval.ndim), dims))
    return _fetched(aval, there, at_hand)


def _fetched(aval: Any, there: NamedSharding, at_hand: bool) -> int:
    if at_hand:
        return 0
    counts = dims_of(there.spec, aval.ndim)
    size: int = math.prod(
        -(-length // math.prod(there.mesh.shape[name] for name in names))
        for length, names in zip(aval.shape, counts, strict=True)
    )
    bytes_each: int = aval.dtype.itemsize
    return size * bytes_each


def _is_within(has: Dims, needs: Dims) -> bool:
    """Whether a device that has one part of an array has another part of it."""
    return all(need[: len(one)] == one for one, need in zip(has, needs, strict=True))
