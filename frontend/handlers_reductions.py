"""Handlers of reductions and selections along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.frontend.draft import MakeOp, Resolver
from eqsat.frontend.handlers_elementwise import map_maker
from eqsat.frontend.registry import Views, handles, is_placed
from eqsat.ir.dtypes import counts_to, is_inexact, numpy_dtype
from eqsat.ir.ops import Reduce, Select

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


REDUCTIONS = {
    "reduce_sum": "sum",
    "reduce_prod": "prod",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
IDEMPOTENT = frozenset({"max", "min", "and", "or"})


@handles(*REDUCTIONS)
def reduction(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    kind = REDUCTIONS[equation.primitive.name]
    gone = set(equation.params["axes"])
    if is_placed(equation.params.get("out_sharding")):
        return None
    if kind in ("max", "min") and numpy_dtype(view.dtype).kind == "c":
        return None  # which of two is larger says nothing of NaN: what comes out depends on the order
    axes = lowering.draft.axes.atoms_of(view.layout[d] for d in gone)
    if any(lowering.draft.axes.size(axis) == 0 for axis in axes):
        return None
    rest = [axis for d, axis in enumerate(view.layout) if d not in gone]
    varying = [axis for axis in axes if lowering.has_axis(view, axis)]
    repeats = [axis for axis in axes if not lowering.has_axis(view, axis)]
    node = view.node
    if varying:

        def make(axis_of: Resolver) -> Reduce:
            return Reduce(kind, axis_of.several(varying), view.dtype)

        node = lowering.draft.add(make, [node], lowering.draft.axes_without(node, varying))
    result = lowering.view(node, rest, view.dtype)
    if not repeats or kind in IDEMPOTENT:
        return [result]
    if kind != "sum" or not is_inexact(view.dtype):
        return None
    # The sum of a value that does not vary along an axis: so many times the value.
    times = int(np.prod([lowering.draft.axes.size(axis) for axis in repeats]))
    factor = lowering.constant(times, view.dtype)
    return [lowering.elementwise(map_maker("mul", view.dtype), [factor, result], view.dtype)]


@handles("argmax", "argmin")
def arg_reduction(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    (dimension,) = equation.params["axes"]
    axis = view.layout[dimension]
    dtype = str(equation.outvars[0].aval.dtype)
    rest = [a for d, a in enumerate(view.layout) if d != dimension]
    if axis is None or not lowering.has_axis(view, axis):
        return [lowering.view(lowering.constant(0, dtype).node, rest, dtype)] if axis is None else None
    if not 0 < lowering.draft.axes.size(axis) <= counts_to(dtype) + 1:
        return None  # of no entries; or of so many that some indices are the same
    kind = equation.primitive.name
    node = lowering.draft.add(
        lambda axis_of: Select(kind, axis_of(axis), 1, None, "indices", dtype),
        [view.node],
        lowering.draft.axes_without(view.node, [axis]),
    )
    return [lowering.view(node, rest, dtype)]


@handles("top_k")
def top_k(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    k = equation.params["k"]
    dimension = equation.params.get("axis", len(view.layout) - 1) % len(view.layout)
    axis = view.layout[dimension]
    if axis is None or not lowering.has_axis(view, axis) or k == 0:
        return None
    best = None if k == 1 else lowering.draft.axes.fresh(k)
    layout = [best if d == dimension else a for d, a in enumerate(view.layout)]
    rest = lowering.draft.axes_without(view.node, [axis])
    views = []
    for result, out in zip(("values", "indices"), equation.outvars, strict=True):
        dtype = str(out.aval.dtype)
        node = lowering.draft.add(
            _select_maker(axis, k, best, result, dtype), [view.node], rest if best is None else rest | {best}
        )
        views.append(lowering.view(node, layout, dtype))
    # The two axes of one length must not become one: a term can't swap an axis for itself.
    if best is not None:
        lowering.draft.axes.keep_apart((axis, best))
    return views


def _select_maker(axis: int, k: int, best: int | None, result: str, dtype: str) -> MakeOp:
    def make(axis_of: Resolver) -> Select:
        return Select("top_k", axis_of(axis), k, None if best is None else axis_of(best), result, dtype)

    return make
