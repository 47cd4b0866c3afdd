"""Handlers of the primitives that the IR understands, by family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from eqsat.frontend.draft import MakeOp, Resolve, View
from eqsat.frontend.naming import Claim
from eqsat.frontend.registry import HANDLERS, handles
from eqsat.frontend.values import CALLS, TRANSPARENT, called
from eqsat.ir.dtypes import counts_to, is_extended, is_inexact, numpy_dtype
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.ops import Dot, Iota, Map, Reduce, Select
from eqsat.ir.properties import PROPERTIES

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

Views = Sequence[View]


# Calls to be inlined.


@handles(*CALLS)
def inline_call(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    inner = called(equation)
    if inner is None:
        return None
    name = equation.params.get("name", "")
    # An inverse is the solution for the identity matrix: of the two names, its own says more.
    # (Its derivative, in one call with it, is a solution that has no other name.)
    alone = len(inner.jaxpr.outvars) == 1
    inverse = name == "inv" and alone and bool(lowering.recogniser.matches(name, inner))
    return lowering.inline(inner, operands, named=not inverse)


@handles("custom_linear_solve")
def linear_solve(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The solution as it is computed; the other functions are for derivatives."""
    lengths, functions = equation.params["const_lengths"], equation.params["jaxprs"]
    start, stop = lengths.matvec + lengths.vecmat, sum(lengths)
    factors = operands[start : start + lengths.solve]
    # Of a solve by LU factors, no rule has to know more than that it is a solve.
    by_lu = any(lowering.made[view.node].primitive == "lu" for view in factors if view.node in lowering.made)
    return lowering.inline(functions.solve, [*factors, *operands[stop:]], named=not by_lu)


# What is known when a program is planned: the platform it is for.


def platforms() -> frozenset[str]:
    """The names that the default device's platform goes by."""
    name = jax.default_backend()
    vendor = getattr(jax.devices()[0].client, "platform_version", "").lower()
    return frozenset({name, *(known for known in ("cuda", "rocm") if name == "gpu" and known in vendor)})


