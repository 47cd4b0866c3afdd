"""Handlers of what only changes layouts, and makes no node at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import View
from eqsat.frontend.naming import Claim
from eqsat.frontend.registry import Views, handles
from eqsat.frontend.value_numbering import TRANSPARENT
from eqsat.ir.dtypes import is_extended
from eqsat.ir.properties import PROPERTIES

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@handles(*TRANSPARENT)
def identity(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    return operands


@handles("device_put")
def device_put(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """Nothing, if no device is named: it says that the operands are arrays."""
    places = (*equation.params["devices"], *equation.params["srcs"])
    return operands if all(place is None for place in places) else None


@handles("eqsat_assume")
def assume(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """Note the properties that `eqsat.assume` states of its operand."""
    for name in equation.params["properties"]:
        dimensions = equation.params["dimensions"][: PROPERTIES[name]]
        lowering.claims.append(Claim(name, operands[0], dimensions))
    return operands


@handles("split")
def split(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """Nothing, if all entries are in one part: derivatives split what they are of a single array so."""
    full = [number for number, size in enumerate(equation.params["sizes"]) if size]
    if len(full) != 1:
        return None
    return [
        operands[0] if number == full[0] else without_entries(lowering, var.aval)
        for number, var in enumerate(equation.outvars)
    ]


@handles("slice", "dynamic_slice")
def slice_of_all(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The operand, if the slice has all of its entries, in their order."""
    same = tuple(equation.outvars[0].aval.shape) == lowering.shape(operands[0])
    return operands[:1] if same else None


def without_entries(lowering: Lowering, aval: Any) -> View:
    """An array that has none. It is no slice of what it is computed from: nothing need be known of that."""
    return lowering.view(
        lowering.constant(0, aval.dtype).node, lowering.draft.fresh_layout(aval.shape), str(aval.dtype)
    )


def is_empty(aval: Any) -> bool:
    """Whether an array has no entries, and a dtype that constants have."""
    return 0 in aval.shape and not is_extended(str(aval.dtype))


@handles("transpose")
def transpose(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    return [View(view.node, tuple(view.layout[d] for d in equation.params["permutation"]), view.dtype)]


@handles("squeeze")
def squeeze(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    gone = set(equation.params["dimensions"])
    return [View(view.node, tuple(a for d, a in enumerate(view.layout) if d not in gone), view.dtype)]


@handles("broadcast_in_dim")
def broadcast_in_dim(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    view = operands[0]
    placed = dict(zip(equation.params["broadcast_dimensions"], view.layout, strict=True))
    layout = []
    for dimension, size in enumerate(equation.outvars[0].aval.shape):
        axis = placed.get(dimension)
        layout.append(lowering.draft.axes.fresh(size) if axis is None and size != 1 else axis)
    return [lowering.view(view.node, layout, view.dtype)]


@handles("reshape")
def reshape(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """Dimensions merged and split, where axes can be made of parts that fit the old shape and the new one."""
    (view,) = operands
    shape = equation.outvars[0].aval.shape
    params = equation.params
    if 0 in shape or not (params.get("sharding") is None or params["sharding"].mesh.empty):
        return None
    if not lowering.draft.node_axes(view.node):
        return [lowering.view(view.node, lowering.draft.fresh_layout(shape), view.dtype)]
    order = params.get("dimensions") or range(len(view.layout))
    layout = tuple(view.layout[dimension] for dimension in order)
    left = [axis for axis in layout if axis is not None]
    if [size for size in shape if size != 1] != [lowering.draft.axes.size(axis) for axis in left]:
        if not lowering.reshapes or id(equation) in lowering.calls:
            return None
        regrouped = lowering.draft.regrouped(layout, shape, cause=id(equation))
        return None if regrouped is None else [View(view.node, regrouped, view.dtype)]
    rest = iter(left)
    return [View(view.node, tuple(None if size == 1 else next(rest) for size in shape), view.dtype)]
