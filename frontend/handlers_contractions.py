"""Handlers of contractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import MakeOp, Resolver
from eqsat.frontend.handlers_elementwise import map_maker
from eqsat.frontend.registry import Views, handles, is_placed
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Dot, Reduce

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@handles("dot_general")
def dot_general(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    left, right = operands
    params = equation.params
    (left_contract, right_contract), (left_batch, right_batch) = params["dimension_numbers"]
    if is_placed(params.get("out_sharding")) or 0 in lowering.shape(left) + lowering.shape(right):
        return None
    dtype = str(equation.outvars[0].aval.dtype)
    if is_inexact(left.dtype) != is_inexact(right.dtype):
        # Integers times floats: JAX converts both. So a contraction is of integers if one of its operands is.
        left, right = operands = [
            view if view.dtype == dtype else lowering.elementwise(map_maker("convert", dtype), [view], dtype)
            for view in operands
        ]
    labels_left = _dot_labels("left", len(left.layout), left_contract, left_batch)
    labels_right = _dot_labels("right", len(right.layout), right_contract, right_batch)
    targets, nodes = lowering.draft.align(
        [
            (view.node, {label: a for label, a in zip(labels, view.layout, strict=True) if a is not None})
            for view, labels in ((left, labels_left), (right, labels_right))
        ]
    )
    contracted = lowering.draft.axes.atoms_of(
        targets.get(label) for label in labels_left if label[0] == "contract"
    )
    layout = [targets.get(("batch", i)) for i in range(len(left_batch))]
    layout += [targets.get(label) for label in labels_left if label[0] == "left"]
    layout += [targets.get(label) for label in labels_right if label[0] == "right"]
    schemas = [lowering.draft.node_axes(node) for node in nodes]
    common = [axis for axis in contracted if all(axis in schema for schema in schemas)]
    if len(common) < len(contracted) or not common:
        if not all(any(axis in schema for schema in schemas) for axis in contracted):
            # Both are broadcast along a contracted axis: rare, and JAX does it right.
            return None
        # What one of them lacks is summed out of the other; without common axes, the product has no sum.
        for number, (node, view) in enumerate(zip(nodes, operands, strict=True)):
            alone = frozenset(axis for axis in contracted if axis not in common) & schemas[number]
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

    def make(axis_of: Resolver) -> Dot:
        return Dot(axis_of.several(common), dtype, precision)

    node = lowering.draft.add(make, nodes, (schemas[0] | schemas[1]).difference(common))
    return [lowering.view(node, layout, dtype)]


def _sum_maker(axes: frozenset[int], dtype: str) -> MakeOp:
    return lambda axis_of: Reduce("sum", axis_of.several(axes), dtype)


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
