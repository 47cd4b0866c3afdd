"""Named operations for the sum and the extremes of the magnitudes of an array, for tests of ranges.

A reduction of `abs(x)` would store `abs(x)` first. These operations are computed together in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.operations import OperationSpec, Signature, Sizes
from eqsat.ir.ops import Leaf, Operation
from eqsat.ir.term import Term

SUM = "magnitude_sum"

MAGNITUDES: Mapping[str, str] = {
    SUM: "jnp.sum(jnp.abs({x}))",
    "largest_magnitude": "jnp.max(jnp.abs({x}))",
    "smallest_magnitude": "jnp.min(jnp.abs({x}))",
    # At most 1, and 1 if all entries are zero.
    "smallest_nonzero_magnitude": "jnp.min(jnp.where({x} == 0, 1, jnp.minimum(1, jnp.abs({x}))))",
}
"""The JAX expressions of the operations, by name. The operands are float32 or float64."""

LONGEST_SUM = 2**16
"""The largest number of terms in a sum.

Terms are added one after another, so a sum of n magnitudes in float32 has a relative error of at most about
n / 2^24 (N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
"""


SHORT_ROW = 1024
"""The assumed number of entries per row when the memory of an extreme is estimated.

An extreme is computed in two steps. The first stores the extremes of the rows.
"""

RESULTS = 4
"""The number of results that are computed together: all of `MAGNITUDES`."""


def extreme(name: str, operand: Term) -> Operation:
    """Returns the operation `name` of `MAGNITUDES` over all axes of an operand. It has at least one."""
    return _along(name, operand, operand.axes, lambda sizes: RESULTS * math.prod(sizes.values()) / SHORT_ROW)


def summed(operand: Term, along: Collection[Axis]) -> Operation | None:
    """Returns the operation that sums magnitudes along axes, or None if it does not apply.

    The operand must be an input of the program, the axes its last ones, and their lengths together at most
    `LONGEST_SUM`.
    """
    if not isinstance(operand.op, Leaf) or math.prod(axis.size for axis in along) > LONGEST_SUM:
        return None
    order = [axis for axis in layout_axes(operand.op.layout) if axis in operand.axes]
    last = set(order[len(order) - len(along) :]) == set(along)
    return _along(SUM, operand, along, lambda _: RESULTS - 1) if last else None


def magnitude(signature: Signature, beside: Callable[[Sizes], float] | None = None) -> OperationSpec:
    """Returns the specification of one of `MAGNITUDES`, along all axes that its signature names.

    **Arguments:**

    - `beside`: the numbers stored per slice besides the result, as in `OperationSpec`.
    """
    return OperationSpec(signature, MAGNITUDES[signature.name], each=_share, beside=beside)


def _share(sizes: Sizes) -> float:
    """Returns the work that one result accounts for: an equal share, since all are computed together."""
    return math.prod(sizes.values()) / RESULTS


def _along(name: str, operand: Term, axes: Collection[Axis], beside: Callable[[Sizes], float]) -> Operation:
    core = tuple(sorted(axes, key=lambda axis: axis.id))
    letters = tuple(f"i{place}" for place in range(len(core)))
    spec = magnitude(Signature(name, letters, (("x", letters),), ()), beside)
    return Operation(spec, core, operand.dtype)
