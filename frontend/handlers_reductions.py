"""Handlers of reductions and selections along axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.draft import MakeOp, Resolver, View
from eqsat.frontend.handlers_elementwise import map_maker
from eqsat.frontend.merged_selections import place_over_axes, top_over_axes
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
BY_FUNCTIONS: dict[str, Callable[..., jax.Array]] = {
    "add": lax.reduce_sum,
    "mul": lax.reduce_prod,
    "max": lax.reduce_max,
    "min": lax.reduce_min,
    "and": lax.reduce_and,
    "or": lax.reduce_or,
    "xor": lax.reduce_xor,
}
"""By the name of a primitive, the reduction by it."""

IDEMPOTENT = frozenset({"max", "min", "and", "or"})


@handles("reduce")
def reduction_by_function(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """A reduction by a function that is one primitive, as the one by its name, and the initial value."""
    name = _primitive_of(equation.params["jaxpr"])
    if name is None or len(operands) != 2:
        return None
    primitive, dimensions = name, tuple(equation.params["dimensions"])

    def function(array: jax.Array, initial: jax.Array) -> jax.Array:
        found = BY_FUNCTIONS[primitive.name](array, axes=dimensions)
        combined: jax.Array = primitive.bind(found, jnp.broadcast_to(initial, found.shape))
        return combined

    avals = [jax.ShapeDtypeStruct(lowering.shape(view), view.dtype) for view in operands]
    return lowering.inline(jax.make_jaxpr(function)(*avals), operands)


def _primitive_of(jaxpr: Any) -> Any:
    """The primitive that a function of two numbers is; None if it is none of those that reduce."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if len(inner.eqns) != 1 or len(inner.invars) != 2:
        return None
    (equation,) = inner.eqns
    both = len(equation.invars) == 2 and set(map(id, equation.invars)) == set(map(id, inner.invars))
    if not both or inner.outvars != equation.outvars or equation.primitive.name not in BY_FUNCTIONS:
        return None
    return equation.primitive


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
    if (whole := _in_parts(lowering, view, dimension)) is not None:
        count = 1 + len(whole.layout) - len(view.layout)
        found = partial(place_over_axes, kind, first=dimension, count=count, dtype=dtype)
        return _inlined(lowering, found, whole)
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
    last = dimension == len(view.layout) - 1
    whole = _in_parts(lowering, view, dimension) if last else None
    if whole is not None and lowering.shape(whole)[-1] > k:
        places = str(equation.outvars[1].aval.dtype)
        return _inlined(lowering, partial(top_over_axes, k=k, first=dimension, dtype=places), whole)
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


def _in_parts(lowering: Lowering, view: View, dimension: int) -> View | None:
    """The view with the axes that a reshape has merged to a dimension as dimensions; None if it has not."""
    parts = lowering.draft.axes.atoms_of([view.layout[dimension]])
    if len(parts) < 2 or not all(lowering.has_axis(view, axis) for axis in parts):
        return None
    layout = (*view.layout[:dimension], *parts, *view.layout[dimension + 1 :])
    return View(view.node, layout, view.dtype)


def _inlined(lowering: Lowering, function: Callable[..., Any], operand: View) -> list[View]:
    aval = jax.ShapeDtypeStruct(lowering.shape(operand), operand.dtype)
    return lowering.inline(jax.make_jaxpr(function)(aval), [operand], named=False)


def _select_maker(axis: int, k: int, best: int | None, result: str, dtype: str) -> MakeOp:
    def make(axis_of: Resolver) -> Select:
        return Select("top_k", axis_of(axis), k, None if best is None else axis_of(best), result, dtype)

    return make
