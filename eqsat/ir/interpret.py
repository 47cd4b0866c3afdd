"""What a program means: a NumPy interpreter of the IR, in double precision.

Slow, plain, and independent of every other stage: the reference that the others are tested against.
Floats of any width are computed as float64, complex numbers as complex128, integers and truth values
exactly. Loops really run chunk by chunk, so that a rule which may not be applied to a chunk shows.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.numpy_functions import Array, apply, reference_dtype
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Const,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Opaque,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program
from eqsat.ir.spec import parse_const
from eqsat.ir.term import Term, reachable

Ranges = Mapping[Axis, slice]
"""The current chunk of every open loop."""

Values = ChainMap[Any, Any]
"""By term number, innermost loop first; results of a call by (its id, its operands' numbers)."""


def interpret(
    program: Program,
    arrays: Sequence[Any],
    chunk_lengths: Mapping[Axis, int] | None = None,
) -> list[Array]:
    """The outputs of `program` for the given inputs.

    **Arguments:**

    - `arrays`: one per input, of the shapes that the inputs' layouts say.
    - `chunk_lengths`: how long a chunk of an axis is; the last one may be shorter. An axis that is
      not in there is one chunk.
    """
    return _Interpreter(arrays, chunk_lengths or {}).run(program)


class _Interpreter:
    """Values are arrays with one dimension per axis of their term, in the order of the axes' ids."""

    def __init__(self, arrays: Sequence[Any], chunk_lengths: Mapping[Axis, int]) -> None:
        self.arrays = arrays
        self.chunk_lengths = chunk_lengths
        self.schedules: dict[int, list[Term]] = {}

    def run(self, program: Program) -> list[Array]:
        if len(self.arrays) != len(program.inputs):
            raise EqsatError(f"the program has {len(program.inputs)} inputs; got {len(self.arrays)} arrays")
        values: Values = ChainMap({})
        self.evaluate(list(program.reachable()), {}, values)
        return [
            np.array(_laid_out(values[out.term.number], sorted(out.term.axes), out.layout, out.shape))
            for out in program.outputs
        ]

    def evaluate(self, terms: list[Term], ranges: Ranges, values: Values) -> None:
        """Value every term that varies with open loops only; what varies with others waits for them."""
        opened = frozenset(ranges)
        for term in terms:
            if term.number not in values and term.open <= opened:
                values[term.number] = self.value(term, ranges, values)

    def value(self, term: Term, ranges: Ranges, values: Values) -> Any:
        op = term.op
        if isinstance(op, Concat | Fold):
            return self.loop(term, op, ranges, values)
        args = [values[arg.number] for arg in term.args]
        axes = sorted(term.axes)
        match op:
            case Leaf(index=index, layout=layout):
                return _as_value(self.arrays[index], layout, op.dtype)
            case Const(text=text, dtype=dtype):
                return np.asarray(parse_const(text, dtype), reference_dtype(dtype))
            case Iota(axis=axis, dtype=dtype):
                return np.arange(axis.size).astype(reference_dtype(dtype))
            case Map(name=name, dtype=dtype, params=params):
                operands = [
                    _aligned(value, sorted(arg.axes), axes)
                    for value, arg in zip(args, term.args, strict=True)
                ]
                return apply(name, dtype, operands, dict(params))
            case Reduce(kind=kind, axes=reduced):
                positions = tuple(_position(term.args[0], axis) for axis in reduced)
                return _reduce(kind, args[0], positions, reference_dtype(op.dtype))
            case Dot():
                return _contract(args[0], args[1], term)
            case Select(axis=axis):
                return _select(op, args[0], term.args[0], axes)
            case Rename(old=old, new=new):
                renamed = [new if axis == old else axis for axis in sorted(term.args[0].axes)]
                return np.transpose(args[0], [renamed.index(axis) for axis in axes])
            case Chunk(axis=axis) if axis in term.args[0].axes:
                selection = [slice(None)] * len(axes)
                selection[axes.index(axis)] = ranges[axis]
                return args[0][tuple(selection)]
            case Chunk():
                return args[0]
            case Opaque(call=call, result=result):
                key = (call.id, tuple(arg.number for arg in term.args))
                if key not in values:
                    values[key] = _call(call, args, term, ranges)
                return values[key][result]

    def loop(self, term: Term, op: Concat | Fold, ranges: Ranges, values: Values) -> Array:
        """The body once per chunk of the loop's axis, and the pieces put together."""
        body = term.args[0]
        schedule = self.schedules.setdefault(body.number, list(reachable([body])))
        pieces = []
        for chunk in self.chunks(op.axis):
            inner = values.new_child()
            if op.axis in ranges:
                # A loop inside a loop over the same axis: what varies with the outer one is hidden.
                outside = [t.number for t in schedule if op.axis not in t.open and t.number in values]
                inner = ChainMap({number: values[number] for number in outside})
            self.evaluate(schedule, {**ranges, op.axis: chunk}, inner)
            pieces.append(inner[body.number])
        match op:
            case Fold(monoid=str(kind)):
                return _reduce(kind, np.stack(pieces), (0,), pieces[0].dtype)
            case Fold(monoid=Select() as selection):
                whole = np.concatenate(pieces, _position(body, op.axis))
                return _select(selection, whole, body, sorted(term.axes))
            case _:
                return np.concatenate(pieces, _position(body, op.axis))

    def chunks(self, axis: Axis) -> Iterator[slice]:
        step = self.chunk_lengths.get(axis, axis.size)
        if step < 1 and axis.size > 0:
            raise EqsatError(f"chunks of axis {axis} cannot be {step} long")
        starts = [*range(0, axis.size, max(step, 1)), axis.size] if axis.size else [0, 0]
        return (slice(start, stop) for start, stop in pairwise(starts))


def _position(term: Term, axis: Axis) -> int:
    return sorted(term.axes).index(axis)


def _as_value(array: Any, layout: Layout, dtype: str) -> Any:
    """An array as passed in, its dimensions in the order of the axes' ids and unit ones dropped."""
    value = array if is_extended(dtype) else np.asarray(array).astype(reference_dtype(dtype))
    axes = [axis for axis in layout if axis is not None]
    if value.shape != tuple(1 if axis is None else axis.size for axis in layout):
        raise EqsatError(f"an array of shape {value.shape} does not fit the layout {layout}")
    squeezed = value.reshape(tuple(axis.size for axis in axes))
    return squeezed.transpose([axes.index(axis) for axis in sorted(axes)])


def _aligned(value: Any, axes: list[Axis], target: list[Axis]) -> Any:
    """A value ready to broadcast over `target`, which is sorted and contains its axes."""
    lengths = dict(zip(axes, value.shape, strict=True))
    return value.reshape(tuple(lengths.get(axis, 1) for axis in target))


def _laid_out(value: Any, axes: list[Axis], layout: Layout, shape: tuple[int, ...]) -> Any:
    """A value as an array of that layout and shape; axes that it lacks are broadcast."""
    order = [axis for axis in layout if axis in axes]
    lengths = dict(zip(axes, value.shape, strict=True))
    moved = value.transpose([axes.index(axis) for axis in order if axis is not None])
    padded = moved.reshape(tuple(1 if axis is None else lengths.get(axis, 1) for axis in layout))
    return (jax.numpy if isinstance(value, jax.Array) else np).broadcast_to(padded, shape)


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


def _reduce(kind: str, value: Array, positions: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    ufunc = _UFUNCS[kind]
    keywords: dict[str, Any] = {}
    if value.size == 0 and kind in ("max", "min"):
        keywords["initial"] = _extreme(value.dtype, highest=kind == "min")
    with np.errstate(all="ignore"):
        total = ufunc.reduce(value.astype(dtype), axis=positions, dtype=dtype, **keywords)
        if kind == "mean":
            total = total / np.prod([value.shape[position] for position in positions])
    return np.asarray(total)


def _extreme(dtype: np.dtype[Any], highest: bool) -> Any:
    if dtype.kind in "fc":
        return np.inf if highest else -np.inf
    if dtype == np.bool_:
        return highest
    limits = np.iinfo(dtype)
    return limits.max if highest else limits.min


def _contract(a: Array, b: Array, term: Term) -> Array:
    dtype = reference_dtype(term.dtype)
    axes = sorted(term.args[0].axes | term.args[1].axes)
    a_axes, b_axes, out_axes = (
        [axes.index(axis) for axis in sorted(t.axes)] for t in (term.args[0], term.args[1], term)
    )
    with np.errstate(all="ignore"):
        result = np.einsum(a.astype(dtype), a_axes, b.astype(dtype), b_axes, out_axes, optimize=True)
    return np.asarray(result, dtype)


def _select(op: Select, value: Array, operand: Term, axes: list[Axis]) -> Array:
    """The best entries of `value`, a value of `operand`, in the order of the result's `axes`."""
    along = np.moveaxis(value, _position(operand, op.axis), -1)
    rest = [axis for axis in sorted(operand.axes) if axis != op.axis]
    if op.kind == "top_k":
        best = _descending(along)[..., : op.k]
    else:
        best = (np.argmax if op.kind == "argmax" else np.argmin)(along, axis=-1)[..., None]
    result = np.take_along_axis(along, best, -1) if op.result == "values" else best
    result = result.astype(reference_dtype(op.dtype))
    if op.out_axis is None:
        return np.asarray(result[..., 0])
    return np.transpose(result, [[*rest, op.out_axis].index(axis) for axis in axes])


def _descending(values: Array) -> Array:
    """Indices that sort the last dimension in descending order: NaN first, 0 before -0, ties stable."""
    flipped = values[..., ::-1]
    keys = (~np.signbit(flipped), flipped) if values.dtype.kind == "f" else (flipped,)
    ascending = np.lexsort(keys, axis=-1)
    return np.asarray(values.shape[-1] - 1 - ascending[..., ::-1])


def _call(call: Call, args: list[Any], term: Term, ranges: Ranges) -> list[Any]:
    """The primitive's results, each in the order of its axes' ids.

    The primitive is called at full length always. A chunk is surrounded by copies of itself, for that
    is what a passing axis promises: a slice of the results depends on that slice of the operands.
    """
    opened = frozenset[Axis]().union(*(arg.open for arg in term.args))
    double = _takes_doubles(call.params)
    arrays = []
    for value, arg, layout in zip(args, term.args, call.arg_layouts, strict=True):
        for axis in arg.open & arg.axes:
            value = _surrounded(value, _position(arg, axis), ranges[axis], axis.size)
        shape = tuple(1 if axis is None else axis.size for axis in layout)
        array = _laid_out(value, sorted(arg.axes), layout, shape)
        if not double and not is_extended(arg.dtype):
            array = array.astype(numpy_dtype(arg.dtype))
        arrays.append(array)
    with jax.enable_x64(True):
        out = call.primitive.bind(*map(jax.numpy.asarray, arrays), **dict(call.params))
    results = out if call.primitive.multiple_results else [out]
    values = []
    for result, layout, dtype in zip(results, call.out_layouts, call.out_dtypes, strict=True):
        value = _as_value(result, layout, dtype)
        for position, axis in enumerate(sorted(axis for axis in layout if axis is not None)):
            if axis in opened:
                value = value[(slice(None),) * position + (ranges[axis],)]
        values.append(value)
    return values


def _surrounded(chunk: Array, position: int, where: slice, length: int) -> Array:
    """An array of full `length` with the chunk at its place and copies of it everywhere else."""
    size = where.stop - where.start
    return np.asarray(np.take(chunk, (np.arange(length) - where.start) % max(size, 1), axis=position))


def _takes_doubles(params: Any) -> bool:
    """Whether nothing in a primitive's parameters fixes its operands' dtypes (a jaxpr, a dtype...)."""
    if isinstance(params, Mapping):
        params = tuple(params.values())
    if isinstance(params, tuple | list):
        return all(_takes_doubles(param) for param in params)
    return params is None or isinstance(params, bool | int | float | str | np.integer | Enum)
