"""Emitted values: the name of a variable and the order of its axes; how one lines up with another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis, Dimension, Layout, is_flat, layout_axes, parts


@dataclass(frozen=True, slots=True)
class Emitted:
    """A value in the emitted program: an expression, and which axis each of its dimensions is."""

    text: str
    order: tuple[Axis, ...]


Lengths = Mapping[Axis, str]
"""The length of each axis that is being chunked, as text; every other axis has its full length."""


def length_text(axis: Axis, lengths: Lengths) -> str:
    return lengths.get(axis) or str(axis.size)


def dimension_text(dimension: Dimension, lengths: Lengths) -> str:
    """The length of a dimension, as text; for several axes, a product.

    >>> a, b, c = Axis(0, 5), Axis(1, 7), Axis(2, 3)
    >>> dimension_text((a, b, c), {}), dimension_text((a, b, c), {b: "size_b"}), dimension_text(None, {})
    ('105', '15 * size_b', '1')
    """
    varying = [lengths[axis] for axis in parts(dimension) if axis in lengths]
    fixed = math.prod(axis.size for axis in parts(dimension) if axis not in lengths)
    return " * ".join([str(fixed)] * (fixed != 1 or not varying) + varying)


def tuple_text(items: Sequence[str]) -> str:
    """The items as a Python tuple.

    >>> tuple_text(["1"]), tuple_text(["1", "2"])
    ('(1,)', '(1, 2)')
    """
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def shape_text(order: Sequence[Axis], lengths: Lengths) -> str:
    return tuple_text([length_text(axis, lengths) for axis in order])


def sizes_of(layout: Layout, lengths: Lengths) -> list[str]:
    """The length of each dimension of a layout, as text."""
    return [dimension_text(dimension, lengths) for dimension in layout]


def merge_orders(orders: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """One order of all axes that keeps to the given orders, the longest one first, where they agree.

    >>> i, j, k = Axis(0, 2), Axis(1, 3), Axis(2, 4)
    >>> merge_orders([(i, k), (j, k)]) == (i, j, k)
    True
    """
    ranked = sorted(orders, key=len, reverse=True)
    merged: list[Axis] = list(ranked[0]) if ranked else []
    for order in ranked[1:]:
        for position, axis in enumerate(order):
            if axis in merged:
                continue
            later = [merged.index(other) for other in order[position + 1 :] if other in merged]
            earlier = [merged.index(other) + 1 for other in order[:position] if other in merged]
            place = min(later) if later else max(earlier, default=len(merged))
            merged.insert(max([place, *earlier]) if earlier else place, axis)
    return tuple(merged)


def sorted_order(orders: Sequence[tuple[Axis, ...]], rank: Callable[[Axis], int]) -> tuple[Axis, ...]:
    """`merge_orders`, with the axes that no order puts before or after one another by rank, the highest last.

    >>> i, j, k = Axis(0, 2), Axis(1, 3), Axis(2, 4)
    >>> sorted_order([(j,), (i,)], lambda axis: axis.size) == (i, j)
    True
    >>> sorted_order([(j, i), (k,)], lambda axis: axis.size) == (j, i, k)
    True
    """
    left = list(merge_orders(orders))
    places = {axis: place for place, axis in enumerate(left)}
    # Where orders disagree, the merged one counts.
    after = {
        axis: {other for order in orders if axis in order for other in order if places[other] > places[axis]}
        for axis in left
    }
    found: list[Axis] = []
    while left:
        last = max((axis for axis in left if not after[axis] & set(left)), key=lambda a: (rank(a), places[a]))
        left.remove(last)
        found.insert(0, last)
    return tuple(found)


def transposed(value: Emitted, order: Sequence[Axis]) -> Emitted:
    """The value with its dimensions in the order in which they stand in `order`."""
    wanted = tuple(axis for axis in order if axis in value.order)
    if wanted == value.order:
        return value
    permutation = tuple_text([str(value.order.index(axis)) for axis in wanted])
    return Emitted(f"jnp.transpose({value.text}, {permutation})", wanted)


def broadcastable(value: Emitted, order: Sequence[Axis]) -> str:
    """The value as an expression that NumPy's broadcasting lines up with `order`; scalars stay scalars."""
    value = transposed(value, order)
    if not value.order or len(value.order) == len(order):
        return value.text
    index = ", ".join(":" if axis in value.order else "None" for axis in order)
    return f"{value.text}[{index}]"


def broadcast(value: Emitted, order: Sequence[Axis], lengths: Lengths) -> str:
    """The value as an expression that has every axis of `order` in full."""
    if set(order) == set(value.order):
        return transposed(value, order).text
    text = broadcastable(value, order)
    return f"jnp.broadcast_to({text}, {shape_text(order, lengths)})"


def realised(value: Emitted, layout: Layout, lengths: Lengths) -> str:
    """The value as an array of exactly that layout: broadcast, transposed, reshaped to its dimensions."""
    order = layout_axes(layout)
    text = broadcast(value, order, lengths)
    if is_flat(layout) and len(order) == len(layout):
        return text
    if not (is_flat(layout) and order):
        return f"jnp.reshape({text}, {tuple_text(sizes_of(layout, lengths))})"
    index = ", ".join("None" if axis is None else ":" for axis in layout)
    return f"{text}[{index}]"


def by_axes(text: str, layout: Layout, lengths: Lengths) -> Emitted:
    """An array of a layout as a value, which has a dimension for every axis, and no others."""
    order = layout_axes(layout)
    if not is_flat(layout):
        return Emitted(f"jnp.reshape({text}, {shape_text(order, lengths)})", order)
    units = [str(dimension) for dimension, axis in enumerate(layout) if axis is None]
    return Emitted(f"lax.squeeze({text}, {tuple_text(units)})" if units else text, order)
