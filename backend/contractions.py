"""Contractions as source: an einsum whose letters are the axes' names."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Dot


def contraction_text(op: Dot, left: Emitted, right: Emitted, dtypes: Sequence[str]) -> Emitted:
    """The contraction of two values of those dtypes: axes of both, then the left's, then the right's."""
    letters: dict[Axis, str] = {}
    for axis in (*left.order, *right.order):
        if axis not in letters:
            spare = (chr(c) for c in (*range(97, 123), *range(65, 91)))
            wanted = axis.name if len(axis.name) == 1 and axis.name not in letters.values() else None
            letters[axis] = wanted or next(c for c in spare if c not in letters.values())
    batch = [axis for axis in left.order if axis in right.order and axis not in op.axes]
    order = tuple(batch)
    order += tuple(axis for axis in left.order if axis not in op.axes and axis not in batch)
    order += tuple(axis for axis in right.order if axis not in op.axes and axis not in batch)
    spelled = ["".join(letters[axis] for axis in axes) for axes in (left.order, right.order, order)]
    extra = f', precision="{op.precision.lower()}"' if op.precision else ""
    if any(dtype != op.dtype for dtype in dtypes):
        extra += f", preferred_element_type={dtype_text(op.dtype)}"
    equation = f"{spelled[0]},{spelled[1]}->{spelled[2]}"
    text = f'jnp.einsum("{equation}", {left.text}, {right.text}{extra})'
    return Emitted(text, order)
