"""Which products are emitted in parts: those whose results have too few tiles to keep a GPU busy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from eqsat.backend.layout import Emitted
from eqsat.backend.pieces import Pieces
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Dot
from eqsat.targets.product_tiles import ProductTiles


def terms_of_part(
    op: Dot, left: Emitted, right: Emitted, pieces: Mapping[Axis, Pieces], tiles: ProductTiles
) -> int | None:
    """How many terms a product adds up at a time; None if it is taken whole.

    **Arguments:**

    - `pieces`: the lengths in which axes are gone through.
    """

    def length(axes: Iterable[Axis]) -> int:
        return math.prod(pieces[axis].shortest if axis in pieces else axis.size for axis in axes)

    if len(op.axes) != 1:
        return None
    (summed,) = op.axes
    rows = [axis for axis in left.order if axis not in right.order]
    columns = [axis for axis in right.order if axis not in left.order]
    if not (rows and columns):
        return None
    batch = [axis for axis in left.order if axis in right.order and axis != summed]
    return tiles.part(
        pieces.get(summed, Pieces.of(summed)).divisor,
        length(rows),
        length(columns),
        length(batch),
        itemsize(op.dtype),
    )
