"""Pads by nothing, and of what is only broadcast along the padded dimensions: choices by index.

    pad(c)_i  =  c if l <= i < l + n else 0

The derivative of a mean of a block, `k[:n, :n].mean()`, is such a pad. A choice gives any chunk of rows or
columns; a pad makes all of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.draft import View
from eqsat.frontend.registry import Views, handles
from eqsat.ir.dtypes import is_extended

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@handles("pad")
def pad(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The operand, or a choice by index; None if neither is possible."""
    view, value = operands
    amounts = [tuple(map(int, each)) for each in equation.params["padding_config"]]
    changed = [dimension for dimension, each in enumerate(amounts) if each != (0, 0, 0)]
    if not changed:
        return [view]
    before, after = lowering.shape(view), tuple(equation.outvars[0].aval.shape)
    if 0 in before and not is_extended(view.dtype):
        return [View(value.node, lowering.draft.fresh_layout(after), view.dtype)]
    if any(low < 0 or high < 0 or (inner and before[d] > 1) for d, (low, high, inner) in enumerate(amounts)):
        return None
    if 0 in after or is_extended(view.dtype) or max(after) > np.iinfo(np.int32).max:
        return None
    if any(lowering.has_axis(view, view.layout[dimension]) for dimension in changed):
        return None
    layout = tuple(None if dimension in changed else axis for dimension, axis in enumerate(view.layout))

    def chosen(one: jax.Array, other: jax.Array) -> jax.Array:
        inside = jnp.bool_(True)
        for dimension in changed:
            low = amounts[dimension][0]
            index = lax.broadcasted_iota(jnp.int32, after, dimension)
            inside = inside & (index >= low) & (index < low + before[dimension])
        return lax.select(
            jnp.broadcast_to(inside, after), jnp.broadcast_to(one, after), jnp.broadcast_to(other, after)
        )

    views = [View(view.node, layout, view.dtype), value]
    avals = [jax.ShapeDtypeStruct(lowering.shape(each), each.dtype) for each in views]
    return lowering.inline(jax.make_jaxpr(chosen)(*avals), views, named=False)
