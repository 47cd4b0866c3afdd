"""The names of scatters to places that are known, as in `jnp.zeros((n, n)).at[jnp.tril_indices(n)].set(u)`.

    b = a, but for b_q(p) = f(a_q(p), u_p)   is   b_q = f(a_q, u_p(q)) if q is one of the places, else a_q

p(q) is the inverse of q(p). Where it is a sequence of few runs, an expression of the position gives any chunk
of it (`known.py`). So any rows of b can be computed, from the updates that are placed there. A scatter needs
all of b. The derivative of `k[jnp.triu_indices(n, 1)]` is such a scatter, to a matrix that is otherwise 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax

from eqsat.frontend.draft import View
from eqsat.frontend.evaluation import PIECE
from eqsat.frontend.handlers_indices import counts
from eqsat.frontend.known import LEAST
from eqsat.frontend.names_entries import index_columns, look_up
from eqsat.frontend.names_slices import remade
from eqsat.frontend.registry import Views, names
from eqsat.frontend.runs import Differences, Integers
from eqsat.frontend.scatter_updates import COMBINED, combination
from eqsat.frontend.sequences import LAST, Described, described
from eqsat.ir.dtypes import is_extended

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


MOST_PLACES = 20_000_000
"""More of them would take too much memory to invert."""


@names(*COMBINED)
def _known(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """A scatter of a list of slices that are whole along all dimensions without an index."""
    combined = combination(equation.primitive.name, equation.params)
    if combined is None:
        return
    table, indices, updates = operands
    numbers = equation.params["dimension_numbers"]
    by_column = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    indexed = tuple(sorted(by_column))
    shape, given = lowering.shape(table), lowering.shape(updates)
    windows = [d for d in range(len(shape)) if d not in indexed]
    size = math.prod(shape[d] for d in indexed)
    if is_extended(table.dtype) or not LEAST <= size <= LAST or numbers.operand_batching_dims:
        return
    if sorted(numbers.inserted_window_dims) != sorted(indexed) or len(indices.layout) != 2:
        return
    sources = dict(zip(windows, map(int, numbers.update_window_dims), strict=True))
    (listed,) = set(range(len(given))) - set(sources.values())
    if not 2 <= given[listed] <= MOST_PLACES or any(
        given[source] != shape[d] for d, source in sources.items()
    ):
        return
    columns = index_columns(lowering, indices, len(indexed))
    if columns is None or not all(lowering.known.is_known(column.node) for column in columns):
        return
    columns = [columns[by_column.index(d)] for d in indexed]
    if len(columns) > 1 and all(counts(lowering, column.node, indices.layout[0]) for column in columns):
        return  # the diagonal

    def placed(place: View) -> View | None:
        """The updates at numbers; their dimensions are those of the table."""
        if not lowering.has_axis(updates, updates.layout[listed]):
            of_window = (updates.layout[sources[d]] if d in sources else None for d in range(len(shape)))
            return lowering.view(updates.node, of_window, updates.dtype)
        counted = jax.make_jaxpr(lambda place: lax.max(place, np.int32(0)))(_aval(lowering, place))
        (number,) = lowering.inline(counted, [place], named=False)
        dimension_of = {source: d for d, source in sources.items()}
        labels = tuple(dimension_of.get(d, "n") for d in range(len(given)))
        return look_up(lowering, updates, labels, number, indexed, tuple(range(len(shape))), shape)

    def build() -> View | None:
        place = _numbers(lowering, columns, [shape[d] for d in indexed])
        entries = place and placed(place)
        if place is None or entries is None:
            return None

        def chosen(old: jax.Array, new: jax.Array, place: jax.Array) -> jax.Array:
            here = lax.broadcast_in_dim(lax.ge(place, np.int32(0)), shape, indexed)
            spread = lax.broadcast_in_dim(new, shape, range(len(shape)))
            return lax.select(here, combined(old, spread), old)

        views = [table, entries, place]
        avals = [_aval(lowering, view) for view in views]
        (made,) = lowering.inline(jax.make_jaxpr(chosen)(*avals), views, named=False)
        return remade(lowering, results[0], made)

    lowering.name(equation, results[0], build)


def _aval(lowering: Lowering, view: View) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(lowering.shape(view), view.dtype)


def _numbers(lowering: Lowering, columns: Sequence[View], shape: Sequence[int]) -> View | None:
    """For each place, the number of the index that names it; -1 if none does.

    None if several name one, if one is out of bounds, and if it takes too many runs.
    """
    indices: list[Integers] = []
    for column, length in zip(columns, shape, strict=True):
        index = lowering.known.integers(column)
        if index is None or index.min() < 0 or index.max() >= length:
            return None
        indices.append(index)
    rank = len(shape)
    for order in dict.fromkeys([tuple(range(rank)), tuple(reversed(range(rank)))]):
        lengths = [shape[d] for d in order]
        inverse = _inverse([indices[d] for d in order], lengths)
        if inverse is not None:
            view = lowering.known.sequence(inverse, lengths)
            return View(view.node, tuple(view.layout[order.index(d)] for d in range(rank)), view.dtype)
    return None


def _inverse(indices: Sequence[Integers], shape: Sequence[int]) -> Described | None:
    """The same as a sequence of the places in row-major order."""
    places = np.ravel_multi_index(tuple(indices), tuple(shape))
    order: Integers | None = None
    if (places[1:] < places[:-1]).any():
        order = np.argsort(places, kind="stable")
        places = places[order]
    if (places[1:] == places[:-1]).any():
        return None
    differences = Differences()
    size = math.prod(shape)
    for start in range(0, size, PIECE):
        piece = np.full(min(PIECE, size - start), -1, np.int64)
        first, last = np.searchsorted(places, (start, start + len(piece)))
        numbers = np.arange(first, last) if order is None else order[first:last]
        piece[places[first:last] - start] = numbers
        if not differences.add(piece):
            return None
    return described(differences)
