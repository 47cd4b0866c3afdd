"""Constraints on where values lie on a mesh: they change no value, and are noted for who shares it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax.sharding import NamedSharding

from eqsat.frontend.registry import Views, handles
from eqsat.frontend.source import place_of

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@handles("sharding_constraint")
def sharding_constraint(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    sharding = equation.params["sharding"]
    if not isinstance(sharding, NamedSharding) or equation.params["layout"] is not None:
        return None
    lowering.constrained.append((operands[0], sharding, place_of(equation)))
    return operands
