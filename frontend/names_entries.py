"""The names of look-ups: entries of an array at given indices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.lax import GatherScatterMode

from eqsat.frontend.draft import View
from eqsat.frontend.handlers_indices import columns_of
from eqsat.frontend.names_ranks import ranked
from eqsat.frontend.naming import Labels, applied
from eqsat.frontend.registry import names
from eqsat.ir.dtypes import is_extended, is_inexact, numpy_dtype
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Map

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

Views = Sequence[View]


def entry(lowering: Lowering, view: View, dimension: int, where: View) -> View | None:
    """The entry at a scalar index along a dimension, or the nearest one; the dimension gets length 1."""
    shape = list(lowering.shape(view))
    shape[dimension] = 1
    labels, rest = _entry_labels(len(shape), dimension)
    return look_up(lowering, view, labels, where, (), rest, shape)


def name_ranked(
    lowering: Lowering, equation: Any, body: View, view: View, dimension: int, where: Callable[[], View]
) -> None:
    """Note that `body` is the entry at a scalar index along a dimension that may be sorted."""
    labels, rest = _entry_labels(len(view.layout), dimension)
    build = ranked(lowering, view, labels, where, (), rest)
    if build is not None:
        lowering.name(equation, body, build)


def _entry_labels(rank: int, dimension: int) -> tuple[Labels, Labels]:
    """The labels of an array's dimensions, and of those of one entry along a dimension."""
    return tuple(("n" if d == dimension else d) for d in range(rank)), tuple(
        ("gone" if d == dimension else d) for d in range(rank)
    )


def look_up(
    lowering: Lowering,
    table: View,
    labels: Labels,
    index: View,
    index_labels: Labels,
    result: Labels,
    shape: Sequence[int],
) -> View | None:
    """The entries of a table at indices along the dimension labelled "n", as a named operation."""
    operands = [(table, labels), (index, index_labels)]
    return applied(lowering, OPERATIONS["take"], operands, result, shape, table.dtype)


