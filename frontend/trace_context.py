"""The meshes and mapped axes that a function may be traced under, and whether it depends on them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src.config import _check_vma
from jax._src.core import NamedAxisEffect, extend_axis_env_nd
from jax.extend import core
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

from eqsat.frontend.generators import draws_elsewhere

NAMES_A_MESH = frozenset({"sharding_constraint", "reshard", "shard_map", "mesh_cast"})
"""Primitives that mean something on a mesh only."""

TO_VARY = "pvary"
"""The primitive that JAX adds where what varies over a mesh meets what doesn't: it moves no data."""


NO_MESH = jax.sharding.AbstractMesh((), ())


@dataclass(frozen=True)
class TraceContext:
    """Where a function is called: on which mesh, if any, and under which axes of `vmap` and `shard_map`."""

    mesh: jax.sharding.AbstractMesh
    axes: tuple[tuple[Any, int], ...]

    @classmethod
    def now(cls) -> TraceContext:
        names: list[Any] = core.unsafe_get_axis_names_DO_NOT_USE()  # type: ignore[attr-defined]
        return cls(jax.sharding.get_abstract_mesh(), tuple((name, lax.axis_size(name)) for name in names))

    @property
    def empty(self) -> bool:
        return self.mesh.empty and not self.axes

    @property
    def on_one_device(self) -> bool:
        """Whether it is called on a mesh of one device, outside of `shard_map` and `vmap`."""
        automatic = all(kind == jax.sharding.AxisType.Auto for kind in self.mesh.axis_types)
        return not self.mesh.empty and self.mesh.size == 1 and automatic and not self.axes

    @property
    def manual(self) -> tuple[Any, ...]:
        """The axes of a `shard_map` that it is called in."""
        kinds = zip(self.mesh.axis_names, self.mesh.axis_types, strict=True)
        return tuple(name for name, kind in kinds if kind == jax.sharding.AxisType.Manual)

    @property
    def only_manual(self) -> bool:
        """Whether it is called inside a `shard_map` over all axes of the mesh, and in no `vmap`."""
        return not self.mesh.empty and len(self.manual) == len(self.mesh.axis_names) and not self.mapped

    @property
    def mapped(self) -> tuple[Any, ...]:
        """The axes of `vmap` that it is called in."""
        return tuple(name for name, _ in self.axes if name not in self.mesh.axis_names)

    def without(self, name: Any) -> TraceContext:
        """The same outside of the `vmap` over an axis."""
        return replace(self, axes=tuple(axis for axis in self.axes if axis[0] != name))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """A context in which programs are traced as if they were called there."""
        with jax.sharding.use_abstract_mesh(self.mesh), extend_axis_env_nd(self.axes):
            yield

    def type_of(self, aval: Any) -> jax.ShapeDtypeStruct:
        """The type of an argument to trace with: its sharding is part of that on a mesh only."""
        more = (
            {} if self.mesh.empty else {"sharding": aval.sharding, "manual_axis_type": aval.manual_axis_type}
        )
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, **more)

    def compilable(
        self,
        function: Callable[..., Sequence[Any]],
        avals: Sequence[Any],
        closed: ClosedJaxpr,
        devices: Callable[[int], Sequence[jax.Device]],
    ) -> tuple[Callable[..., Sequence[Any]], list[Any]]:
        """A function that is called here as one to compile by itself, and its arguments' types.

        Inside a `shard_map`, what a device does of that is what it does of the function: it gets one entry of
        each argument. On a mesh, arguments whose type does not say how they are sharded are taken to be on
        every device as a whole.

        **Arguments:**

        - `avals`: the arguments' types, with where they are if that is known.
        - `closed`: the function's jaxpr.
        - `devices`: so many devices of those that it is compiled for.
        """
        if self.mesh.empty:
            return function, list(avals)
        manual = self.manual
        if not manual:
            mesh = self.mesh_of(devices(self.mesh.size), self.mesh.axis_types)
            return function, [
                aval if aval.sharding is not None else _placed(typed, mesh)
                for aval, typed in zip(avals, closed.in_avals, strict=True)
            ]
        avals, results = closed.in_avals, closed.out_avals
        mesh = self.mesh_of(devices(self.mesh.size))
        checked = any(map(varying, avals))

        def over(aval: Any) -> tuple[Any, ...]:
            return tuple(name for name in manual if not checked or name in varying(aval))

        def local(*entries: Any) -> list[Any]:
            return [result[None] for result in function(*(entry[0] for entry in entries))]

        mapped = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=tuple(jax.sharding.PartitionSpec(over(aval)) for aval in avals),
            out_specs=[jax.sharding.PartitionSpec(over(aval)) for aval in results],
            axis_names=set(manual),
            check_vma=checked,
        )
        types = [
            jax.ShapeDtypeStruct(
                (math.prod(mesh.shape[name] for name in over(aval)), *aval.shape),
                aval.dtype,
                sharding=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(over(aval))),
            )
            for aval in avals
        ]
        return mapped, types

    def mesh_of(
        self, devices: Sequence[jax.Device], axis_types: tuple[Any, ...] | None = None
    ) -> jax.sharding.Mesh:
        """The mesh, of these devices."""
        array = np.array(devices).reshape(self.mesh.axis_sizes)
        return jax.sharding.Mesh(array, self.mesh.axis_names, axis_types=axis_types)

    def on_every_device(
        self,
        function: Callable[..., Sequence[Any]],
        avals: Sequence[Any],
        devices: Sequence[jax.Device],
    ) -> tuple[Callable[..., Sequence[Any]], list[Any]]:
        """A function of one device, as one that all devices of a mesh run, and its arguments' types.

        Each device has all of every argument, so that what the compiler says of one device is what the
        function takes there.

        **Arguments:**

        - `avals`: the types of the arguments that one device gets.
        """
        mesh = self.mesh_of(devices)
        everywhere = jax.sharding.PartitionSpec()
        mapped = jax.shard_map(
            function, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False
        )
        whole = jax.sharding.NamedSharding(mesh, everywhere)
        return mapped, [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=whole) for aval in avals]

    def made_to_vary(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The arrays, all varying over the axes of a `shard_map` over which any of them does."""
        if self.mesh.empty:
            return arrays
        wanted = frozenset[Any]().union(*(varying(jax.typeof(array)) for array in arrays))
        return [
            lax.pcast(array, missing, to="varying")
            if (missing := tuple(sorted(wanted - varying(jax.typeof(array)))))
            else array
            for array in arrays
        ]


def unchecked() -> contextlib.AbstractContextManager[Any]:
    """A context in which types say nothing about the axes of a mesh over which values vary."""
    found: contextlib.AbstractContextManager[Any] = _check_vma(False)
    return found


NOWHERE = TraceContext(NO_MESH, ())
"""Where nothing is around: what a program is called under that does not depend on that."""


def varying(aval: Any) -> frozenset[Any]:
    """The axes of a `shard_map` over which a value is not the same everywhere."""
    found: frozenset[Any] = (
        aval.manual_axis_type.varying if hasattr(aval, "manual_axis_type") else frozenset()
    )
    return found


def _placed(aval: Any, mesh: jax.sharding.Mesh) -> jax.ShapeDtypeStruct:
    """The type of an argument on a mesh of devices, sharded as it says."""
    sharding = jax.sharding.NamedSharding(mesh, aval.sharding.spec)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)


def like(results: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """The types of results, as varying as those of the operands over the axes of a `shard_map`."""
    model = next((aval for aval in operands if varying(aval)), None)
    if model is None:
        return list(results)
    mesh = model.sharding.mesh
    return [
        aval.update(
            manual_axis_type=model.manual_axis_type,
            sharding=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*[None] * aval.ndim)),
        )
        for aval in results
    ]


def needs_trace_context(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr talks over a mapped axis, or names a mesh."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in NAMES_A_MESH:
            return True
        inner = list(jaxprs_in_params(equation.params))
        if any(map(needs_trace_context, inner)):
            return True
        if not inner and named_axes(equation.effects) and equation.primitive.name != TO_VARY:
            return True
    return False


def named_axes(effects: Iterable[Any]) -> frozenset[Any]:
    """The mapped axes that something talks over, of its effects."""
    return frozenset(effect.name for effect in effects if isinstance(effect, NamedAxisEffect))


def side_effects(effects: Iterable[Any]) -> tuple[Any, ...]:
    """Those of its effects that others can see: what it prints, says to Python, and the like."""
    return tuple(effect for effect in effects if not isinstance(effect, NamedAxisEffect))


def reason_to_leave(closed: ClosedJaxpr, around: TraceContext) -> str | None:
    """Why a program can't be planned, if it can't, for where it is called."""
    if seen := side_effects(closed.effects):
        return f"it has side effects ({', '.join(map(str, seen))})"
    if around != NOWHERE:
        return "it depends on the mesh, or on the mapped axis, that it is called under"
    if draws_elsewhere(closed.jaxpr):
        return "it draws random numbers by a generator that is none of JAX's own"
    return None
