"""Programs on a mesh of one device, as programs without a mesh: there, shardings and collectives say nothing.

A `shard_map` over one device is its body; a sum over its axes, what is summed; a sharding, nothing. Libraries
such as NetKet put a mesh around everything, also where there is one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxprs_in_params

from eqsat.frontend.retracing import SHARDED, evaluated, retraced
from eqsat.frontend.trace_context import NO_MESH

SAME = frozenset(
    {
        "sharding_constraint",
        "reshard",
        "mesh_cast",
        "pvary",
        "pcast",
        "psum",
        "psum_invariant",
        "pmax",
        "pmin",
        "pbroadcast",
        "all_to_all",
    }
)
"""Primitives whose results are their operands on one device."""


class OnSeveralDevices(Exception):
    """The program is not on a mesh of one device, or says something about it that is not known."""


def on_one_device(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    """A program on meshes of one device, without them; None if that can't be said of it."""
    try:
        with jax.sharding.use_abstract_mesh(NO_MESH):
            return retraced(closed, _without_mesh)
    except Exception:
        # It is left as it is: on a mesh of several devices, or with a parameter that is not known.
        return None


def _without_mesh(equation: Any, operands: list[Any]) -> Sequence[Any] | None:
    """What an equation does on one device, if that can be said without it."""
    name, params = equation.primitive.name, equation.params
    if name in SAME:
        for value in params.values():
            if isinstance(value, jax.sharding.NamedSharding):
                _check(value.mesh)
            elif isinstance(value, jax.sharding.Sharding):
                raise OnSeveralDevices(value)
        if any(isinstance(axis, int) for axis in params.get("axes") or ()):
            raise OnSeveralDevices(name)  # It sums over a dimension, too.
        return operands
    match name:
        case "shard_map":
            _check(params["mesh"])
            return evaluated(params["jaxpr"], (), operands, _without_mesh)
        case "axis_index":
            return [jnp.int32(0)]
        case "all_gather":
            (operand,) = operands
            return [operand if params["tiled"] else jnp.expand_dims(operand, params["all_gather_dimension"])]
        case "reduce_scatter":
            (operand,) = operands
            return [operand if params["tiled"] else jnp.squeeze(operand, params["scatter_dimension"])]
        case "ppermute":
            # What nobody sends is zero.
            return operands if tuple(params["perm"]) == ((0, 0),) else [jnp.zeros_like(operands[0])]
    if not list(jaxprs_in_params(params)) and getattr(equation, "effects", None):
        raise OnSeveralDevices(name)
    for key in SHARDED:
        if isinstance(sharding := params.get(key), jax.sharding.NamedSharding):
            _check(sharding.mesh)
    return None


def _check(mesh: Any) -> None:
    """Raises an error if a mesh has several devices, or one that programs do not run on by themselves."""
    elsewhere = isinstance(mesh, jax.sharding.Mesh) and mesh.devices.item(0) != jax.devices()[0]
    if mesh.size != 1 or elsewhere:
        raise OnSeveralDevices(mesh)