@names("dynamic_slice")
def _dynamic_slice(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """A slice that is whole but for dimensions of which it has one entry."""
    view, *starts = operands
    before, sizes = lowering.shape(view), equation.params["slice_sizes"]
    cut = [d for d in range(len(before)) if sizes[d] != before[d]]
    if is_extended(view.dtype) or 0 in before or any(sizes[d] != 1 for d in cut):
        return

    def build() -> View | None:
        part: View | None = view
        for dimension in cut:
            part = part and entry(lowering, part, dimension, starts[dimension])
        return part

    if all(last_fits(before[d] - 1, starts[d].dtype) for d in cut):
        lowering.name(equation, results[0], build)
        if len(cut) == 1:
            (dimension,) = cut
            last = before[dimension] - 1
            name_ranked(
                lowering,
                equation,
                results[0],
                view,
                dimension,
                lambda: _clamped(lowering, starts[dimension], last),
            )


@names("gather")
def _gather(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """A gather of whole slices, or of single entries: one look-up for each index."""
    (table, indices), (result,) = operands, results
    params = equation.params
    numbers, mode = params["dimension_numbers"], params["mode"]
    before, after = lowering.shape(table), lowering.shape(result)
    dimensions = tuple(map(int, numbers.start_index_map))
    columns = index_columns(lowering, indices, len(dimensions))
    if columns is None or is_extended(table.dtype) or 0 in before:
        return
    of_index = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    single = {*dimensions, *of_index}
    if any(size != (1 if d in single else before[d]) for d, size in enumerate(params["slice_sizes"])):
        return
    labels: list[Hashable] = [
        ("index", of_index[d]) if d in of_index else ("table", d) for d in range(len(before))
    ]
    # The dimensions of the slices, and among them those of the indices, whose last one is gone.
    slices = iter(d for d in range(len(before)) if d not in {*numbers.collapsed_slice_dims, *of_index})
    places = iter(range(len(indices.layout) - 1))
    wanted: list[Hashable] = []
    for position in range(len(after)):
        if position in numbers.offset_dims:
            d = next(slices)
            wanted.append("gone" if d in dimensions else labels[d])
        else:
            wanted.append(("index", next(places)))
    index_labels = tuple(("index", d) for d in range(len(indices.layout) - 1))

    def build() -> View | None:
        taken: View | None = table
        now: list[Hashable] = list(labels)
        lengths = list(before)
        for number, (column, dimension) in enumerate(zip(columns, dimensions, strict=True)):
            if taken is None:
                return None
            here = tuple("n" if label == ("table", dimension) else label for label in now)
            left = [(label, length) for label, length in zip(here, lengths, strict=True) if label != "n"]
            further = [label for label in index_labels if label not in now]
            now = [*(label for label, _ in left), *further]
            lengths = [*(length for _, length in left), *(1 for _ in further)]
            last = number == len(dimensions) - 1
            rest, shape = (tuple(wanted), after) if last else (tuple(now), lengths)
            taken = look_up(lowering, taken, here, column, index_labels, rest, shape)
        return taken and filled(taken)

    def filled(taken: View) -> View:
        if mode != GatherScatterMode.FILL_OR_DROP:
            return taken
        tests: list[View] = []
        for column, dimension in zip(columns, dimensions, strict=True):
            at: dict[Hashable, int | None] = dict(zip(index_labels, column.layout, strict=True))
            spread = View(column.node, tuple(at.get(label) for label in wanted), column.dtype)
            last = before[dimension] - 1
            tests.append(_map(lowering, "ge", [spread, lowering.constant(0, column.dtype)], "bool"))
            tests.append(_map(lowering, "le", [spread, lowering.constant(last, column.dtype)], "bool"))
        known = reduce(lambda one, other: _map(lowering, "and", [one, other], "bool"), tests)
        fill = lowering.constant(_fill_value(params["fill_value"], table.dtype), table.dtype)
        return _map(lowering, "select_n", [known, fill, taken], table.dtype)

    if not all(last_fits(before[d] - 1, indices.dtype) for d in dimensions):
        return
    lowering.name(equation, result, build)
    if len(dimensions) == 1:
        (index,), (dimension,) = columns, dimensions

        def inside() -> View:
            last = before[dimension] - 1
            return _clamped(lowering, index, last) if mode == GatherScatterMode.CLIP else index

        sorted_labels = tuple("n" if d == dimension else label for d, label in enumerate(labels))
        found = ranked(lowering, table, sorted_labels, inside, index_labels, tuple(wanted))
        if found is not None:
            lowering.name(equation, result, lambda: filled(found()))


def index_columns(lowering: Lowering, indices: View, count: int) -> Views | None:
    """The indices of each dimension, without the last dimension; None if they can't be told apart."""
    columns: Views | None = [indices] if count == 1 else columns_of(lowering, indices)
    if columns is None or len(columns) != count or count == 0:
        return None
    return [View(column.node, column.layout[:-1], column.dtype) for column in columns]


def last_fits(last: int, dtype: str) -> bool:
    """Whether an index dtype has the last index: if not, all indices are in bounds, and comparisons wrap."""
    return last <= np.iinfo(numpy_dtype(dtype)).max


def _clamped(lowering: Lowering, index: View, last: int) -> View:
    """The index if it is from 0 to `last`, else the nearest of those."""
    inside = _map(lowering, "max", [index, lowering.constant(0, index.dtype)], index.dtype)
    return _map(lowering, "min", [inside, lowering.constant(last, index.dtype)], index.dtype)


def _map(lowering: Lowering, name: str, operands: Views, dtype: str) -> View:
    return lowering.elementwise(lambda _: Map(name, dtype), operands, dtype)


def _fill_value(given: Any, dtype: str) -> Any:
    """The value that a gather gives for an index out of bounds."""
    kind = numpy_dtype(dtype).kind
    if given is not None:
        return given
    if is_inexact(dtype):
        return float("nan")
    if kind == "b":
        return True
    limits = np.iinfo(numpy_dtype(dtype))
    return limits.max if kind == "u" else limits.min
