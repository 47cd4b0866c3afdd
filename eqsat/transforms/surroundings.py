"""The meshes and mapped axes that a function may be traced under, and whether it depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax.extend import core
from jax.extend.core import Jaxpr, jaxprs_in_params

NAMES_A_MESH = frozenset({"sharding_constraint", "reshard", "shard_map", "mesh_cast"})
"""Primitives that mean something on a mesh only."""

TO_VARY = "pvary"
"""The primitive that JAX adds where what varies over a mesh meets what doesn't: it moves no data."""


@dataclass(frozen=True)
class Surroundings:
    """Where a function is called: on which mesh, if any, and under which axes of `vmap` and `shard_map`."""

    mesh: jax.sharding.AbstractMesh
    axes: tuple[tuple[Any, int], ...]

    @classmethod
    def now(cls) -> Surroundings:
        names: list[Any] = core.unsafe_get_axis_names_DO_NOT_USE()  # type: ignore[attr-defined]
        return cls(jax.sharding.get_abstract_mesh(), tuple((name, lax.axis_size(name)) for name in names))

    @property
    def empty(self) -> bool:
        return self.mesh.empty and not self.axes

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


def varying(aval: Any) -> frozenset[Any]:
    """The axes of a `shard_map` over which a value is not the same everywhere."""
    found: frozenset[Any] = (
        aval.manual_axis_type.varying if hasattr(aval, "manual_axis_type") else frozenset()
    )
    return found


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


def needs_surroundings(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr has an effect, talks over a mapped axis, or names a mesh."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in NAMES_A_MESH:
            return True
        inner = list(jaxprs_in_params(equation.params))
        if any(map(needs_surroundings, inner)):
            return True
        if not inner and equation.effects and equation.primitive.name != TO_VARY:
            return True
    return False
