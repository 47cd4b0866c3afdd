"""What is done along dimensions that operands are only broadcast along: done once, for all of them.

The derivative of a scatter numbers its updates, to tell which of those for one place was the last. JAX gives
the numbers all dimensions of the updates, but they are the same for a whole batch: so is the scatter of them.
An associative scan slices its operands, of which the coefficients of a recurrence are often the same for a
batch, and at all times. Chains that start from one point factorise one matrix, as often as there are chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from eqsat.frontend.draft import View
from eqsat.frontend.passing import passing_dimensions
from eqsat.frontend.passing_registry import Passing
from eqsat.frontend.registry import Views
from eqsat.ir.dtypes import is_extended

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

SLICES = frozenset({"slice", "dynamic_slice"})
"""Primitives that also shorten dimensions which their first operand is only broadcast along."""

PRIMITIVES = SLICES | {
    "gather", "scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max",
    "concatenate", "dynamic_update_slice", "pad", "rev", "split",
    "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort", "fft",
    "cholesky", "triangular_solve", "tridiagonal_solve", "lu", "lu_pivots_to_permutation", "geqrf",
    "householder_product", "qr", "eigh", "eig", "svd", "schur", "hessenberg", "tridiagonal",
}  # fmt: skip


def called_once(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The results, by a call without the dimensions that no operand varies along; None if there are none."""
    name = equation.primitive.name
    if name not in PRIMITIVES or any(is_extended(view.dtype) for view in operands):
        return None
    groups = _shortened(equation) if name in SLICES else passing_dimensions(equation)
    gone = [group for group in groups if _is_broadcast(lowering, operands, group)]
    if not gone:
        return None
    views = [
        View(view.node, _without(view.layout, [group.args[index] for group in gone]), view.dtype)
        for index, view in enumerate(operands)
    ]
    params = _for_one(equation.params, {group.args[0] for group in gone})
    avals = [jax.ShapeDtypeStruct(lowering.shape(view), view.dtype) for view in views]
    call = jax.make_jaxpr(lambda *arrays: equation.primitive.bind(*arrays, **params))(*avals)
    results = lowering.inline(call, views, named=False)
    found = []
    for number, (var, result) in enumerate(zip(equation.outvars, results, strict=True)):
        layout = list(result.layout)
        for group in gone:
            index, dimension = next((i, d) for i, d in enumerate(group.args) if d is not None)
            axis, place = operands[index].layout[dimension], group.outs[number]
            if lowering.shape(operands[index])[dimension] != var.aval.shape[place]:
                (axis,) = lowering.draft.fresh_layout(var.aval.shape[place : place + 1])
            layout[place] = axis
        found.append(lowering.view(result.node, layout, result.dtype))
    return found


def _shortened(equation: Any) -> list[Passing]:
    """All dimensions of a slice."""
    array, *others = equation.invars
    lengths = enumerate(array.aval.shape)
    return [Passing((d, *(None for _ in others)), (d,)) for d, length in lengths if length > 1]


def _for_one(params: dict[str, Any], gone: set[int | None]) -> dict[str, Any]:
    """The parameters of a call for arrays that have these dimensions of the first operand with length 1."""
    changed = dict(params)
    for name, value in (("slice_sizes", 1), ("start_indices", 0), ("limit_indices", 1), ("strides", 1)):
        if params.get(name) is not None:
            changed[name] = tuple(value if d in gone else size for d, size in enumerate(params[name]))
    return changed


def _is_broadcast(lowering: Lowering, operands: Views, group: Passing) -> bool:
    """Whether no operand varies along the dimensions of the group."""
    pairs = zip(operands, group.args, strict=True)
    return not any(d is not None and lowering.has_axis(view, view.layout[d]) for view, d in pairs)


def _without(layout: Sequence[int | None], gone: Sequence[int | None]) -> tuple[int | None, ...]:
    return tuple(None if dimension in gone else axis for dimension, axis in enumerate(layout))
