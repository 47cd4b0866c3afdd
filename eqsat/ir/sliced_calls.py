"""One slice of a call along an axis that passes through it, as a call of its own, on slices of its operands.

    gather(table, indices)[i]  =  gather(table, indices[i])

The dimensions of the axis have length 1 in it, and what its parameters say of their lengths is changed. A
primitive whose parameters say more of them has no such slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_shape, parts
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.ops import Call

OF_OPERAND = {"slice": "limit_indices", "dynamic_slice": "slice_sizes", "gather": "slice_sizes"}
"""By primitive: the parameter that has the lengths of those dimensions of the first operand that it keeps."""


def one_slice(call: Call, axis: Axis, dtypes: Sequence[str]) -> Call | None:
    """The call on one slice of its operands along an axis, with its number; None if it has no slices.

    **Arguments:**

    - `dtypes`: those of the operands.
    """
    if axis not in call.passing or axis in call.ordered or call.bodies:
        return None
    if any(map(is_extended, (*dtypes, *call.out_dtypes))):
        return None
    arguments = tuple(_without(layout, axis) for layout in call.arg_layouts)
    results = tuple(_without(layout, axis) for layout in call.out_layouts)
    params = dict(call.params)
    name = OF_OPERAND.get(call.primitive.name)
    if name is not None:
        before, after = layout_shape(call.arg_layouts[0]), layout_shape(arguments[0])
        params[name] = tuple(
            short if value == whole else value
            for value, whole, short in zip(params[name], before, after, strict=True)
        )
    made = replace(
        call, params=params, arg_layouts=arguments, out_layouts=results, passing=call.passing - {axis}
    )
    return made if _shapes(made, dtypes) == [layout_shape(layout) for layout in results] else None


def _without(layout: Layout, axis: Axis) -> Layout:
    return tuple(as_dimension(one for one in parts(d) if one != axis) for d in layout)


def _shapes(call: Call, dtypes: Sequence[str]) -> list[tuple[int, ...]] | None:
    """The shapes of what a primitive gives for operands of a call's shapes; None if it does not take them."""
    operands = [
        jax.ShapeDtypeStruct(layout_shape(layout), numpy_dtype(dtype))
        for layout, dtype in zip(call.arg_layouts, dtypes, strict=True)
    ]

    def bound(*arrays: Any) -> Any:
        return call.primitive.bind(*arrays, **call.primitive.get_bind_params(dict(call.params)))

    try:
        with jax.enable_x64(True):
            results = jax.eval_shape(bound, *operands)
    except Exception:  # whatever a primitive raises for shapes that it does not take
        return None
    found = results if call.primitive.multiple_results else [results]
    return [tuple(result.shape) for result in found]
