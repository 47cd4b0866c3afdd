"""The names of one entry of what calls compute, as in `xs[jnp.argmin(cost)]`: reductions over all entries.

    a_i  =  max_q (a_q if q = i else -inf)

Chunks of a reduction are combined, so the entry is taken from the chunk that it is in, beside what else is
made of the chunk. A look-up needs the array as a whole. What is computed by elementwise functions alone is
looked up where these read it (`rules/lookups.rules`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.draft import View
from eqsat.frontend.known import LEAST
from eqsat.frontend.names_slices import remade
from eqsat.frontend.names_updates import SHORTEST, is_at
from eqsat.frontend.registry import Views, names
from eqsat.ir.dtypes import numpy_dtype
from eqsat.ir.ops import Dot, Map, Opaque, Reduce, Rename

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

DTYPES = frozenset(
    {"bool", "bfloat16", "float16", "float32", "float64"}
    | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
)
"""Those with an order and infinities, or with bits to combine."""

MOST_NODES = 64
"""The most nodes that are searched for a call."""


@names("slice")
def _slice(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """A slice at a known place.

    First and last entries are left to `names_slices`: associative scans and differences have many of them.
    """
    (table,), starts = operands, equation.params["start_indices"]
    if any(0 < start < length - 1 for start, length in zip(starts, lowering.shape(table), strict=True)):
        places = [lowering.constant(start, "int32") for start in starts]
        _name(lowering, equation, table, places, results[0])


@names("dynamic_slice")
def _dynamic_slice(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    _name(lowering, equation, operands[0], operands[1:], results[0])


def _name(lowering: Lowering, equation: Any, table: View, starts: Views, result: View) -> None:
    """Name a slice that has one entry along one dimension, and all along the others."""
    before, after = lowering.shape(table), lowering.shape(result)
    cut = [d for d in range(len(before)) if after[d] != before[d]]
    if len(cut) != 1 or after[cut[0]] != 1 or before[cut[0]] < SHORTEST or math.prod(before) < LEAST:
        return
    if table.dtype not in DTYPES or not _is_called(lowering, table.node):
        return
    (dimension,) = cut

    def build() -> View | None:
        operands = [table, starts[dimension]]
        avals = [jax.ShapeDtypeStruct(lowering.shape(view), numpy_dtype(view.dtype)) for view in operands]
        picked = jax.make_jaxpr(lambda array, index: _picked(array, index, dimension))(*avals)
        (made,) = lowering.inline(picked, operands, named=False)
        return remade(lowering, result, made)

    lowering.name(equation, result, build)


def _picked(array: jax.Array, index: jax.Array, dimension: int) -> jax.Array:
    """The entry of an index, the nearest one if there is none, along a dimension that is kept."""
    here = is_at(lax.broadcast(index, array.shape), array.shape, dimension, clamped=True)
    if array.dtype == bool:
        return jnp.any(here & array, dimension, keepdims=True)
    if jnp.issubdtype(array.dtype, np.integer):
        others = jnp.zeros_like(array)
        return jnp.bitwise_xor.reduce(lax.select(here, array, others), axis=dimension, keepdims=True)
    # A maximum of floats may lack NaN where XLA computes it.
    is_nan = jnp.any(here & (array != array), dimension, keepdims=True)
    largest = jnp.max(lax.select(here, array, jnp.full_like(array, -jnp.inf)), dimension, keepdims=True)
    return jnp.where(is_nan, jnp.asarray(jnp.nan, array.dtype), largest)


def _is_called(lowering: Lowering, node: int) -> bool:
    """Whether an array is computed by a call, and elementwise functions and sums of its results."""
    waiting, seen = [node], {node}
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        op, args = lowering.draft.op(node), lowering.draft.nodes[node].args
        if isinstance(op, Opaque):
            return True
        if isinstance(op, Map | Reduce | Rename | Dot):
            waiting += [arg for arg in args if arg not in seen]
            seen.update(args)
    return False
