"""The ops on whole axes and the alignment of values, in NumPy, for the reference interpreter.

A value is an array with one dimension per axis of its term, in the order of the axes' ids.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout, layout_axes, parts
from eqsat.ir.ops import Select
from eqsat.ir.term import Term

Array = np.ndarray[Any, np.dtype[Any]]


def position(term: Term, axis: Axis) -> int:
    """Returns the number of the dimension of the term's value that belongs to an axis."""
    return sorted(term.axes).index(axis)


def array_shape(layout: Layout, lengths: Mapping[Axis, int]) -> tuple[int, ...]:
    """Returns the shape of an array of a layout.

    **Arguments:**

    - `lengths`: the lengths of axes that are not at full length.
    """
    return tuple(math.prod(lengths.get(axis, axis.size) for axis in parts(dimension)) for dimension in layout)


def as_value(
    array: Any, layout: Layout, dtype: np.dtype[Any] | None, lengths: Mapping[Axis, int] | None = None
) -> Any:
    """Converts an array of a layout to a value, which has one dimension per axis, in the order of their ids.

    The array keeps its dtype if `dtype` is None.

    **Arguments:**

    - `lengths`: the lengths of axes that are not at full length.

    **Raises:** `EqsatError` if the shape does not fit the layout.
    """
    known = lengths or {}
    with np.errstate(all="ignore"):
        value = array if dtype is None else np.asarray(array).astype(dtype)
    axes = layout_axes(layout)
    if value.shape != array_shape(layout, known):
        raise EqsatError(f"an array of shape {value.shape} does not fit the layout {layout}")
    flat = value.reshape(tuple(known.get(axis, axis.size) for axis in axes))
    return flat.transpose([axes.index(axis) for axis in sorted(axes)])


def aligned(value: Any, axes: Sequence[Axis], target: Sequence[Axis]) -> Any:
    """Reshapes a value so that it broadcasts over `target`.

    **Arguments:**

    - `axes`: the axes of the value's dimensions.
    - `target`: sorted axes that include them.
    """
    lengths = dict(zip(axes, value.shape, strict=True))
    return value.reshape(tuple(lengths.get(axis, 1) for axis in target))


def laid_out(value: Any, axes: list[Axis], layout: Layout, chunks: Mapping[Axis, int] | None = None) -> Any:
    """Returns a value as an array of that layout, broadcast along the axes that it lacks.

    **Arguments:**

    - `axes`: the axes of the value's dimensions.
    - `chunks`: the lengths of axes that are not at full length.
    """
    known = chunks or {}
    order = layout_axes(layout)
    flat = tuple(known.get(axis, axis.size) for axis in order)
    moved = value.transpose([axes.index(axis) for axis in order if axis in axes])
    padded = moved.reshape(tuple(n if axis in axes else 1 for axis, n in zip(order, flat, strict=True)))
    numpy: Any = jax.numpy if isinstance(value, jax.Array) else np
    return numpy.broadcast_to(padded, flat).reshape(array_shape(layout, known))


