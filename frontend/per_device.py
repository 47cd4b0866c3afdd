"""What one device of a `shard_map` does, as a program of its own: collectives are calls like any other.

JAX's types say over which axes of the mesh a value varies. Rewriting would have to keep these types right,
and nothing is gained: they were checked when the function was traced. So the program is traced again without
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend.core import ClosedJaxpr

from eqsat.frontend.retracing import NotRetraceable, retraced
from eqsat.frontend.trace_context import NAMES_A_MESH, TraceContext, unchecked

SAME = frozenset({"pvary", "pcast", "pbroadcast"})
"""Primitives that change nothing but the type that says over which axes a value varies."""


def per_device(closed: ClosedJaxpr, around: TraceContext) -> ClosedJaxpr | None:
    """A program inside a `shard_map` over all axes of a mesh, without types that vary; None if it is none.

    **Arguments:**

    - `around`: where it is called.
    """
    if not around.only_manual:
        return None
    try:
        with around.entered(), unchecked():
            return retraced(closed, _unchecked)
    except Exception:
        # It is left as it is: with a parameter that is not known, or a mesh inside a mesh.
        return None


def _unchecked(equation: Any, operands: list[Any]) -> Sequence[Any] | None:
    name, params = equation.primitive.name, equation.params
    if name in SAME:
        return operands
    if name in NAMES_A_MESH:
        raise NotRetraceable(name)
    match name:
        case "psum_invariant":
            return [lax.psum(operand, params["axes"]) for operand in operands]
        case "all_gather_invariant":
            axis, tiled = params["all_gather_dimension"], params["tiled"]
            names = params["axis_name"]
            return [lax.all_gather(operand, names, axis=axis, tiled=tiled) for operand in operands]
    return None
