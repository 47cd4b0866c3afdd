"""Parts of one row that are set to what is computed from other rows, as rows: so tiles compute them.

    w.at[0].set(-2 * psi[1])  =  w.at[0:1].set(-2 * psi[1:2])

What is computed from a row lacks the dimension of the rows, so no tile knows which it is. In derivatives,
such a value gets the dimension back, and is padded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jax import lax
from jax.extend.core import Literal

from eqsat.frontend.flat import Equation, FlatJaxpr, Value
from eqsat.frontend.placed_rows import gathered_row
from eqsat.frontend.scatter_updates import COMBINED
from eqsat.frontend.tile_windows import ROW_BY_ROW

MOST_STEPS = 200
"""So many equations at most are followed from a row to what is set."""


def with_kept_rows(flat: FlatJaxpr) -> FlatJaxpr:
    """The same equations, but where a row of an array is changed: the update has the dimension of rows."""
    equations: list[Equation] = []
    for equation in flat.equations:
        found = _updating(flat, equation) if equation.name in COMBINED else _adding(flat, equation)
        made, changed = found or ([], equation)
        equations += [*made, changed]
        flat.made_by.update(dict.fromkeys(changed.outputs, changed))
    flat.equations = equations
    return flat


def _updating(flat: FlatJaxpr, scatter: Equation) -> tuple[list[Equation], Equation] | None:
    """A scatter whose update has the dimension of rows, and what makes the update."""
    numbers, update = scatter.params["dimension_numbers"], scatter.inputs[2]
    if len(numbers.inserted_window_dims) != 1 or numbers.operand_batching_dims or isinstance(update, Literal):
        return None
    (dimension,), rank = numbers.inserted_window_dims, len(flat.avals[scatter.outputs[0]].shape)
    kept = _Kept(flat, dimension)
    value = kept.of(update)
    if value is None or len(flat.avals[value].shape) != rank:
        return None
    numbers = numbers._replace(update_window_dims=tuple(range(rank)), inserted_window_dims=())
    params = {**scatter.params, "dimension_numbers": numbers}
    inputs = (*scatter.inputs[:2], value, *scatter.inputs[3:])
    return kept.equations, replace(scatter, params=params, inputs=inputs)


def _adding(flat: FlatJaxpr, equation: Equation) -> tuple[list[Equation], Equation] | None:
    """A value that had the dimension of rows, in place of an equation that adds it again."""
    if equation.name not in ("broadcast_in_dim", "reshape", "expand_dims"):
        return None
    operand, (result,) = equation.inputs[0], equation.outputs
    if isinstance(operand, Literal):
        return None
    before, after = flat.avals[operand].shape, flat.avals[result].shape
    for dimension, size in enumerate(after):
        if size != 1 or (*after[:dimension], *after[dimension + 1 :]) != before:
            continue
        kept = _Kept(flat, dimension)
        value = kept.of(operand) if _adds(equation, dimension) else None
        if value is not None:
            return kept.equations, Equation(lax.copy_p, {}, (value,), equation.outputs, False)
    return None


def _adds(equation: Equation, dimension: int) -> bool:
    """Whether an equation adds that dimension, and moves no other."""
    places = equation.params.get("broadcast_dimensions")
    return places is None or dimension not in places


class _Kept:
    """Values without a dimension, as the same with it, of length 1.

    **Attributes:**

    - `equations`: what makes them.
    """

    def __init__(self, flat: FlatJaxpr, dimension: int) -> None:
        self.flat = flat
        self.dimension = dimension
        self.equations: list[Equation] = []
        self._known: dict[Value, Value | None] = {}

    def of(self, value: Value) -> Value | None:
        """The value as it is before it loses the dimension; None if it does not, or is not known to."""
        if value not in self._known and len(self._known) < MOST_STEPS:
            self._known[value] = None
            self._known[value] = self._found(value)
        return self._known.get(value)

    def _found(self, value: Value) -> Value | None:
        made = self.flat.made_by.get(value)
        if made is None or made.effects or len(made.outputs) != 1:
            return None
        shape = self._shape(value)
        if made.name in ("squeeze", "reshape") and isinstance(made.inputs[0], Value):
            before = made.inputs[0]
            return before if self.flat.avals[before].shape == shape else None
        if made.name == "gather":
            return self._sliced(made)
        if made.name not in ROW_BY_ROW:
            return None
        operands: list[Value | Literal] = []
        kept = [
            self.of(one) if not isinstance(one, Literal) and self._has_entries(one) else None
            for one in made.inputs
        ]
        if all(one is None for one in kept):
            return None
        for operand, one in zip(made.inputs, kept, strict=True):
            if one is None and self._has_entries(operand):
                one = self._spread(operand)
            operands.append(operand if one is None else one)
        return self._new(made.primitive, made.params, tuple(operands), value)

    def _sliced(self, gather: Equation) -> Value | None:
        """One row that is gathered, as a slice."""
        found = gathered_row(self.flat, gather, self.dimension)
        (value,) = gather.outputs
        if found is None or len(self.flat.avals[found[0]].shape) != len(self._shape(value)):
            return None
        operand, row = found
        starts = tuple(row if d == self.dimension else 0 for d in range(len(self._shape(value))))
        limits = tuple(a + n for a, n in zip(starts, self._shape(value), strict=True))
        params = {"start_indices": starts, "limit_indices": limits, "strides": None}
        return self._new(lax.slice_p, params, (operand,), value)

    def _has_entries(self, value: Value | Literal) -> bool:
        return isinstance(value, Value) and bool(self.flat.avals[value].shape)

    def _spread(self, value: Any) -> Value:
        """A value that is the same for any row."""
        shape = self._shape(value)
        places = tuple(d for d in range(len(shape)) if d != self.dimension)
        params = {"shape": shape, "broadcast_dimensions": places, "sharding": None}
        return self._new(lax.broadcast_in_dim_p, params, (value,), value)

    def _shape(self, value: Value) -> tuple[int, ...]:
        shape = tuple(self.flat.avals[value].shape)
        return (*shape[: self.dimension], 1, *shape[self.dimension :])

    def _new(self, primitive: Any, params: Any, inputs: tuple[Value | Literal, ...], like: Value) -> Value:
        """A new value with the dimension, of the dtype of one without."""
        flat = self.flat
        number = len(flat.avals)
        flat.avals.append(flat.avals[like].update(shape=self._shape(like)))
        # What has no variable of its own is one without the dimension: tiles that read all of it get that.
        flat.variables.append(flat.variables[like])
        equation = Equation(primitive, params, inputs, (number,), False)
        flat.made_by[number] = equation
        self.equations.append(equation)
        return number
