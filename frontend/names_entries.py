"""The names of look-ups: entries of an array at given indices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.lax import GatherScatterMode

from eqsat.frontend.draft import View
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
    """The entry at a scalar index along a dimension, which remains with length 1."""
    shape = list(lowering.shape(view))
    shape[dimension] = 1
    labels, rest = _entry_labels(len(shape), dimension)
    return _taken(lowering, view, labels, where, (), rest, shape)


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


def _taken(
    lowering: Lowering,
    table: View,
    labels: Labels,
    index: View,
    index_labels: Labels,
    result: Labels,
    shape: Sequence[int],
) -> View | None:
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
            last = before[dimension] - 1
            part = part and entry(lowering, part, dimension, _clamped(lowering, starts[dimension], last))
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
    """A gather of whole slices, or of single entries, by one index each."""
    (table, indices), (result,) = operands, results
    params = equation.params
    numbers, mode = params["dimension_numbers"], params["mode"]
    before, after = lowering.shape(table), lowering.shape(result)
    if len(numbers.start_index_map) != 1 or is_extended(table.dtype) or 0 in before:
        return
    (dimension,) = map(int, numbers.start_index_map)
    of_index = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    single = {dimension, *of_index}
    if any(size != (1 if d in single else before[d]) for d, size in enumerate(params["slice_sizes"])):
        return
    labels: list[Hashable] = [
        "n" if d == dimension else ("index", of_index[d]) if d in of_index else ("table", d)
        for d in range(len(before))
    ]
    # The dimensions of the slices, and among them those of the indices, whose last one is gone.
    slices = iter(d for d in range(len(before)) if d not in {*numbers.collapsed_slice_dims, *of_index})
    places = iter(range(len(indices.layout) - 1))
    wanted: list[Hashable] = []
    for position in range(len(after)):
        if position in numbers.offset_dims:
            d = next(slices)
            wanted.append("gone" if d == dimension else labels[d])
        else:
            wanted.append(("index", next(places)))
    index = View(indices.node, indices.layout[:-1], indices.dtype)
    index_labels = tuple(("index", d) for d in range(len(index.layout)))

    def inside() -> View:
        last = before[dimension] - 1
        return _clamped(lowering, index, last) if mode == GatherScatterMode.CLIP else index

    def build() -> View | None:
        taken = _taken(lowering, table, tuple(labels), inside(), index_labels, tuple(wanted), after)
        return taken and filled(taken)

    def filled(taken: View) -> View:
        if mode != GatherScatterMode.FILL_OR_DROP:
            return taken
        last = before[dimension] - 1
        at: dict[Hashable, int | None] = dict(zip(index_labels, index.layout, strict=True))
        spread = View(index.node, tuple(at.get(label) for label in wanted), index.dtype)
        low = _map(lowering, "ge", [spread, lowering.constant(0, index.dtype)], "bool")
        high = _map(lowering, "le", [spread, lowering.constant(last, index.dtype)], "bool")
        known = _map(lowering, "and", [low, high], "bool")
        fill = lowering.constant(_fill_value(params["fill_value"], table.dtype), table.dtype)
        return _map(lowering, "select_n", [known, fill, taken], table.dtype)

    if last_fits(before[dimension] - 1, index.dtype):
        lowering.name(equation, result, build)
        found = ranked(lowering, table, tuple(labels), inside, index_labels, tuple(wanted))
        if found is not None:
            lowering.name(equation, result, lambda: filled(found()))


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
