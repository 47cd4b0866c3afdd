"""The names of scatters to a diagonal, as in `k.at[jnp.diag_indices(n)].add(noise)`: choices by index.

    b = a, but for b_ii = f(a_ii, u_i)   is   b_ij = f(a_ij, u_i) if i = j else a_ij

A choice gives any chunk of rows or columns. A scatter by pairs of indices needs all of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from eqsat.frontend.draft import View
from eqsat.frontend.handlers_indices import columns_of, counts
from eqsat.frontend.names_slices import remade
from eqsat.frontend.registry import Views, names
from eqsat.frontend.scatter_updates import COMBINED, combination
from eqsat.ir.dtypes import is_extended

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@names(*COMBINED)
def _diagonal(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """A scatter to the whole diagonal of two dimensions, of slices that are whole along all others."""
    combined = combination(equation.primitive.name, equation.params)
    table, indices, updates = operands
    numbers = equation.params["dimension_numbers"]
    pair = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    if combined is None or is_extended(table.dtype) or len(pair) != 2:
        return
    if sorted(numbers.inserted_window_dims) != sorted(pair):
        return
    if numbers.operand_batching_dims or len(indices.layout) != 2 or indices.layout[0] is None:
        return
    shape, given = lowering.shape(table), lowering.shape(updates)
    windows = [d for d in range(len(shape)) if d not in pair]
    sources = dict(zip(windows, map(int, numbers.update_window_dims), strict=True))
    (sources[pair[0]],) = set(range(len(given))) - set(sources.values())
    if any(given[source] != shape[d] for d, source in sources.items()) or shape[pair[1]] != shape[pair[0]]:
        return
    columns = columns_of(lowering, indices)
    if columns is None or not all(counts(lowering, column.node, indices.layout[0]) for column in columns):
        return
    left = [d for d in range(len(shape)) if d != pair[1]]
    order = [sources[d] for d in left]

    def chosen(old: jax.Array, new: jax.Array) -> jax.Array:
        update = lax.broadcast_in_dim(lax.transpose(new, order), shape, left)
        row, column = (lax.broadcasted_iota(jnp.int32, shape, d) for d in pair)
        return lax.select(lax.eq(row, column), combined(old, update), old)

    def build() -> View | None:
        avals = [jax.ShapeDtypeStruct(lowering.shape(view), view.dtype) for view in (table, updates)]
        (made,) = lowering.inline(jax.make_jaxpr(chosen)(*avals), [table, updates], named=False)
        return remade(lowering, results[0], made)

    lowering.name(equation, results[0], build)
