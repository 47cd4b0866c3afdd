"""Beside entries of sorted arrays: the same entries, found by counting.

    sort(a)[k]  =  the largest x with at most k entries of a before it

A rule can't say this: it takes several passes over a, and the language of rules has no loops but those over
chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import DraftLayout, View
from eqsat.frontend.naming import Labels
from eqsat.frontend.rank_counting import (
    DIGIT,
    DTYPES,
    MOST_ENTRIES,
    STREAMED_DIGIT,
    entries_by_rank,
)
from eqsat.frontend.source import place_of
from eqsat.ir.ops import Map

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

FEWEST_ENTRIES = 4096
"""The fewest entries along an axis that are worth counting. A sort of less takes little memory."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Entries of a sorted array: which ones, and the dimensions of the result.

    **Attributes:**

    - `dimensions`: for each label of a dimension along which the array is not sorted, the dimension.
    - `index`: builds the ranks, which count from 0.
    - `index_labels`: what the dimensions of the ranks are. They have those of the array in common.
    - `result`: what the dimensions of the result are. Other labels are of dimensions of length 1.
    """

    dimensions: dict[Any, int]
    index: Callable[[], View]
    index_labels: Labels
    result: Labels

    @property
    def further(self) -> list[Any]:
        """The labels that only the ranks have."""
        return [label for label in self.index_labels if label not in self.dimensions]


@dataclass
class Sorted:
    """A sorted array.

    **Attributes:**

    - `equation`: the sort.
    - `key`: the array before it.
    - `wanted`: the entries that are taken from it. All are found in the same passes.
    - `found`: the arrays of these, once they are built.
    """

    equation: Any
    key: View
    wanted: list[Wanted] = field(default_factory=list)
    found: list[View] = field(default_factory=list)

    @property
    def dimension(self) -> int:
        """The dimension along which it is sorted."""
        return int(self.equation.params["dimension"])

    def entries(self, lowering: Lowering, number: int) -> View:
        """The wanted entries of that number."""
        if not self.found:
            self._find(lowering)
        found, wanted = self.found[number], self.wanted[number]
        batch = self._batch()
        of: dict[Any, int | None] = {
            label: found.layout[batch.index(dimension)] for label, dimension in wanted.dimensions.items()
        }
        of.update(zip(wanted.further, found.layout[len(batch) :], strict=True))
        return View(found.node, tuple(of.get(label) for label in wanted.result), found.dtype)

    def _batch(self) -> list[int]:
        return [dimension for dimension in range(len(self.key.layout)) if dimension != self.dimension]

    def _find(self, lowering: Lowering) -> None:
        """Add the passes that find all wanted entries."""
        batch = self._batch()
        layout = (*(self.key.layout[d] for d in batch), self.key.layout[self.dimension])
        operands = [View(self.key.node, layout, self.key.dtype)]
        for wanted in self.wanted:
            index = wanted.index()
            at = dict(zip(wanted.index_labels, index.layout, strict=True))
            of = {dimension: at.get(label) for label, dimension in wanted.dimensions.items()}
            along = (*(of.get(d) for d in batch), *(at[label] for label in wanted.further))
            operands.append(View(index.node, along, index.dtype))
        shapes = [(lowering.shape(view), view.dtype) for view in operands]
        digit = STREAMED_DIGIT if lowering.streamed else DIGIT
        closed = entries_by_rank(*shapes[0], shapes[1:], digit)
        self.found = lowering.inline(closed, operands, named=False, origin=place_of(self.equation))


@dataclass(frozen=True, slots=True)
class Order:
    """A view of a sorted array: as it is, or the other way round."""

    sort: Sorted
    layout: DraftLayout
    backwards: bool


def note_sort(lowering: Lowering, equation: Any, key: View, result: View) -> None:
    """Note that a view is the sorted keys of a sort, if its entries can be found by counting.

    A sort that need not be stable may have zeros of either sign in any order: that of a stable one will do.
    JAX's quantiles are of such sorts since version 0.12.
    """
    length = lowering.shape(key)[equation.params["dimension"]]
    if key.dtype in DTYPES and FEWEST_ENTRIES <= length <= MOST_ENTRIES:
        lowering.sorts.setdefault(result.node, Order(Sorted(equation, key), result.layout, False))


def note_reversed(lowering: Lowering, equation: Any, operand: View, result: View) -> None:
    """Note that a view is a sorted array, if there is one, the other way round."""
    found = lowering.sorts.get(operand.node)
    if found is None or len(operand.layout) != len(result.layout):
        return
    turned = {_parts(lowering, operand.layout[dimension]) for dimension in equation.params["dimensions"]}
    if turned - {()} == {_parts(lowering, found.layout[found.sort.dimension])}:
        moved = {_parts(lowering, old): new for old, new in zip(operand.layout, result.layout, strict=True)}
        layout = tuple(axis and moved.get(_parts(lowering, axis)) for axis in found.layout)
        lowering.sorts.setdefault(result.node, Order(found.sort, layout, not found.backwards))


def ranked(
    lowering: Lowering,
    table: View,
    labels: Labels,
    index: Callable[[], View],
    index_labels: Labels,
    result: Labels,
) -> Callable[[], View] | None:
    """Builds entries of an array by counting, as `take` has them; None unless they are of a sorted axis.

    **Arguments:**

    - `labels`: what the dimensions of the table are; the one that is indexed is "n".
    - `index`: builds the indices.
    - `index_labels`, `result`: what the dimensions of the indices and of the result are.
    """
    found = lowering.sorts.get(table.node)
    if found is None:
        return None
    places = {_parts(lowering, axis): d for d, axis in enumerate(found.layout) if axis is not None}
    of = {
        label: places.get(_parts(lowering, axis))
        for label, axis in zip(labels, table.layout, strict=True)
        if axis is not None
    }
    dimensions = {label: dimension for label, dimension in of.items() if dimension is not None}
    # All of the table's dimensions are those of the sorted array.
    if (
        len(dimensions) < len(places)
        or len(of) != len(dimensions)
        or dimensions.pop("n") != found.sort.dimension
    ):
        return None
    last = lowering.shape(table)[labels.index("n")] - 1

    def from_the_end() -> View:
        place = index()
        ends = [lowering.constant(last, place.dtype), place]
        return lowering.elementwise(lambda _: Map("sub", place.dtype), ends, place.dtype)

    rank = from_the_end if found.backwards else index
    found.sort.wanted.append(Wanted(dimensions, rank, index_labels, result))
    number = len(found.sort.wanted) - 1
    return lambda: found.sort.entries(lowering, number)


def _parts(lowering: Lowering, axis: int | None) -> tuple[int, ...]:
    """The parts of which an axis is made, by which it is recognised; none of a dimension of length 1."""
    return () if axis is None else tuple(lowering.draft.axes.atoms(axis))
