"""Factors of a tall matrix whose rows are read by chunks: the arrays of the state, and the calls on it.

What a state is, and how a chunk is taken into it, is in `eqsat/ir/row_factors.py`. Each array of a state has
axes of the matrix: the factors that wait to be merged are arrays of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from eqsat.ir.axis import Axis, layout_shape
from eqsat.ir.ops import Call, Fold, Opaque, Operation
from eqsat.ir.row_factors import MOST_LEVELS, loaded
from eqsat.ir.term import Term, Terms


@dataclass(frozen=True)
class FactorState:
    """The state of a fold with `qr_r` or `qr_qt`.

    **Attributes:**

    - `rows`, `kept`, `column`: the axes of the matrix's rows, of those of its factor, and of its columns.
    - `batch`: those of all matrices; `columns`: for each operand, those of its columns.
    """

    rows: Axis
    kept: Axis
    column: Axis
    batch: tuple[Axis, ...]
    columns: tuple[tuple[Axis, ...], ...]
    dtype: str

    @staticmethod
    def of(result: Term) -> FactorState:
        assert isinstance(result.op, Fold)
        assert isinstance(result.op.monoid, Operation)
        rows, kept, column = result.op.monoid.axes
        matrix, *others = result.args
        batch = tuple(sorted(matrix.axes - {rows, column}))
        columns = tuple(tuple(sorted(other.axes - {*batch, rows})) for other in others)
        return FactorState(rows, kept, column, batch, ((column,), *columns), result.dtype)

    def arrays(self) -> list[tuple[tuple[Axis, ...], str, str]]:
        """The axes, the dtype, and the constant that it starts as, of each array of the state."""
        factors = [((*self.batch, self.kept, *columns), self.dtype, "0") for columns in self.columns]
        lost = [((*self.batch, *columns), "bool", "False") for columns in self.columns]
        levels = [one for one in factors for _ in range(MOST_LEVELS)]
        return [*factors, *levels, *lost, (self.batch, "int32", str(self.column.size)), ((), "int32", "0")]

    def merged(
        self,
        terms: Terms,
        number: int,
        earlier: Sequence[Term],
        later: Sequence[Term],
        part: Axis,
        start: Term,
        names: Mapping[Axis, Axis],
    ) -> list[Term]:
        """The state after a chunk of rows.

        **Arguments:**

        - `number`: that of the call.
        - `part`: the axis of the chunk; `start`: the number of its first row.
        - `names`: the axes of the chunks by those that are open.
        """
        batch = tuple(names.get(axis, axis) for axis in self.batch)
        chunks = [(*batch, part, *columns) for columns in self.columns]
        states = [tuple(names.get(axis, axis) for axis in axes) for axes, _, _ in self.arrays()]
        dtypes = [dtype for _, dtype, _ in self.arrays()]
        operands = [*earlier, *later, start]
        return _called(terms, number, self._advanced, operands, [*states, *chunks, ()], states, dtypes)

    def finished(
        self, terms: Terms, number: int, state: Sequence[Term], names: Mapping[Axis, Axis]
    ) -> list[Term]:
        """The factor, and what the orthogonal factor makes of other operands."""
        states = [tuple(names.get(axis, axis) for axis in axes) for axes, _, _ in self.arrays()]
        layouts = states[: len(self.columns)]
        return _called(terms, number, self._factors, state, states, layouts, [self.dtype] * len(layouts))

    def _advanced(self, *arrays: Any) -> list[Any]:
        count = len(self.arrays())
        *state, chunk = arrays[:count]
        *rows, start = arrays[count:]
        parts = [self._flat(one) for one in rows]
        found = loaded()["add_rows"](self._nested(state), parts, start, chunk)
        first, factors, lost, end = found
        flat = [*first, *(level for one in factors for level in one), *lost]
        shaped = [jnp.reshape(one, array.shape) for one, array in zip(flat, state, strict=False)]
        return [*shaped, end.astype(jnp.int32), chunk + 1]

    def _factors(self, *arrays: Any) -> list[Any]:
        found = loaded()["factors"](self._nested(arrays[:-1]))
        return [jnp.reshape(one, array.shape) for one, array in zip(found, arrays, strict=False)]

    def _nested(self, state: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any], Any]:
        """The state as the functions take it: columns are one dimension there."""
        operands = len(self.columns)
        first = [self._flat(one) for one in state[:operands]]
        levels = [self._flat(one) for one in state[operands : operands * (1 + MOST_LEVELS)]]
        stacks = [
            jnp.stack(levels[place : place + MOST_LEVELS]) for place in range(0, len(levels), MOST_LEVELS)
        ]
        lost = [self._flat(one, 0) for one in state[operands * (1 + MOST_LEVELS) : -1]]
        return first, stacks, lost, state[-1]

    def _flat(self, array: Any, rows: int = 1) -> Any:
        kept = len(self.batch) + rows
        return jnp.reshape(array, (*array.shape[:kept], math.prod(array.shape[kept:])))


def _called(
    terms: Terms,
    number: int,
    function: Callable[..., list[Any]],
    operands: Sequence[Term],
    layouts: Sequence[tuple[Axis, ...]],
    results: Sequence[tuple[Axis, ...]],
    dtypes: Sequence[str],
) -> list[Term]:
    """The results of a function of arrays, as a call of it as a whole."""
    avals = [
        jax.ShapeDtypeStruct(layout_shape(layout), jnp.dtype(one.dtype))
        for layout, one in zip(layouts, operands, strict=True)
    ]
    (equation,) = jax.make_jaxpr(jax.jit(function))(*avals).jaxpr.eqns
    call = Call(
        number,
        equation.primitive,
        dict(equation.params),
        tuple(layouts),
        tuple(results),
        tuple(dtypes),
        frozenset(),
    )
    return [terms.make(Opaque(call, place), operands) for place in range(len(results))]
