"""Slices of scans: how a scan takes them of an array in which the scanned axis does not come first.

XLA for CPUs copies such an array as a whole, with that axis first (measured, jaxlib 0.10). A slice that is
taken by its number is read where it is. If its entries lie one by one, each takes a line of the cache: then
the array had better be in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import itemsize
from eqsat.ir.memory_order import Order
from eqsat.ir.ops import Call


def scanned_axis(call: Call, place: int) -> Axis | None:
    """The axis along which a scan takes slices of an operand, if it is one axis."""
    first = call.arg_layouts[place][0]
    return first if isinstance(first, Axis) else None


def lies_apart(order: Order | None, axis: Axis | None) -> bool:
    """Whether an array lies in memory with another axis first, if it is known how it does."""
    return order is not None and axis in order and order[0] != axis


def is_indexed(
    order: Order, axis: Axis, dtype: str, length: Callable[[Axis], int], most: int, line: int
) -> bool:
    """Whether slices of such an array are taken by their number.

    **Arguments:**

    - `order`: the axes of the array as it lies in memory.
    - `most`: the most bytes of an array whose entries may be read one by one; 0 if no slices are taken so.
    - `line`: bytes of a line of the cache: slices that are longer runs are read at no loss.
    """
    behind = order[order.index(axis) + 1 :]
    run, size = (math.prod(map(length, axes)) * itemsize(dtype) for axes in (behind, order))
    return most > 0 and (run >= line or size <= most)
