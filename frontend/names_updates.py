"""The names of updates of one slice, as in `x.at[i].set(v)`: choices by index.

    b = a, but for b_i = f(a_i, u)   is   b_q = f(a_q, u) if q = i else a_q

A choice gives any chunk of the array along the dimension of i. An update needs all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.draft import View
from eqsat.frontend.known import LEAST
from eqsat.frontend.names_slices import remade
from eqsat.frontend.registry import Views, names
from eqsat.frontend.scatter_updates import COMBINED, Combination, combination
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.ops import Const, Leaf, Opaque

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

SHORTEST = 32
"""No chunks are wanted of a dimension with fewer entries, such as the coordinates of points."""

UPDATES = frozenset({*COMBINED, "dynamic_update_slice"})
"""Primitives that change some entries of their first operand."""


@names(*COMBINED)
def _scatter(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """A scatter of one slice, or of one for each of a batch, that is whole along dimensions without index."""
    combined = combination(equation.primitive.name, equation.params)
    table, indices, updates = operands
    numbers = equation.params["dimension_numbers"]
    indexed = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    batch = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    if combined is None or sorted(indexed) != sorted(numbers.inserted_window_dims):
        return
    if len(indices.layout) - 1 != len(batch):
        return
    shape, given = lowering.shape(table), lowering.shape(updates)
    windows = [d for d in range(len(shape)) if d not in indexed and d not in batch.values()]
    listed = [d for d in range(len(given)) if d not in numbers.update_window_dims]
    places = dict(zip(map(int, numbers.update_window_dims), windows, strict=True))
    places |= {source: int(batch[number]) for number, source in enumerate(listed)}
    if any(given[source] != shape[d] for source, d in places.items()):
        return
    columns = {d: number for number, d in enumerate(indexed)}
    clamped = equation.params["mode"] == lax.GatherScatterMode.CLIP

    def chosen(old: jax.Array, new: jax.Array, index: jax.Array) -> jax.Array:
        spread = {d: _placed(index[..., number], batch, shape) for d, number in columns.items()}
        return _choice(old, _placed(new, places, shape), spread, combined, clamped)

    if max((shape[d] for d in indexed), default=0) >= SHORTEST:
        _name(lowering, equation, chosen, [table, updates, indices], results[0])


@names("dynamic_update_slice")
def _dynamic_update_slice(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """One of slices that have one entry or all along each dimension."""
    table, update, *starts = operands
    shape, given = lowering.shape(table), lowering.shape(update)
    narrow = [d for d in range(len(shape)) if given[d] != shape[d]]
    if any(given[d] != 1 for d in narrow) or max((shape[d] for d in narrow), default=0) < SHORTEST:
        return

    def chosen(old: jax.Array, new: jax.Array, *index: jax.Array) -> jax.Array:
        spread = {d: lax.broadcast(place, shape) for d, place in zip(narrow, index, strict=True)}
        wide = lax.broadcast_in_dim(new, shape, range(len(shape)))
        return _choice(old, wide, spread, lambda _, update: update, clamped=True)

    _name(lowering, equation, chosen, [table, update, *(starts[d] for d in narrow)], results[0])


def _placed(value: jax.Array, places: Mapping[int, int], shape: Sequence[int]) -> jax.Array:
    """An array broadcast to a shape, each of its dimensions in the place that is given for it."""
    order = sorted(range(value.ndim), key=lambda source: places[source])
    return lax.broadcast_in_dim(lax.transpose(value, order), shape, [places[source] for source in order])


def _choice(
    old: jax.Array,
    new: jax.Array,
    index: Mapping[int, jax.Array],
    combined: Combination,
    clamped: bool,
) -> jax.Array:
    """The old entries, and what becomes of those at the index.

    **Arguments:**

    - `index`: by dimension, the number that an entry must have to be changed. All have the shape of `old`.
    - `clamped`: whether the nearest entry is changed if the number is out of bounds; otherwise none is.
    """
    tests = [is_at(place, old.shape, dimension, clamped) for dimension, place in index.items()]
    return lax.select(reduce(lax.bitwise_and, tests), combined(old, new), old)


def is_at(index: jax.Array, shape: Sequence[int], dimension: int, clamped: bool) -> jax.Array:
    """Whether the entries of an array have a number along a dimension; of that shape, as the index is.

    **Arguments:**

    - `clamped`: whether the nearest entry has it if the number is out of bounds; otherwise none has.
    """
    number = _int32(index, shape[dimension])
    if clamped:
        number = lax.clamp(jnp.int32(0), number, jnp.int32(shape[dimension] - 1))
    return lax.eq(lax.broadcasted_iota(jnp.int32, shape, dimension), number)


def _int32(index: jax.Array, size: int) -> jax.Array:
    """An index as int32; instead of what is far out of bounds, the next number out of bounds."""
    info = np.iinfo(index.dtype)
    if info.min < -(2**31):
        index = lax.max(index, index.dtype.type(-1))
    if info.max >= 2**31:
        index = lax.min(index, index.dtype.type(size))
    return lax.convert_element_type(index, jnp.int32)


def _name(lowering: Lowering, equation: Any, chosen: Any, operands: Views, result: View) -> None:
    """Name an update by the function that makes the choice of its operands."""
    table = operands[0]
    if is_extended(table.dtype) or math.prod(lowering.shape(table)) < LEAST:
        return
    if lowering.enclosures and _is_given(lowering, table.node):
        return  # An iteration changes what it is given in place.

    def build() -> View | None:
        avals = [jax.ShapeDtypeStruct(lowering.shape(view), numpy_dtype(view.dtype)) for view in operands]
        (made,) = lowering.inline(jax.make_jaxpr(chosen)(*avals), operands, named=False)
        return remade(lowering, result, made)

    lowering.name(equation, result, build)


def _is_given(lowering: Lowering, node: int) -> bool:
    """Whether an array is an input of a body or a constant, or one of these with updates."""
    while True:
        op = lowering.draft.op(node)
        if isinstance(op, Leaf | Const):
            return True
        if not isinstance(op, Opaque) or op.call.primitive.name not in UPDATES:
            return False
        node = lowering.draft.nodes[node].args[0]