_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduced(kind: str, value: Array, positions: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Reduces a value along dimensions, accumulating in `dtype`."""
    ufunc = _UFUNCS[kind]
    keywords: dict[str, Any] = {}
    if value.size == 0 and kind in ("max", "min"):
        keywords["initial"] = _extreme(value.dtype, highest=kind == "min")
    with np.errstate(all="ignore"):
        if _rounds_visibly(dtype) and ufunc in (np.add, np.multiply):
            total = in_order(ufunc, value.astype(dtype), positions)
        else:
            total = ufunc.reduce(value.astype(dtype), axis=positions, dtype=dtype, **keywords)
        if kind in ("max", "min") and total.dtype.kind == "f":
            total = _with_signed_zeros(kind, np.asarray(total), value, positions)
        if kind == "mean":
            count = np.prod([value.shape[position] for position in positions])
            total = total / count.astype(dtype)
    return np.asarray(total)


def _with_signed_zeros(kind: str, found: Array, value: Array, positions: tuple[int, ...]) -> Array:
    """Corrects the signs of zero extremes. XLA orders 0 above -0, and NumPy may take either."""
    zero = 0.0 if kind == "max" else -0.0
    there = np.any((value == 0) & (np.signbit(value) == np.signbit(zero)), axis=positions)
    return np.where((found == 0) & there, found.dtype.type(zero), found)


def _rounds_visibly(dtype: np.dtype[Any]) -> bool:
    """Returns whether the dtype is float32 or complex64.

    Results in these depend visibly on the order of additions.
    """
    return dtype.kind in "fc" and dtype.itemsize // (2 if dtype.kind == "c" else 1) == 4


def in_order(ufunc: np.ufunc, value: Array, positions: Sequence[int]) -> Array:
    """Computes a sum or product along dimensions, one number after another.

    The order in which NumPy's own reductions work depends on the array's layout in memory.
    """
    moved = np.moveaxis(value, sorted(positions), range(len(positions)))
    count = int(np.prod(moved.shape[: len(positions)]))
    terms = moved.reshape(count, *moved.shape[len(positions) :])
    total = ufunc.accumulate(terms, axis=0, dtype=value.dtype)[-1:] if count else terms
    return np.asarray(ufunc.reduce(total, axis=0, dtype=value.dtype))


def _extreme(dtype: np.dtype[Any], highest: bool) -> Any:
    """Returns the largest value of a dtype, or the smallest one. Those of floats are infinite."""
    if dtype.kind in "fc":
        return np.inf if highest else -np.inf
    if dtype == np.bool_:
        return highest
    limits = np.iinfo(dtype)
    return limits.max if highest else limits.min


def contracted(a: Array, b: Array, term: Term, dtype: np.dtype[Any]) -> Array:
    """Returns the value of a `Dot` term, given those of its operands."""
    axes = sorted(term.args[0].axes | term.args[1].axes)
    a_axes, b_axes, out_axes = (
        [axes.index(axis) for axis in sorted(t.axes)] for t in (term.args[0], term.args[1], term)
    )
    if _rounds_visibly(dtype):
        sides = [(a, sorted(term.args[0].axes)), (b, sorted(term.args[1].axes))]
        with np.errstate(all="ignore"):
            one, other = (aligned(value.astype(dtype), have, axes) for value, have in sides)
            summed = [place for place, axis in enumerate(axes) if axis not in term.axes]
            return in_order(np.add, np.asarray(one * other), summed)
    with np.errstate(all="ignore"):
        result = np.einsum(a.astype(dtype), a_axes, b.astype(dtype), b_axes, out_axes, optimize=True)
    return np.asarray(result, dtype)


def selected(op: Select, value: Array, operand: Term, axes: list[Axis], dtype: np.dtype[Any]) -> Array:
    """Returns the best entries of a value, or their indices.

    **Arguments:**

    - `operand`: the term that has the value.
    - `axes`: the axes of the result, in order.
    """
    along = np.moveaxis(value, position(operand, op.axis), -1)
    rest = [axis for axis in sorted(operand.axes) if axis != op.axis]
    if op.kind == "top_k":
        best = _descending(along)[..., : op.k]
    else:
        best = (np.argmax if op.kind == "argmax" else np.argmin)(along, axis=-1)[..., None]
    result = np.take_along_axis(along, best, -1) if op.result == "values" else best
    result = result.astype(dtype)
    if op.out_axis is None:
        return np.asarray(result[..., 0])
    return np.transpose(result, [[*rest, op.out_axis].index(axis) for axis in axes])


def _descending(values: Array) -> Array:
    """Returns indices that sort the last dimension in descending order.

    NaN comes first, 0 before -0, and equal entries keep their order.
    """
    flipped = values[..., ::-1]
    keys = (~np.signbit(flipped), flipped) if values.dtype.kind == "f" else (flipped,)
    ascending = np.lexsort(keys, axis=-1)
    return np.asarray(values.shape[-1] - 1 - ascending[..., ::-1])
