"""What a program means: a NumPy interpreter of the IR, in double precision.

Slow, plain, and independent of every other stage: the reference that the others are tested against.
Floats of any width are computed as float64, complex numbers as complex128, integers and truth values
exactly. Loops really run chunk by chunk, so that a rule which may not be applied to a chunk shows.
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
from eqsat.ir.jax_calls import Ranges, called, operated
from eqsat.ir.merging import Merging
from eqsat.ir.numpy_arrays import Array, aligned, as_value, contracted, laid_out, position, reduced, selected
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
"""By term number, innermost loop first; results of a call by (the call, its operands' numbers)."""


def interpret(
    program: Program,
    arrays: Sequence[Any],
    chunk_lengths: Mapping[Axis, int] | None = None,
    precision: str = "double",
) -> list[Array]:
    """The outputs of `program` for the given inputs.

    **Arguments:**

    - `arrays`: one per input, of the shapes that the inputs' layouts say.
    - `chunk_lengths`: how long a chunk of an axis is; the last one may be shorter. An axis that is
      not in there is one chunk.
    - `precision`: "double", or "single" to compute floats as float32 and complex numbers as complex64,
      for those who want to see what rounding does.
    """
    if precision not in PRECISIONS:
        raise EqsatError(f"unknown precision {precision!r}; there are {', '.join(PRECISIONS)}")
    return Interpreter(arrays, chunk_lengths or {}, precision).run(program)


class Interpreter:
    """One run. Values are arrays with one dimension per axis of their term, in the order of the axes' ids."""

    def __init__(self, arrays: Sequence[Any], chunk_lengths: Mapping[Axis, int], precision: str) -> None:
        self.arrays = arrays
        self.chunk_lengths = chunk_lengths
        self.precision = precision
        self.schedules: dict[tuple[int, ...], list[Term]] = {}

    def run(self, program: Program) -> list[Array]:
        if len(self.arrays) != len(program.inputs):
            raise EqsatError(f"the program has {len(program.inputs)} inputs; got {len(self.arrays)} arrays")
        values: Values = ChainMap({})
        self.indices = {leaf.number: index for index, leaf in enumerate(program.inputs)}
        # A chunk that a body is given is all that it knows of an axis.
        whole = {axis: slice(None) for output in program.outputs for axis in output.term.open}
        self.evaluate(list(program.reachable()), whole, values)
        return [
            np.array(laid_out(values[out.term.number], sorted(out.term.axes), out.layout))
            for out in program.outputs
        ]

    def inside(self, program: Program, arrays: Sequence[Any]) -> list[Array]:
        """The outputs of a body of control flow."""
        return self.another(arrays).run(program)

    def another(self, arrays: Sequence[Any]) -> Interpreter:
        """A run of the same kind on other arrays."""
        return Interpreter(arrays, self.chunk_lengths, self.precision)

    def dtype(self, name: str) -> np.dtype[Any]:
        return reference_dtype(name, self.precision)

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
            case Leaf(layout=layout, dtype=dtype):
                index = self.indices[term.number]
                return as_value(self.arrays[index], layout, None if is_extended(dtype) else self.dtype(dtype))
            case Const(text=text, dtype=dtype):
                with np.errstate(all="ignore"):
                    return np.asarray(parse_const(text, dtype), self.dtype(dtype))
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
                    values[key] = called(call, args, term.args, ranges, self.precision, self.inside)
                return values[key][result]

    def loop(self, term: Term, op: Concat | Fold, ranges: Ranges, values: Values) -> Array:
        """The bodies once per chunk of the loop's axis, and the pieces put together."""
        bodies = term.args
        numbers = tuple(body.number for body in bodies)
        schedule = self.schedules.setdefault(numbers, list(reachable(bodies)))
        pieces: list[list[Array]] = []
        for chunk in self.chunks(op.axis):
            inner = values.new_child()
            if op.axis in ranges:
                # A loop inside a loop over the same axis: what varies with the outer one is hidden.
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
                    )
                    held = term
                return state
            case Fold(monoid=str(kind)):
                return self.combined(kind, np.stack(firsts))
            case Fold(monoid=Select() as selection):
                whole = np.concatenate(firsts, position(bodies[0], op.axis))
                return selected(selection, whole, bodies[0], sorted(term.axes), self.dtype(selection.dtype))
            case _:
                return np.concatenate(firsts, position(bodies[0], op.axis))

    def combined(self, kind: str, pieces: Array) -> Array:
        """What the chunks' results make, which lie along the first dimension."""
        return reduced(kind, pieces, (0,), pieces.dtype)

    def merged(self, term: Term, monoid: Monoid, pieces: list[list[Array]]) -> Array:
        """The chunks' states merged in order, starting from the identity, and finished."""
        state = Merging().state(monoid, term.args)
        steps = list(reachable(state.merged))
        start: Values = ChainMap({})
        self.evaluate(list(state.identity), {}, start)
        # One element along every axis: it broadcasts over what it is merged with.
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
        step = self.chunk_lengths.get(axis, axis.size)
        if step < 1 and axis.size > 0:
            raise EqsatError(f"chunks of axis {axis} cannot be {step} long")
        starts = [*range(0, axis.size, max(step, 1)), axis.size] if axis.size else [0, 0]
        return (slice(start, stop) for start, stop in pairwise(starts))
