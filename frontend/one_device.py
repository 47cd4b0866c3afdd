"""Programs on a mesh of one device, as programs without a mesh: there, shardings and collectives say nothing.

A `shard_map` over one device is its body; a sum over its axes, what is summed; a sharding, nothing. Libraries
such as NetKet put a mesh around everything, also where there is one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxprs_in_params

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
    }
)
"""Primitives whose results are their operands on one device."""

SHARDED = ("sharding", "out_sharding")
"""The names of parameters that say how a result is sharded."""

REWRITTEN = frozenset({"scan", "while", "cond", "checkpoint", "remat", "remat2"})
"""Primitives whose jaxprs are rewritten in place."""

INLINED = frozenset({"custom_jvp_call", "custom_vjp_call", "closed_call"})
"""Primitives that are what the jaxpr inside of them is."""


class OnSeveralDevices(Exception):
    """The program is not on a mesh of one device, or says something about it that is not known."""


def on_one_device(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    """A program on meshes of one device, without them; None if that can't be said of it."""
    avals = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
        for aval in closed.in_avals
    ]
    try:
        with jax.sharding.use_abstract_mesh(NO_MESH):
            found: ClosedJaxpr = jax.make_jaxpr(_without_mesh(closed))(*avals)
    except Exception:
        # It is left as it is: on a mesh of several devices, or with a parameter that is not known.
        return None
    same = [(a.shape, a.dtype) for a in found.out_avals] == [(a.shape, a.dtype) for a in closed.out_avals]
    return found if same else None


def _without_mesh(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    return lambda *values: _evaluated(closed.jaxpr, closed.consts, values)


def _evaluated(jaxpr: Jaxpr, constants: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr, evaluated without its meshes."""
    known: dict[Var, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        results = _results(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _results(equation: Any, operands: list[Any]) -> Sequence[Any]:
    name, params = equation.primitive.name, dict(equation.params)
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
            return _evaluated(params["jaxpr"], (), operands)
        case "axis_index":
            return [jnp.int32(0)]
        case "all_gather":
            (operand,) = operands
            return [operand if params["tiled"] else jnp.expand_dims(operand, params["all_gather_dimension"])]
        case "ppermute":
            if tuple(params["perm"]) != ((0, 0),):
                raise OnSeveralDevices(name)
            return operands
        case "jit" | "pjit":
            inside: ClosedJaxpr = params["jaxpr"]
            called = _without_mesh(inside)
            # Its name may be that of an operation.
            called.__name__ = called.__qualname__ = params["name"]
            return list(jax.jit(called)(*operands))
    inner = list(jaxprs_in_params(params))
    if name in REWRITTEN:
        params = {key: _rewritten(value) for key, value in params.items()}
    elif name in INLINED and len(inner) == 1:
        return _evaluated(inner[0], _constants(params), operands)
    elif inner or getattr(equation, "effects", None):
        raise OnSeveralDevices(name)
    for key in SHARDED:
        if isinstance(sharding := params.get(key), jax.sharding.NamedSharding):
            _check(sharding.mesh)
            params[key] = None
    found = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(params))
    return list(found) if equation.primitive.multiple_results else [found]


def _check(mesh: Any) -> None:
    """Raises an error if a mesh has several devices, or one that programs do not run on by themselves."""
    elsewhere = isinstance(mesh, jax.sharding.Mesh) and mesh.devices.item(0) != jax.devices()[0]
    if mesh.size != 1 or elsewhere:
        raise OnSeveralDevices(mesh)


def _constants(params: dict[str, Any]) -> Sequence[Any]:
    """The constants of the one jaxpr in the parameters of a call."""
    closed = [value for value in params.values() if isinstance(value, ClosedJaxpr)]
    return closed[0].consts if closed else ()


def _rewritten(value: Any) -> Any:
    """A parameter with the jaxprs in it rewritten."""
    if isinstance(value, ClosedJaxpr):
        found = on_one_device(value)
        if found is None:
            raise OnSeveralDevices(value)
        return found
    if isinstance(value, Jaxpr):
        found = _rewritten(ClosedJaxpr(value, ()))
        if found.consts:
            raise OnSeveralDevices(value)
        return found.jaxpr
    if isinstance(value, tuple) and value and all(isinstance(one, ClosedJaxpr) for one in value):
        return tuple(map(_rewritten, value))
    return value
