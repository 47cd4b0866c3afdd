"""Sums and extremes of the magnitudes of an array, as operations: what tests of ranges look at.

As reductions of `abs(x)`, each would store that first. As operations, all of them are found in one pass.
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
    # Of nothing but zeros, and of what is larger: 1.
    "smallest_nonzero_magnitude": "jnp.min(jnp.where({x} == 0, 1, jnp.minimum(1, jnp.abs({x}))))",
}
"""By name: the JAX expression of it. They are for float32 and float64."""

LONGEST_SUM = 2**16
"""How many numbers a sum may have. They are added up one after the other, which takes from a sum of n at most
the share n / 2^24 in float32 (N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2)."""


SHORT_ROW = 1024
"""Extremes are those of rows first, which are stored. Of rows that are shorter, all are taken for one."""

RESULTS = 4
"""All of `MAGNITUDES` are computed together."""


def extreme(name: str, operand: Term) -> Operation:
    """One of `MAGNITUDES` over all axes of an operand, of which there must be some."""
    return _along(name, operand, operand.axes, lambda sizes: RESULTS * math.prod(sizes.values()) / SHORT_ROW)


def summed(operand: Term, along: Collection[Axis]) -> Operation | None:
    """The sum of magnitudes along axes; None if they are not the last ones of an argument, or too long."""
    if not isinstance(operand.op, Leaf) or math.prod(axis.size for axis in along) > LONGEST_SUM:
        return None
    order = [axis for axis in layout_axes(operand.op.layout) if axis in operand.axes]
    last = set(order[len(order) - len(along) :]) == set(along)
    return _along(SUM, operand, along, lambda _: RESULTS - 1) if last else None


def magnitude(signature: Signature, beside: Callable[[Sizes], float] | None = None) -> OperationSpec:
    """One of `MAGNITUDES`, along all axes that its signature names."""
    return OperationSpec(signature, MAGNITUDES[signature.name], each=_share, beside=beside)


def _share(sizes: Sizes) -> float:
    """Operations for one of the results, of which the others cost nothing more."""
    return math.prod(sizes.values()) / RESULTS


def _along(name: str, operand: Term, axes: Collection[Axis], beside: Callable[[Sizes], float]) -> Operation:
    core = tuple(sorted(axes, key=lambda axis: axis.id))
    letters = tuple(f"i{place}" for place in range(len(core)))
    spec = magnitude(Signature(name, letters, (("x", letters),), ()), beside)
    return Operation(spec, core, operand.dtype)
