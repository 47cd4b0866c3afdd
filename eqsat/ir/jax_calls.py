"""Calls and named operations in the reference interpreter, evaluated by JAX or NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import jax
import numpy as np

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.interpret_control import controlled
from eqsat.ir.numpy_arrays import Array, as_value, laid_out, position
from eqsat.ir.numpy_functions import for_jax, reference_dtype
from eqsat.ir.numpy_operations import in_numpy
from eqsat.ir.operation_function import applied
from eqsat.ir.ops import Call, Operation
from eqsat.ir.program import Program
from eqsat.ir.term import Term

Ranges = Mapping[Axis, slice]
"""The current chunk of the axis of every open loop."""

NO_LENGTHS: Mapping[Axis, int] = {}
"""All axes are at full length."""

RunOnChunks = Callable[[Program, Sequence[Any], Mapping[Axis, int]], list[Array]]
"""Returns the outputs of a program for the given inputs, which may be chunks: the lengths of those axes."""


def called(
    call: Call,
    args: Sequence[Any],
    terms: Sequence[Term],
    ranges: Ranges,
    precision: str,
    run: RunOnChunks,
    cut: frozenset[Axis] = frozenset(),
    short: Mapping[Axis, int] = NO_LENGTHS,
) -> list[Any]:
    """Returns the results of a call, each with its dimensions in the order of its axes' ids.

    The call gets operands of full length, and its results are sliced. A chunk of an operand is padded with
    copies of itself: along an axis that passes through, a slice of the results depends only on the same slice
    of the operands. Exceptions are the axes `cut` and those that the call sums over. Along these, the call
    gets the chunk, as do the bodies of control flow.

    **Arguments:**

    - `args`, `terms`: the values of the operands, and their terms.
    - `run`: evaluates a body of control flow.
    - `cut`: the axes that the call accumulates along, chunk by chunk.
    - `short`: the lengths of axes along which all values are chunks, in the body of a call that got chunks.
    """
    opened = frozenset[Axis]().union(*(arg.open for arg in terms)) | short.keys()
    ranges = {**{axis: slice(0, length) for axis, length in short.items()}, **ranges}
    cut = cut | (call.sums & opened)
    lengths = {axis: ranges[axis].stop - ranges[axis].start for axis in cut}
    any_dtype = call.control is not None or _takes_any_dtype(call.params)
    arrays = []
    for value, arg, layout in zip(args, terms, call.arg_layouts, strict=True):
        for axis in (arg.open | short.keys()) & arg.axes - cut:
            value = _surrounded(value, position(arg, axis), ranges[axis], axis.size)
        array = laid_out(value, sorted(arg.axes), layout, lengths)
        if not any_dtype and not is_extended(arg.dtype):
            array = array.astype(numpy_dtype(arg.dtype))
        if isinstance(array, np.ndarray):
            array = for_jax(array)
        arrays.append(array)
    if call.control is not None:
        results = controlled(call, arrays, lambda body, given: run(body, given, lengths), lengths)
    else:
        with jax.enable_x64(True):
            params = call.primitive.get_bind_params(dict(call.params))
            out = call.primitive.bind(*map(jax.numpy.asarray, arrays), **params)
        results = out if call.primitive.multiple_results else [out]
    values = []
    for result, layout, dtype in zip(results, call.out_layouts, call.out_dtypes, strict=True):
        target = None if is_extended(dtype) else reference_dtype(dtype, precision)
        value = as_value(result, layout, target, lengths)
        for place, axis in enumerate(sorted(layout_axes(layout))):
            if axis in opened - cut:
                value = value[(slice(None),) * place + (ranges[axis],)]
        values.append(value)
    return values


def _surrounded(chunk: Array, place: int, where: slice, length: int) -> Array:
    """Returns an array of full `length`, with the chunk at its place and copies of it everywhere else."""
    size = where.stop - where.start
    return np.asarray(np.take(chunk, (np.arange(length) - where.start) % max(size, 1), axis=place))


def _takes_any_dtype(params: Any) -> bool:
    """Returns whether a primitive's parameters leave the dtypes of its operands open.

    A jaxpr or a dtype among the parameters, for example, may fix them.
    """
    if isinstance(params, Mapping):
        params = tuple(params.values())
    if isinstance(params, tuple | list):
        return all(_takes_any_dtype(param) for param in params)
    return params is None or isinstance(params, bool | int | float | str | np.integer | Enum)


def operated(op: Operation, args: list[Array], term: Term, precision: str) -> Array:
    """Returns the value of an `Operation` term, given those of its operands."""
    batch = sorted(frozenset[Axis]().union(*(arg.axes for arg in term.args)) - set(op.axes))
    arrays, orders = [], []
    for value, arg, (_, letters) in zip(args, term.args, op.spec.signature.operands, strict=True):
        order = [*(axis for axis in batch if axis in arg.axes), *op.core(letters)]
        arrays.append(np.transpose(value, [position(arg, axis) for axis in order]))
        orders.append(order)
    found = in_numpy(op, arrays, orders, batch)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        if found is None:
            found = np.asarray(applied(op, list(map(jax.numpy.asarray, map(for_jax, arrays))), orders, batch))
        result = found.astype(reference_dtype(op.dtype, precision))
    order = [*batch, *op.core(op.spec.signature.result)]
    return np.transpose(result, [order.index(axis) for axis in sorted(term.axes)])
