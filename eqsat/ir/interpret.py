"""The reference interpreter: it defines what a program means, in NumPy and by default in double precision.

It is slow, plain and independent of every other stage, which are tested against it. By default, floats of any
width are computed as float64 and complex numbers as complex128. Integers and bools keep their dtypes. Loops
run chunk by chunk, so that a rule that is wrong for chunks gives a wrong result.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_extended
from eqsat.ir.formula import Monoid
from eqsat.ir.jax_calls import NO_LENGTHS, Ranges, called, operated
from eqsat.ir.merging import Merging
from eqsat.ir.numpy_arrays import Array, aligned, as_value, contracted, laid_out, position, reduced, selected
from eqsat.ir.numpy_folds import folded
from eqsat.ir.numpy_functions import PRECISIONS, apply, reference_dtype
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program
from eqsat.ir.spec import parse_const
from eqsat.ir.term import Term, reachable

Values = ChainMap[Any, Any]
"""Values by term number, those of the innermost loop first.

The key of the results of a call is the call with the numbers of its operands.
"""


def interpret(
    program: Program,
    arrays: Sequence[Any],
    chunk_lengths: Mapping[Axis, int] | None = None,
    precision: str = "double",
) -> list[Array]:
    """Returns the outputs of `program` for the given inputs.

    **Arguments:**

    - `arrays`: one array per input, of the shape of the input's layout.
    - `chunk_lengths`: the length of the chunks of each axis. The last chunk may be shorter. An axis without
      an entry is one chunk.
    - `precision`: how floats and complex numbers are computed: "double" (float64 and complex128), "single"
      (float32 and complex64, to show the effects of rounding) or "extended" (NumPy's widest dtypes).

    **Raises:** an `EqsatError` if the precision is unknown, the arrays do not fit the inputs, or a chunk
    length is less than 1.
    """
    if precision not in PRECISIONS:
        raise EqsatError(f"unknown precision {precision!r}; there are {', '.join(PRECISIONS)}")
    return Interpreter(arrays, chunk_lengths or {}, precision).run(program)


class Interpreter:
    """One run of the interpreter on given input arrays.

    A value is an array with one dimension per axis of its term, in the order of the axes' ids.

    **Attributes:**

    - `short`: the lengths of axes along which all arrays are chunks. A body of control flow gets chunks along
      the axes that the control flow sums over.
    """

    def __init__(
        self,
        arrays: Sequence[Any],
        chunk_lengths: Mapping[Axis, int],
        precision: str,
        short: Mapping[Axis, int] = NO_LENGTHS,
    ) -> None:
        self.arrays = arrays
        self.chunk_lengths = chunk_lengths
        self.precision = precision
        self.short = short
        self.schedules: dict[tuple[int, ...], list[Term]] = {}

    def run(self, program: Program) -> list[Array]:
        """Returns the outputs of the program as arrays of their layouts."""
        if len(self.arrays) != len(program.inputs):
            raise EqsatError(f"the program has {len(program.inputs)} inputs; got {len(self.arrays)} arrays")
        values: Values = ChainMap({})
        self.indices = {leaf.number: index for index, leaf in enumerate(program.inputs)}
        # The outputs of a body may be open. Its inputs are taken whole along those axes.
        whole = {axis: slice(0, self.length(axis)) for out in program.outputs for axis in out.term.open}
        self.evaluate(list(program.reachable()), whole, values)
        return [
            np.array(laid_out(values[out.term.number], sorted(out.term.axes), out.layout, self.short))
            for out in program.outputs
        ]

    def inside(self, program: Program, arrays: Sequence[Any], short: Mapping[Axis, int]) -> list[Array]:
        """Returns the outputs of a body of control flow."""
        return self.another(arrays, short).run(program)

    def another(self, arrays: Sequence[Any], short: Mapping[Axis, int]) -> Interpreter:
        """Returns a run with the same settings on other arrays."""
        return Interpreter(arrays, self.chunk_lengths, self.precision, short)

    def length(self, axis: Axis) -> int:
        """Returns the length of an axis in this run."""
        return self.short.get(axis, axis.size)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Returns the dtype in which this run holds values of dtype `name`."""
        return reference_dtype(name, self.precision)

    def evaluate(self, terms: list[Term], ranges: Ranges, values: Values) -> None:
        """Evaluates the terms that vary only with the loops in `ranges`, and adds their values to `values`.

        Terms that vary with other loops are skipped. Those loops evaluate them.
        """
        opened = frozenset(ranges)
        for term in terms:
            if term.number not in values and term.open <= opened:
                values[term.number] = self.value(term, ranges, values)

    def value(self, term: Term, ranges: Ranges, values: Values) -> Any:
        """Returns the value of a term, given those of its operands and the current chunks of the loops."""
        op = term.op
        if isinstance(op, Concat | Fold):
            return self.loop(term, op, ranges, values)
        args = [values[arg.number] for arg in term.args]
        axes = sorted(term.axes)
        match op:
            case Leaf(layout=layout, dtype=dtype):
                index = self.indices[term.number]
                target = None if is_extended(dtype) else self.dtype(dtype)
                return as_value(self.arrays[index], layout, target, self.short)
            case Const(text=text, dtype=dtype):
                with np.errstate(all="ignore"):
                    return np.asarray(parse_const(text, dtype), self.dtype(dtype))
            case Iota() | Delta() if not term.axes.isdisjoint(self.short):
                raise EqsatError(f"{term} counts along an axis of which only a chunk is given")
            case Iota(axis=axis, dtype=dtype):
                return np.arange(axis.size).astype(self.dtype(dtype))
            case Delta(first=first):
                return np.eye(first.size, dtype=np.bool_)
            case Map(name=name, dtype=dtype, params=params):
                operands = [
                    aligned(value, sorted(arg.axes), axes) for value, arg in zip(args, term.args, strict=True)
                ]
                return apply(name, dtype, operands, dict(params), self.precision)
            case Reduce(kind=kind, axes=bound):
                positions = tuple(position(term.args[0], axis) for axis in bound)
                return reduced(kind, args[0], positions, self.dtype(op.dtype))
            case Dot():
                return contracted(args[0], args[1], term, self.dtype(op.dtype))
            case Select():
                return selected(op, args[0], term.args[0], axes, self.dtype(op.dtype))
            case Operation():
                return operated(op, args, term, self.precision)
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
                key = (call, tuple(arg.number for arg in term.args))
                if key not in values:
                    values[key] = called(
                        call, args, term.args, ranges, self.precision, self.inside, short=self.short
                    )
                return values[key][result]

    def loop(self, term: Term, op: Concat | Fold, ranges: Ranges, values: Values) -> Array:
        """Evaluates the bodies once per chunk of the loop's axis, and combines the results."""
        bodies = term.args
        numbers = tuple(body.number for body in bodies)
        schedule = self.schedules.setdefault(numbers, list(reachable(bodies)))
        pieces: list[list[Array]] = []
        for chunk in self.chunks(op.axis):
            inner = values.new_child()
            if op.axis in ranges:
                # This loop is inside another one over the same axis. Hide what varies with the outer loop.
                outside = [t.number for t in schedule if op.axis not in t.open and t.number in values]
                inner = ChainMap({number: values[number] for number in outside})
            self.evaluate(schedule, {**ranges, op.axis: chunk}, inner)
            pieces.append([inner[number] for number in numbers])
        firsts = [piece[0] for piece in pieces]
        match op:
            case Fold(monoid=Monoid() as monoid):
                return self.merged(term, monoid, pieces)
            case Fold(axis=axis, monoid=Opaque(call=call)):
                state, held = firsts[0], term.args[0]
                for chunk, (_, *others) in zip(self.chunks(axis), pieces, strict=True):
                    within, operands = {**ranges, axis: chunk}, (held, *term.args[1:])
                    (state,) = called(
                        call,
                        [state, *others],
                        operands,
                        within,
                        self.precision,
                        self.inside,
                        frozenset({axis}),
                        self.short,
                    )
                    held = term
                return state
            case Fold(monoid=str(kind)):
                return self.combined(kind, np.stack(firsts))
            case Fold(monoid=Operation() as operation):
                return folded(operation, pieces, bodies, term)
            case Fold(monoid=Select() as selection):
                whole = np.concatenate(firsts, position(bodies[0], op.axis))
                return selected(selection, whole, bodies[0], sorted(term.axes), self.dtype(selection.dtype))
            case _:
                return np.concatenate(firsts, position(bodies[0], op.axis))

    def combined(self, kind: str, pieces: Array) -> Array:
        """Returns the results of the chunks, which lie along the first dimension, combined by a reduction."""
        return reduced(kind, pieces, (0,), pieces.dtype)

    def merged(self, term: Term, monoid: Monoid, pieces: list[list[Array]]) -> Array:
        """Merges the chunks' states in order, starting from the identity, and returns the finished result."""
        state = Merging().state(monoid, term.args)
        steps = list(reachable(state.merged))
        start: Values = ChainMap({})
        self.evaluate(list(state.identity), {}, start)
        # The identity has length 1 along every axis, so that it broadcasts over the first chunk.
        so_far = [
            start[constant.number].reshape((1,) * len(part.axes))
            for constant, part in zip(state.identity, state.earlier, strict=True)
        ]
        lengths: dict[Axis, int] = {}
        for piece in pieces:
            values: Values = ChainMap({})
            for leaf, value in zip(state.earlier, so_far, strict=True):
                values[leaf.number] = value
            for leaf, value in zip(state.later, piece, strict=True):
                values[leaf.number] = value
                lengths.update(zip(sorted(leaf.axes), value.shape, strict=True))
            self.evaluate(steps, {}, values)
            so_far = [
                aligned(values[new.number], sorted(new.axes), sorted(part.axes))
                for new, part in zip(state.merged, state.earlier, strict=True)
            ]
        values = ChainMap({leaf.number: value for leaf, value in zip(state.earlier, so_far, strict=True)})
        self.evaluate(list(reachable([state.finished])), {}, values)
        axes = sorted(term.axes)
        result = aligned(values[state.finished.number], sorted(state.finished.axes), axes)
        return np.broadcast_to(result, tuple(lengths[axis] for axis in axes))

    def chunks(self, axis: Axis) -> Iterator[slice]:
        """Returns the chunks of an axis, in order. An axis of length 0 has one empty chunk."""
        size = self.length(axis)
        step = self.chunk_lengths.get(axis, size)
        if step < 1 and size > 0:
            raise EqsatError(f"chunks of axis {axis} cannot be {step} long")
        starts = [*range(0, size, max(step, 1)), size] if size else [0, 0]
        return (slice(start, stop) for start, stop in pairwise(starts))
