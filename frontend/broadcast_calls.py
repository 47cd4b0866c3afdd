"""Gathers and scatters along dimensions that their operands are only broadcast along: done once.

The derivative of a scatter numbers its updates, to tell which of those for one place was the last. JAX gives
the numbers all dimensions of the updates, but they are the same for a whole batch: so is the scatter of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from eqsat.frontend.draft import View
from eqsat.frontend.passing import passing_dimensions
from eqsat.frontend.passing_registry import Passing
from eqsat.frontend.registry import Views

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

PRIMITIVES = frozenset(
    {"gather", "scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"}
)


def called_once(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The result, from a call without the dimensions that no operand varies along; None if there are none."""
    if equation.primitive.name not in PRIMITIVES:
        return None
    gone = [group for group in passing_dimensions(equation) if _is_broadcast(lowering, operands, group)]
    if not gone:
        return None
    views = [
        View(view.node, _without(view.layout, [group.args[index] for group in gone]), view.dtype)
        for index, view in enumerate(operands)
    ]
    params = dict(equation.params)
    if "slice_sizes" in params:
        taken = {group.args[0] for group in gone}
        params["slice_sizes"] = tuple(
            1 if dimension in taken else size for dimension, size in enumerate(params["slice_sizes"])
        )
    avals = [jax.ShapeDtypeStruct(lowering.shape(view), view.dtype) for view in views]
    call = jax.make_jaxpr(lambda *arrays: equation.primitive.bind(*arrays, **params))(*avals)
    (result,) = lowering.inline(call, views, named=False)
    layout = list(result.layout)
    for group in gone:
        index, dimension = next((i, d) for i, d in enumerate(group.args) if d is not None)
        layout[group.outs[0]] = operands[index].layout[dimension]
    return [lowering.view(result.node, layout, result.dtype)]


def _is_broadcast(lowering: Lowering, operands: Views, group: Passing) -> bool:
    """Whether no operand varies along the dimensions of the group."""
    pairs = zip(operands, group.args, strict=True)
    return not any(d is not None and lowering.has_axis(view, view.layout[d]) for view, d in pairs)


def _without(layout: Sequence[int | None], gone: Sequence[int | None]) -> tuple[int | None, ...]:
    return tuple(None if dimension in gone else axis for dimension, axis in enumerate(layout))
