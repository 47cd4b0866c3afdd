"""Handlers of concatenations: of what is empty, and in loops, of arrays that share an axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from eqsat.frontend.registry import Views, handles
from eqsat.ir.dtypes import is_extended

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

FEWEST_SHARED = 64
"""The fewest entries of an axis that is worth having twice in place of a concatenation."""

MOST_SHARING = 4
"""Of more arrays along one axis, most would be passed over for most entries."""


@handles("concatenate")
def concatenate(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The operands that are not empty: nothing, if it is one. With an empty one, no dimension would pass.

    In a loop, arrays along the same axis, as in `jnp.concatenate([z, -z])`, are that axis twice: a
    concatenation would need all of it, and so would the state of the loop.
    """
    dimension = equation.params["dimension"]
    full = [view for view in operands if lowering.shape(view)[dimension]]
    if len(full) == 1:
        return full
    if not full or is_extended(full[0].dtype):
        return None
    function: Callable[..., Any] | None = None
    if lowering.enclosures and _share_axis(lowering, equation, full):
        function = partial(_chosen, dimension)
    elif len(full) < len(operands):
        function = partial(_joined, dimension)
    if function is None:
        return None
    avals = [jax.ShapeDtypeStruct(lowering.shape(view), view.dtype) for view in full]
    return lowering.inline(jax.make_jaxpr(function)(*avals), full)


def _share_axis(lowering: Lowering, equation: Any, operands: Views) -> bool:
    """Whether few operands have the same axis along the dimension in which they are joined."""
    dimension = equation.params["dimension"]
    axis = operands[0].layout[dimension]
    if axis is None or any(view.layout[dimension] != axis for view in operands):
        return False
    regrouped = lowering.reshapes and id(equation) not in lowering.calls
    return regrouped and len(operands) <= MOST_SHARING and lowering.draft.axes.size(axis) >= FEWEST_SHARED


def _joined(dimension: int, *arrays: jax.Array) -> jax.Array:
    return lax.concatenate(arrays, dimension)


def _chosen(dimension: int, *arrays: jax.Array) -> jax.Array:
    """Arrays of one shape joined along a dimension, each entry chosen from all of them.

    >>> _chosen(0, jnp.arange(3), -jnp.arange(3))
    Array([ 0,  1,  2,  0, -1, -2], dtype=int32)
    """
    shape, count = arrays[0].shape, len(arrays)
    apart = (*shape[:dimension], count, *shape[dimension:])
    place = lax.broadcasted_iota("int32", apart, dimension)
    *others, found = (jnp.broadcast_to(jnp.expand_dims(array, dimension), apart) for array in arrays)
    for number, array in enumerate(others):
        found = jnp.where(place == number, array, found)
    return found.reshape(*shape[:dimension], count * shape[dimension], *shape[dimension + 1 :])