@handles("platform_index")
def platform_index(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    here = platforms()
    for index, names in enumerate(equation.params["platforms"]):
        if names is None or here & set(names):
            return [lowering.constant(index, equation.outvars[0].aval.dtype)]
    return None


@handles("cond")
def cond(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """A conditional whose branch is known is that branch."""
    index = lowering.constant_value(operands[0])
    if index is None:
        return None
    branches = equation.params["branches"]
    return lowering.inline(branches[min(max(int(index), 0), len(branches) - 1)], operands[1:])


# Layout only: no node at all.


@handles(*TRANSPARENT)
def identity(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    return operands


@handles("eqsat_assume")
def assume(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """What `eqsat.assume` says of its operand is noted."""
    for name in equation.params["properties"]:
        dimensions = equation.params["dimensions"][: PROPERTIES[name]]
        lowering.claims.append(Claim(name, operands[0], dimensions))
    return operands


@handles("pad")
def pad(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """Nothing, if it is by nothing."""
    return (
        operands[:1] if all(amounts == (0, 0, 0) for amounts in equation.params["padding_config"]) else None
    )


@handles("transpose")
def transpose(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    return [View(view.node, tuple(view.layout[d] for d in equation.params["permutation"]), view.dtype)]


@handles("squeeze")
def squeeze(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    gone = set(equation.params["dimensions"])
    return [View(view.node, tuple(a for d, a in enumerate(view.layout) if d not in gone), view.dtype)]


@handles("expand_dims")
def expand_dims(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    (view,) = operands
    layout = list(view.layout)
    for dimension in sorted(equation.params["dimensions"]):
        layout.insert(dimension, None)
    return [View(view.node, tuple(layout), view.dtype)]


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
    (view,) = operands
    shape = equation.outvars[0].aval.shape
    if equation.params.get("dimensions") is not None or 0 in shape:
        return None
    if not lowering.draft.node_axes(view.node):
        return [lowering.view(view.node, lowering.draft.fresh_layout(shape), view.dtype)]
    if [size for size in shape if size != 1] != [size for size in lowering.shape(view) if size != 1]:
        return None
    left = iter([axis for axis in view.layout if axis is not None])
    return [View(view.node, tuple(None if size == 1 else next(left) for size in shape), view.dtype)]


# Elementwise.


def map_maker(name: str, dtype: str, params: tuple[tuple[str, Any], ...] = ()) -> MakeOp:
    return lambda _: Map(name, dtype, params)


def elementwise(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    name = equation.primitive.name
    known = ELEMENTWISE[name]
    params = {key: value for key, value in equation.params.items() if value is not None}
    kept = tuple((key, _plain(params.pop(key))) for key in known.params)
    if params or len(operands) != known.arity or is_extended(str(equation.outvars[0].aval.dtype)):
        return None
    if name == "add_any":
        name = "add"
    if name == "add" and numpy_dtype(operands[0].dtype).kind in "iu":
        # Exact for integers. So indices that start at 0, as in `jnp.eye`, are seen to be the same.
        for view, other in (operands, operands[::-1]):
            if lowering.constant_value(other) == 0:
                return [View(view.node, view.layout or other.layout, view.dtype)]
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
    if is_extended(dtype) or is_extended(view.dtype) or equation.params.get("sharding") is not None:
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
    node = lowering.draft.add(lambda axis_of: Iota(axis_of(axis), dtype), (), (axis,))
    return [lowering.view(node, layout, dtype)]


# Reductions.

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
    if equation.params.get("out_sharding") is not None:
        return None
    axes = [axis for d, axis in enumerate(view.layout) if d in gone and axis is not None]
    if any(lowering.draft.axes.size(axis) == 0 for axis in axes):
        return None
    rest = [axis for d, axis in enumerate(view.layout) if d not in gone]
    varying = [axis for axis in axes if lowering.has_axis(view, axis)]
    repeats = [axis for axis in axes if not lowering.has_axis(view, axis)]
    node = view.node
    if varying:

        def make(axis_of: Resolve) -> Reduce:
            return Reduce(kind, frozenset(axis_of(axis) for axis in varying), view.dtype)

        node = lowering.draft.add(
            make, [node], lowering.draft.node_axes(node) - {lowering.draft.axes.find(a) for a in varying}
        )
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
    if lowering.draft.axes.size(axis) == 0:
        return None
    kind = equation.primitive.name
    node = lowering.draft.add(
        lambda axis_of: Select(kind, axis_of(axis), 1, None, "indices", dtype),
        [view.node],
        lowering.draft.node_axes(view.node) - {lowering.draft.axes.find(axis)},
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
    rest = lowering.draft.node_axes(view.node) - {lowering.draft.axes.find(axis)}
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
    def make(axis_of: Resolve) -> Select:
        return Select("top_k", axis_of(axis), k, None if best is None else axis_of(best), result, dtype)

    return make


# Contractions.


@handles("dot_general")
def dot_general(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    left, right = operands
    params = equation.params
    (left_contract, right_contract), (left_batch, right_batch) = params["dimension_numbers"]
    if params.get("out_sharding") is not None or 0 in lowering.shape(left) + lowering.shape(right):
        return None
    dtype = str(equation.outvars[0].aval.dtype)
    labels_left = _dot_labels("left", len(left.layout), left_contract, left_batch)
    labels_right = _dot_labels("right", len(right.layout), right_contract, right_batch)
    targets, nodes = lowering.draft.align(
        [
            (view.node, {label: a for label, a in zip(labels, view.layout, strict=True) if a is not None})
            for view, labels in ((left, labels_left), (right, labels_right))
        ]
    )
    contracted = [targets[label] for label in labels_left if label[0] == "contract" and label in targets]
    layout = [targets.get(("batch", i)) for i in range(len(left_batch))]
    layout += [targets.get(label) for label in labels_left if label[0] == "left"]
    layout += [targets.get(label) for label in labels_right if label[0] == "right"]
    schemas = [lowering.draft.node_axes(node) for node in nodes]
    roots = {axis: lowering.draft.axes.find(axis) for axis in contracted}
    common = [axis for axis, root in roots.items() if all(root in schema for schema in schemas)]
    if len(common) < len(contracted) or not common:
        if not all(any(root in schema for schema in schemas) for root in roots.values()):
            # Both are broadcast along a contracted axis: rare, and JAX does it right.
            return None
        # What one of them lacks is summed out of the other; without common axes, the product has no sum.
        for number, (node, view) in enumerate(zip(nodes, operands, strict=True)):
            alone = frozenset(roots[axis] for axis in contracted if axis not in common) & schemas[number]
            if view.dtype != dtype:
                node = lowering.draft.add(map_maker("convert", dtype), [node], schemas[number])
            if alone:
                schemas[number] = schemas[number] - alone
                node = lowering.draft.add(_sum_maker(alone, dtype), [node], schemas[number])
            nodes[number] = node
    if not common:
        node = lowering.draft.add(map_maker("mul", dtype), nodes, schemas[0] | schemas[1])
        return [lowering.view(node, layout, dtype)]
    precision = _precision(params.get("precision"))
    if precision is NotImplemented:
        return None

    def make(axis_of: Resolve) -> Dot:
        return Dot(frozenset(axis_of(axis) for axis in common), dtype, precision)

    node = lowering.draft.add(make, nodes, (schemas[0] | schemas[1]) - {roots[axis] for axis in common})
    return [lowering.view(node, layout, dtype)]


def _sum_maker(axes: frozenset[int], dtype: str) -> MakeOp:
    return lambda axis_of: Reduce("sum", frozenset(axis_of(axis) for axis in axes), dtype)


def _dot_labels(side: str, rank: int, contract: Sequence[int], batch: Sequence[int]) -> list[tuple[str, int]]:
    labels = [(side, d) for d in range(rank)]
    for number, d in enumerate(contract):
        labels[d] = ("contract", number)
    for number, d in enumerate(batch):
        labels[d] = ("batch", number)
    return labels


def _precision(precision: Any) -> Any:
    """None, or the name of a precision that both operands share; NotImplemented for anything else."""
    if precision is None:
        return None
    if isinstance(precision, tuple) and len(precision) == 2 and precision[0] == precision[1]:
        name = getattr(precision[0], "name", None)
        return None if name == "DEFAULT" else name or NotImplemented
    return NotImplemented
