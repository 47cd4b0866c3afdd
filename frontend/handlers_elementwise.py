"""Handlers of elementwise functions, and of constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.frontend.draft import MakeOp, View
from eqsat.frontend.registry import HANDLERS, Views, handles, is_placed
from eqsat.frontend.resolve import MakeIota
from eqsat.ir.dtypes import counts_to, is_extended, numpy_dtype
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.ops import Map

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


def map_maker(name: str, dtype: str, params: tuple[tuple[str, Any], ...] = ()) -> MakeOp:
    return lambda _: Map(name, dtype, params)


def elementwise(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    name = equation.primitive.name
    known = ELEMENTWISE[name]
    params = {key: value for key, value in equation.params.items() if value is not None}
    kept = tuple((key, _plain(params.pop(key))) for key in known.params)
    if params or len(operands) != known.arity or is_extended(str(equation.outvars[0].aval.dtype)):
        return None
    if name == "square" and numpy_dtype(operands[0].dtype).kind == "c":
        return None  # `lax.square` rounds otherwise than the product, and than the power, which is that
    if name == "add_any":
        name = "add"
    if name == "add" and numpy_dtype(operands[0].dtype).kind in "iu":
        # Exact for integers. So indices that start at 0, as in `jnp.eye`, are seen to be the same.
        for view, other in (operands, operands[::-1]):
            if lowering.constant_value(other) == 0:
                # Where one has a dimension of length 1, it is as long as the other's.
                others = other.layout or view.layout
                pairs = zip(view.layout or others, others, strict=True)
                layout = tuple(there if here is None else here for here, there in pairs)
                return [View(view.node, layout, view.dtype)]
    if name == "integer_pow" and kept == (("y", 2),):
        name, kept = "square", ()
    dtype = str(equation.outvars[0].aval.dtype)
    return [lowering.elementwise(map_maker(name, dtype, kept), operands, dtype)]


def _plain(value: Any) -> Any:
    return int(value) if not isinstance(value, (str, float)) else value


for _name in ELEMENTWISE:
    if _name not in ("convert", "copy", "stop_gradient"):
        handles(_name)(elementwise)
assert "add_any" in HANDLERS


@handles("convert_element_type")
def convert(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    dtype = str(equation.outvars[0].aval.dtype)
    if is_extended(dtype) or is_extended(view.dtype) or is_placed(equation.params.get("sharding")):
        return None
    if dtype == view.dtype:
        return [view]
    value = lowering.constant_value(view)
    if value is not None and not (np.iscomplexobj(value) and numpy_dtype(dtype).kind != "c"):
        constant = lowering.constant(np.asarray(value).astype(numpy_dtype(view.dtype)), dtype)
        return [lowering.view(constant.node, view.layout, dtype)]
    return [lowering.elementwise(map_maker("convert", dtype), operands, dtype)]


@handles("empty", "empty2")
def empty(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """A value that nothing may read: zeros do."""
    aval = equation.outvars[0].aval
    if is_extended(str(aval.dtype)):
        return None
    node = lowering.constant(0, aval.dtype).node
    return [lowering.view(node, lowering.draft.fresh_layout(aval.shape), aval.dtype)]


@handles("iota")
def iota(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    if operands:
        return None
    dtype = str(equation.params["dtype"])
    layout = lowering.draft.fresh_layout(equation.params["shape"])
    axis = layout[equation.params["dimension"]]
    if axis is None:
        return [lowering.view(lowering.constant(0, dtype).node, layout, dtype)]
    if lowering.draft.axes.size(axis) - 1 > counts_to(dtype):
        return None  # these are no indices: some are the same
    node = lowering.draft.add(MakeIota(axis, dtype), (), (axis,))
    return [lowering.view(node, layout, dtype)]
