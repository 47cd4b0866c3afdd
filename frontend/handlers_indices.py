"""Gathers and scatters with indices that count along a dimension, as in `x[jnp.arange(n), labels]`.

    y_i = x[i, j_i]  for i = 0, 1, ..., n - 1

takes an entry of each row: one gather for each i, along rows that both have. Written so, with the rows as
batching dimensions, it can be given chunks of rows. A gather by pairs of indices needs all rows for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from eqsat.frontend.draft import View
from eqsat.frontend.registry import Views, handles
from eqsat.ir.dtypes import is_extended
from eqsat.ir.ops import Const, Map, Opaque

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@dataclass(frozen=True)
class Counting:
    """A column of indices that counts.

    **Attributes:**

    - `column`: its number.
    - `along`: the dimension of the indices along which it does: 0, 1, 2, ...
    - `dimension`: the dimension of the table that it is the index of.
    """

    column: int
    along: int
    dimension: int


@dataclass(frozen=True)
class Fields:
    """The names of dimension numbers: which dimensions of the table the columns of indices are of, of which
    dimensions single entries are taken, and which dimensions of the indices are batching dimensions."""

    columns: str
    single: str
    batching: str


GATHER = Fields("start_index_map", "collapsed_slice_dims", "start_indices_batching_dims")
SCATTER = Fields("scatter_dims_to_operand_dims", "inserted_window_dims", "scatter_indices_batching_dims")


@handles("gather")
def gather(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The gather with rows as batching dimensions; None if no column of its indices counts."""
    found = _counting(lowering, equation, operands, GATHER)
    return None if found is None else _batched(lowering, equation, operands, found, GATHER)


@handles("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def scatter(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The scatter with rows as batching dimensions; None if no column of its indices counts."""
    found = _counting(lowering, equation, operands, SCATTER)
    if found is None or lowering.shape(operands[0])[found.dimension] != _length(lowering, operands, found):
        return None  # Rows beyond the last index would have to be put back.
    return _batched(lowering, equation, operands, found, SCATTER)


def _counting(lowering: Lowering, equation: Any, operands: Views, fields: Fields) -> Counting | None:
    """The first column of indices that counts, beside others that don't have to."""
    table, indices, *_ = operands
    numbers = equation.params["dimension_numbers"]
    dimensions, single, batching = (
        getattr(numbers, name) for name in (fields.columns, fields.single, fields.batching)
    )
    if len(dimensions) < 2 or is_extended(table.dtype):
        return None
    columns = columns_of(lowering, indices)
    if columns is None or len(columns) != len(dimensions):
        return None
    lengths = lowering.shape(table)
    for number, (column, dimension) in enumerate(zip(columns, dimensions, strict=True)):
        for along, axis in enumerate(column.layout[:-1]):
            if axis is None or along in batching:
                continue
            if dimension not in single and _window(equation, dimension) is None:
                continue
            fits = lowering.draft.axes.size(axis) <= lengths[dimension]
            if fits and counts(lowering, column.node, axis):
                return Counting(number, along, int(dimension))
    return None


def _window(equation: Any, dimension: int) -> int | None:
    """The dimension of a gather's result that is the window of one entry along a dimension of the table.

    None if there is no such window. A batch of dynamic slices has one for each dimension of the table.
    """
    if equation.primitive.name != "gather" or equation.params["slice_sizes"][dimension] != 1:
        return None
    numbers = equation.params["dimension_numbers"]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [d for d in range(len(equation.params["slice_sizes"])) if d not in gone]
    return int(numbers.offset_dims[windows.index(dimension)]) if dimension in windows else None


def columns_of(lowering: Lowering, indices: View) -> Sequence[View] | None:
    """The columns that indices were put together from; None if they were not, or not one by one."""
    made = lowering.made.get(indices.node)
    if made is None or made.primitive != "concatenate" or made.view.layout != indices.layout:
        return None
    op = lowering.draft.op(indices.node)
    last = len(indices.layout) - 1
    if not isinstance(op, Opaque) or op.call.params["dimension"] != last:
        return None
    return made.operands if all(view.layout[last] is None for view in made.operands) else None


def counts(lowering: Lowering, node: int, axis: int | None) -> bool:
    """Whether a node is 0, 1, 2, ... along an axis, and nothing else.

    Indexing adds the length to negative indices, of which there are none: `select_n(i < 0, i, i + n)`.
    """
    draft = lowering.draft
    if draft.counts_along(node, axis):
        return True
    op, args = draft.op(node), draft.nodes[node].args
    if not isinstance(op, Map) or op.name != "select_n" or len(args) != 3:
        return False
    test, test_args = draft.op(args[0]), draft.nodes[args[0]].args
    if not isinstance(test, Map) or test.name != "lt" or not counts(lowering, test_args[0], axis):
        return False
    bound = draft.op(test_args[1])
    return isinstance(bound, Const) and float(bound.text) <= 0 and counts(lowering, args[1], axis)


def _length(lowering: Lowering, operands: Views, found: Counting) -> int:
    return lowering.shape(operands[1])[found.along]


def _renumbered(numbers: Any, found: Counting, fields: Fields) -> Any:
    """Dimension numbers with one more pair of batching dimensions, in the order of the table's."""
    pairs = zip(numbers.operand_batching_dims, getattr(numbers, fields.batching), strict=True)
    ordered = sorted([*pairs, (found.dimension, found.along)])
    changed = {
        "operand_batching_dims": tuple(first for first, _ in ordered),
        fields.batching: tuple(second for _, second in ordered),
        fields.columns: _without(getattr(numbers, fields.columns), found.dimension),
        fields.single: _without(getattr(numbers, fields.single), found.dimension),
    }
    return numbers._replace(**changed)


def _without_window(numbers: Any, window: int) -> Any:
    """Dimension numbers of a gather whose result lacks a dimension, which was a window of one entry."""
    left = [d for d in numbers.offset_dims if d != window]
    return numbers._replace(offset_dims=tuple(d - (d > window) for d in left))


def _without(dimensions: Sequence[int], gone: int) -> tuple[int, ...]:
    return tuple(dimension for dimension in dimensions if dimension != gone)


def _batched(
    lowering: Lowering, equation: Any, operands: Views, found: Counting, fields: Fields
) -> list[View]:
    """The results with rows as batching dimensions, and without the column that counts."""
    table, indices, *rest = operands
    together = enumerate(columns_of(lowering, indices) or ())
    columns = [view for number, view in together if number != found.column]
    shape, length = lowering.shape(indices)[:-1], _length(lowering, operands, found)
    numbers = _renumbered(equation.params["dimension_numbers"], found, fields)
    window = _window(equation, found.dimension)
    if window is not None:
        numbers = _without_window(numbers, window)
    params = {**equation.params, "dimension_numbers": numbers, "indices_are_sorted": False}

    def function(table: Any, *others: Any) -> Any:
        rows = table
        if length < table.shape[found.dimension]:
            rows = lax.slice_in_dim(table, 0, length, axis=found.dimension)
        parts = [jnp.broadcast_to(part, (*shape, 1)) for part in others[: len(columns)]]
        left = lax.concatenate(parts, len(shape)) if len(parts) > 1 else parts[0]
        result = equation.primitive.bind(rows, left, *others[len(columns) :], **params)
        return result if window is None else jnp.expand_dims(result, window)

    views = [table, *columns, *rest]
    avals = [jax.ShapeDtypeStruct(lowering.shape(view), view.dtype) for view in views]
    return lowering.inline(jax.make_jaxpr(function)(*avals), views)
