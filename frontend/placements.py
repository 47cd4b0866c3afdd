"""What a program says about where values lie on a mesh, and the program in one way of saying it.

Programs say it by `with_sharding_constraint`, by `reshard`, by the shardings of a `jit` inside, and, on a
mesh with explicit axes, by the types of values. In the one way, all of these are constraints on one mesh,
whose axes are automatic, and types say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxprs_in_params
from jax.sharding import AxisType, Mesh, NamedSharding

from eqsat.errors import EqsatError
from eqsat.frontend.retracing import NotRetraceable, evaluated, retraced
from eqsat.frontend.trace_context import NO_MESH
from eqsat.ir.axis import Layout
from eqsat.support.records import Place

CONSTRAINTS = {"sharding_constraint": "sharding", "reshard": "dst_sharding"}
"""The primitives that place their operand, and the parameter that says where."""

CALLS = ("jit", "pjit")
"""The primitives that place what a function takes and returns."""


@dataclass(frozen=True)
class Constraint:
    """A constraint on a value of a program.

    **Attributes:**

    - `layout`: of the value.
    - `origin`: where it is written, if that is known.
    """

    layout: Layout
    sharding: NamedSharding
    origin: Place | None


def named_shardings(jaxpr: Jaxpr) -> Iterator[NamedSharding]:
    """All that a program says about where values lie, but for their types."""
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name in CONSTRAINTS and isinstance(params[CONSTRAINTS[name]], NamedSharding):
            yield params[CONSTRAINTS[name]]
        if name in CALLS:
            given = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
            yield from (one for one in given if isinstance(one, NamedSharding))
        for inner in jaxprs_in_params(params):
            yield from named_shardings(inner)


def types_mesh(closed: ClosedJaxpr) -> jax.sharding.AbstractMesh | None:
    """The mesh of which the types of arguments or results speak, if it has explicit axes."""
    for aval in (*closed.in_avals, *closed.out_avals):
        mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
        if mesh is not None and AxisType.Explicit in mesh.axis_types:
            found: jax.sharding.AbstractMesh = mesh
            return found
    return None


def typed_sharding(aval: Any, mesh: Mesh) -> NamedSharding | None:
    """What the type of a value says about where it lies; None if that is nothing."""
    sharding = getattr(aval, "sharding", None)
    if not isinstance(sharding, NamedSharding) or AxisType.Explicit not in sharding.mesh.axis_types:
        return None
    return NamedSharding(mesh, sharding.spec)


def unplaced(closed: ClosedJaxpr, mesh: Mesh) -> ClosedJaxpr:
    """A program whose types say nothing of a mesh, and that has only constraints, on one mesh.

    **Arguments:**

    - `mesh`: its axes are automatic.

    **Raises:** `EqsatError` if it names another mesh; `NotRetraceable`, or what JAX raises, if it can't be
    written anew.
    """

    def constrained(value: Any, sharding: Any) -> Any:
        if not isinstance(sharding, NamedSharding):
            return value  # It is not specified.
        return lax.with_sharding_constraint(value, _on(sharding, mesh))

    def replaced(equation: Any, operands: list[Any]) -> Sequence[Any] | None:
        name, params = equation.primitive.name, equation.params
        if name == "shard_map":
            raise NotRetraceable(name)
        if name == "mesh_cast":
            return operands
        if name in CONSTRAINTS:
            sharding = params[CONSTRAINTS[name]]
            if not isinstance(sharding, NamedSharding) or params.get("layout") is not None:
                raise NotRetraceable(name)
            return [constrained(operands[0], sharding)]
        if name in CALLS:
            before, after = params.get("in_shardings", ()), params.get("out_shardings", ())
            if any(isinstance(one, NamedSharding) for one in (*before, *after)):
                values = list(map(constrained, operands, before))
                inner = params["jaxpr"]
                results = evaluated(inner.jaxpr, inner.consts, values, replaced)
                return list(map(constrained, results, after))
        return None

    with jax.sharding.use_abstract_mesh(NO_MESH):
        return retraced(closed, replaced)


def result_shardings(closed: ClosedJaxpr) -> list[NamedSharding | None]:
    """The constraint that each result has, in a program that is `unplaced`."""
    return _result_shardings(closed.jaxpr)


def _result_shardings(jaxpr: Jaxpr) -> list[NamedSharding | None]:
    made = {var: (equation, number) for equation in jaxpr.eqns for number, var in enumerate(equation.outvars)}
    found: list[NamedSharding | None] = []
    for var in jaxpr.outvars:
        equation, number = (None, 0) if isinstance(var, Literal) else made.get(var, (None, 0))
        name = None if equation is None else equation.primitive.name
        if equation is not None and name == "sharding_constraint":
            found.append(equation.params["sharding"])
        elif equation is not None and name in CALLS:
            found.append(_result_shardings(equation.params["jaxpr"].jaxpr)[number])
        else:
            found.append(None)
    return found


def _on(sharding: NamedSharding, mesh: Mesh) -> NamedSharding:
    """The same on a mesh.

    **Raises:** `EqsatError` if it is on another one; `NotRetraceable` if it is about another memory.
    """
    named = sharding.mesh
    same = dict(named.shape) == dict(mesh.shape)
    if isinstance(named, Mesh):
        same = same and list(named.devices.flat) == list(mesh.devices.flat)
        if sharding.memory_kind not in (None, "device", _usual_memory(named)):
            raise NotRetraceable(sharding.memory_kind)
    if not same:
        raise EqsatError(
            f"the function places values on a mesh of {_said(named)}, and is to be shared out over one of"
            f" {_said(mesh)}: these have to be the same"
        )
    return NamedSharding(mesh, sharding.spec)


def _usual_memory(mesh: Mesh) -> str | None:
    """The kind of memory that arrays are in where nothing is said; None for devices that are absent."""
    try:
        return str(mesh.devices.item(0).default_memory().kind)
    except jax.errors.JaxRuntimeError:
        return None


def _said(mesh: Any) -> str:
    return ", ".join(f"{name} = {size}" for name, size in mesh.shape.items())
