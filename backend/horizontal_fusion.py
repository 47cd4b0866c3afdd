"""Products of one matrix with several narrow ones as one, the columns of all of them side by side.

A matrix whose summed axis comes first is multiplied from the left. One whose summed axis comes last is
multiplied from the right, by a number of columns that is fast, padded with zeros. XLA concatenates the
columns before the loop if they are loop-invariant.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eqsat.backend.contractions import COLUMNS, product_text
from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted, Lengths, length_text, shape_text, transposed, tuple_text
from eqsat.ir.axis import Axis
from eqsat.planning.blocks import FusedProducts

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter
    from eqsat.backend.scope import Scope


def emit_fused_products(emitter: Emitter, group: FusedProducts, scope: Scope) -> None:
    """Write the products; each goes into the scope as a part of them."""
    op, first = group.op, group.products[0]
    matrix = emitter.value(group.matrix, scope)
    added = tuple(axis for axis in matrix.order if axis in op.axes)
    from_left = matrix.order[0] in op.axes
    order = (COLUMNS, *added) if from_left else (*added, COLUMNS)
    columns = _Columns(order, scope.lengths_of(group.matrix), op.dtype)
    parts = [columns.add(None if narrow is None else emitter.value(narrow, scope)) for narrow in group.narrow]
    if not from_left:
        columns.fill(group.columns)
    together = Emitted(emitter.local(f"columns_{first.number}"), order)
    emitter.line(scope, f"{together.text} = {columns.text()}")
    left, right = (together, matrix) if from_left else (matrix, together)
    value = product_text(op, left, right)
    products = emitter.local(f"dots_{first.number}")
    emitter.line(scope, f"{products} = {value.text}")
    at = value.order.index(COLUMNS)
    for term, (free, part) in zip(group.products, parts, strict=True):
        text = f"{products}[{':, ' * at}{part}]"
        rest = (*value.order[:at], *free, *value.order[at + 1 :])
        if len(free) > 1:
            text = f"jnp.reshape({text}, {shape_text(rest, scope.lengths_of(term))})"
        scope.values[term.number] = emitter.assign(scope, term, "dot", Emitted(text, rest))


class _Columns:
    """Columns put side by side.

    **Arguments:**

    - `order`: the order of the axes; `COLUMNS` stands for what the columns are counted by.
    """

    def __init__(self, order: tuple[Axis, ...], lengths: Lengths, dtype: str) -> None:
        self.order = order
        self.lengths = lengths
        self.dtype = dtype
        self.pieces: list[str] = []
        self.count = 0

    def add(self, value: Emitted | None) -> tuple[tuple[Axis, ...], str]:
        """Add a vector, a matrix or, for a sum, ones; the axes of a matrix's columns, and where they are."""
        start = self.count
        free = () if value is None else tuple(axis for axis in value.order if axis not in self.order)
        if value is None:
            self._constant("ones", 1)
            return (), str(start)
        if not free:
            index = ["None" if axis == COLUMNS else ":" for axis in self.order]
            self.pieces.append(f"{transposed(value, self.order).text}[{', '.join(index)}]")
            self.count += 1
            return (), str(start)
        columns = math.prod(axis.size for axis in free)
        at = self.order.index(COLUMNS)
        text = transposed(value, (*self.order[:at], *free, *self.order[at + 1 :])).text
        self.pieces.append(f"jnp.reshape({text}, {self._shape(columns)})" if len(free) > 1 else text)
        self.count += columns
        return free, f"{start}:{self.count}"

    def fill(self, count: int) -> None:
        """Pad with columns of zeros."""
        if count > self.count:
            self._constant("zeros", count - self.count)

    def _constant(self, kind: str, columns: int) -> None:
        self.pieces.append(f"jnp.{kind}({self._shape(columns)}, {dtype_text(self.dtype)})")
        self.count += columns

    def _shape(self, columns: int) -> str:
        """The shape of a number of columns, as text."""
        return tuple_text(
            [str(columns) if axis == COLUMNS else length_text(axis, self.lengths) for axis in self.order]
        )

    def text(self) -> str:
        return f"jnp.concatenate([{', '.join(self.pieces)}], axis={self.order.index(COLUMNS)})"
