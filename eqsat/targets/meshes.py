"""The meshes that callers name: of devices, or only by the lengths of their axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.mesh import get_concrete_mesh
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from eqsat.targets.target import Target

MeshLike = Mesh | Mapping[str, int] | str
"""A mesh, or the lengths of its axes by name, as a mapping or as text: "data=4,model=2"."""


def parse_mesh(text: str) -> dict[str, int]:
    """The lengths of a mesh's axes by name.

    **Raises:** `ValueError` if the text does not say that.

    >>> parse_mesh("data=4, model=2")
    {'data': 4, 'model': 2}
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, length = (piece.strip() for piece in part.partition("="))
        if not (
            equals and name.isidentifier() and length.isdecimal() and int(length) > 0 and name not in found
        ):
            raise ValueError(
                f"a mesh is the lengths of its axes by name, such as 'data=4,model=2'; {part.strip()!r} in"
                f" {text!r} is none"
            )
        found[name] = int(length)
    return found


def mesh_of(mesh: MeshLike, target: Target) -> Mesh:
    """The mesh: of a target's devices, if only its axes are named.

    **Raises:** `ValueError` for anything else, and `EqsatError` if there are not so many devices.
    """
    if isinstance(mesh, Mesh):
        return mesh
    lengths = parse_mesh(mesh) if isinstance(mesh, str) else mesh
    sizes = list(lengths.values()) if isinstance(lengths, Mapping) else []
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(f"mesh is a jax.sharding.Mesh, or the lengths of its axes by name, not {mesh!r}")
    devices = np.array(target.devices(math.prod(sizes))).reshape(sizes)
    return jax.sharding.Mesh(devices, tuple(lengths), axis_types=(AxisType.Auto,) * len(sizes))


def automatic(mesh: Mesh) -> Mesh:
    """The mesh with automatic axes."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def context_mesh() -> Mesh | None:
    """The mesh of several devices that `jax.set_mesh` has set, outside of any `shard_map` over it."""
    mesh, abstract = get_concrete_mesh(), jax.sharding.get_abstract_mesh()
    if mesh.size <= 1 or mesh.shape != abstract.shape or AxisType.Manual in abstract.axis_types:
        return None
    return mesh


def named_sharding(value: Any) -> NamedSharding | None:
    """Where a value, or one of that type, is on a mesh of devices, if it has been put there."""
    sharding = None if isinstance(value, jax.core.Tracer) else getattr(value, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return None
    return sharding if getattr(value, "committed", True) else None


def of_type(array: jax.Array, aval: Any, mesh: Mesh) -> jax.Array:
    """An array that lies as a type says, with that type: explicit axes of a mesh are part of it."""
    if aval.sharding.mesh.empty:
        return array
    typed = Mesh(mesh.devices, mesh.axis_names, axis_types=aval.sharding.mesh.axis_types)
    parts = [shard.data for shard in array.addressable_shards]
    sharding = NamedSharding(typed, aval.sharding.spec)
    found: jax.Array = jax.make_array_from_single_device_arrays(array.shape, sharding, parts)
    return found


def with_result_shardings(fn: Callable[..., Any], shardings: Any, mesh: Mesh) -> Callable[..., Any]:
    """The function with its results where `out_shardings` says.

    **Raises:** `ValueError` when called, if that is no prefix of the results, or if they can't be split so.
    """

    def is_leaf(value: Any) -> bool:
        return value is None or isinstance(value, (PartitionSpec, Sharding))

    @functools.wraps(fn)
    def placed(*args: Any, **kwargs: Any) -> Any:
        results = fn(*args, **kwargs)
        each = jax.tree.broadcast(shardings, results, is_leaf=is_leaf)
        return jax.tree.map(_placed, each, results, is_leaf=is_leaf)

    def _placed(sharding: Any, value: Any) -> Any:
        if sharding is None:
            return value
        spec = sharding if isinstance(sharding, PartitionSpec) else getattr(sharding, "spec", None)
        if spec is None or getattr(sharding, "mesh", mesh).shape != mesh.shape:
            raise ValueError(f"out_shardings are of the mesh {mesh}, not {sharding!r}")
        type_mesh = jax.typeof(value).sharding.mesh
        if AxisType.Explicit in type_mesh.axis_types:
            return jax.sharding.reshard(value, NamedSharding(type_mesh, spec))
        there = NamedSharding(automatic(mesh), spec)
        there.shard_shape(jnp.shape(value))  # It raises an error if the parts are not equal.
        return lax.with_sharding_constraint(value, there)

    return placed


def on_devices(array: jax.Array, mesh: Mesh) -> jax.Array:
    """The array, in a program that JAX is then told to compile for the devices of a mesh.

    It may be anywhere on them. JAX looks for meshes in what it compiles, and our primitives hide theirs.
    """
    anywhere = PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * array.ndim)
    placed: jax.Array = lax.with_sharding_constraint(array, NamedSharding(automatic(mesh), anywhere))
    return placed
