"""The meshes that callers name: of devices, or only by the lengths of their axes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

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


def on_devices(array: jax.Array, mesh: Mesh) -> jax.Array:
    """The array, in a program that JAX is then told to compile for the devices of a mesh.

    It may be anywhere on them. JAX looks for meshes in what it compiles, and our primitives hide theirs.
    """
    anywhere = PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * array.ndim)
    placed: jax.Array = lax.with_sharding_constraint(array, NamedSharding(mesh, anywhere))
    return placed
