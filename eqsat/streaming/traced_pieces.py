"""Pieces of a program as jaxprs, with the names of what they read."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr
from jax.sharding import NamedSharding

from eqsat.compiler.program_function import program_function
from eqsat.ir.axis import layout_shape
from eqsat.ir.ops import Leaf
from eqsat.ir.program import Program
from eqsat.streaming.keys import Key
from eqsat.streaming.segments import Piece
from eqsat.targets.target import Target


def traced_piece(piece: Piece, target: Target, places: Sequence[NamedSharding] = ()) -> ClosedJaxpr:
    """A piece as a jaxpr.

    **Arguments:**

    - `places`: where its results are to be on a mesh; empty for one device.
    """
    function = program_function(piece.program, [array_name(key) for key in piece.reads], target.machine)
    if not places:
        return jax.make_jaxpr(function)(*_avals(piece.program))

    def placed(*arrays: jax.Array) -> list[jax.Array]:
        results = zip(function(*arrays), places, strict=True)
        return [jax.lax.with_sharding_constraint(result, place) for result, place in results]

    return jax.make_jaxpr(placed)(*_avals(piece.program))


def _avals(program: Program) -> list[jax.ShapeDtypeStruct]:
    found = []
    for leaf in program.inputs:
        assert isinstance(leaf.op, Leaf)
        shape = layout_shape(leaf.op.layout)
        found.append(jax.ShapeDtypeStruct(shape, jnp.dtype(leaf.op.dtype)))
    return found


def array_name(key: Key) -> str:
    """The name of an array in the source of a step."""
    more = f"_{key.part}" if key.part or key.scope else ""
    return f"{key.kind}_{key.number}{more}" + (f"_{key.scope}" if key.scope else "")
