"""Arrays that repeat entries of one array at known places, as `jnp.roll` and the modes of `jnp.pad` do.

    concatenate(x[n - 1 :], x[: n - 1])[i]  =  x[(i - 1) mod n]
    concatenate(x[:1], x, x[n - 1 :])[i]  =  x[clip(i - 1, 0, n - 1)]

So a tile of one needs rows of the other: those near its own, or those of the other end. The derivatives of
these are sums of slices that are padded with zeros. Where no two of them are in one place, they are such
arrays, too:

    pad(x[1:], 0, 1) + pad(x[:1], n - 1, 0)  =  concatenate(x[1:], x[:1]) + 0

A row that is repeated at an edge is a sum of rows there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import Literal

from eqsat.frontend.flat import Equation, FlatJaxpr, Value
from eqsat.frontend.row_primitives import NOWHERE, PlacedRows, SummedRows, runs

MOST_RUNS = 8
"""So many runs of neighbours the places have at most."""

MOST_PLACES = 1 << 22
"""So many places at most are looked at."""

_RESHAPING = frozenset({"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "reduce_sum"})
"""Primitives that only reshape where a result has as many entries as the operand, whose order is the same."""


def with_placed_rows(flat: FlatJaxpr, around: bool) -> FlatJaxpr:
    """The same equations, with one for each concatenation of parts of one array, or sum of such parts.

    **Arguments:**

    - `around`: whether those that go around an array are wanted, too.
    """
    origins = _Origins(flat)
    for number, equation in enumerate(flat.equations):
        for dimension, whole, places, added in origins.placements(equation):
            goes_around = is_cyclic(places, flat.avals[whole].shape[dimension])
            if len(list(runs(places))) <= MOST_RUNS and (around or not goes_around):
                params = {"dimension": dimension, "places": places, "added": added}
                placed = Equation(PlacedRows, params, (whole,), equation.outputs, False)
                flat.equations[number] = flat.made_by[equation.outputs[0]] = placed
                break
        else:
            summed = origins.summed(equation)
            if summed is not None:
                flat.equations[number] = flat.made_by[equation.outputs[0]] = summed
    return flat


def is_cyclic(places: Any, size: int) -> bool:
    """Whether places go around an array of that size, from one to the next."""
    return bool(np.all(places == (places[0] + np.arange(len(places))) % size))


class _Origins:
    """Where the rows of values are from.

    **Attributes:**

    - `known`: by value and dimension, the array of which it has whole rows, and which ones. All rows of an
      array are a `range`: there may be more than fit in memory, as in a file.
    - `padded`: the same of values that have zeros in other places.
    """

    def __init__(self, flat: FlatJaxpr) -> None:
        self.flat = flat
        self.known: dict[tuple[Value, int], tuple[Value, Any]] = {}
        self.padded: dict[tuple[Value, int], tuple[Value, Any] | None] = {}

    def placements(self, equation: Equation) -> Iterator[tuple[int, Value, Any, bool]]:
        """How an equation places rows: the dimension, whose they are, where, and whether zeros are added."""
        if len(equation.outputs) != 1:
            return
        (value,) = equation.outputs
        shape = self.flat.avals[value].shape
        if equation.name == "scatter":
            for dimension in equation.params["dimension_numbers"].inserted_window_dims[:1]:
                whole, places = self.of(value, dimension)
                if whole != value:
                    yield dimension, whole, np.asarray(places), False
        elif equation.primitive is lax.concatenate_p:
            dimension = equation.params["dimension"]
            if 0 < shape[dimension] <= MOST_PLACES:
                whole, places = self.of(value, dimension)
                if whole != value:
                    yield dimension, whole, np.asarray(places), False
        elif equation.name in ("add", "add_any") or (equation.name == "pad" and not self._of_slice(equation)):
            for dimension, size in enumerate(shape):
                found = self.spread(value, dimension) if 0 < size <= MOST_PLACES else None
                if found is not None and found[0] not in equation.inputs:
                    yield dimension, *found, equation.name != "pad" or self._is_summed(equation)

    def _of_slice(self, pad: Equation) -> bool:
        """Whether it is a slice that is padded: windows pass through both."""
        made = self.flat.made_by.get(pad.inputs[0]) if not isinstance(pad.inputs[0], Literal) else None
        return made is None or made.name == "slice"

    def _is_summed(self, pad: Equation) -> bool:
        """Whether its operand is a sum over one entry, to which zero is added."""
        operand = pad.inputs[0]
        return not isinstance(operand, Literal) and self._same_rows(operand) != operand

    def spread(self, value: Value | Literal, dimension: int) -> tuple[Value, Any] | None:
        """The array of which a value has whole rows among zeros, and which ones: a sum of these, or a pad."""
        if isinstance(value, Literal):
            return None
        key = value, dimension
        if key not in self.padded:
            self.padded[key] = self._spread(value, dimension)
        return self.padded[key]

    def _spread(self, value: Value, dimension: int) -> tuple[Value, Any] | None:
        made = self.flat.made_by.get(value)
        if made is None:
            return None
        if made.name in ("add", "add_any"):
            one, other = (self.spread(operand, dimension) for operand in made.inputs)
            if one is None or other is None or one[0] != other[0]:
                return None
            empty = one[1] == NOWHERE
            apart = bool(np.all(empty | (other[1] == NOWHERE)))
            return (one[0], np.where(empty, other[1], one[1])) if apart else None
        low_high = _pads_zeros(made, dimension)
        if low_high is None:
            return None
        operand = made.inputs[0]
        assert not isinstance(operand, Literal)
        whole, places = self.of(self._same_rows(operand), dimension)
        low, high = (np.full(count, NOWHERE) for count in low_high)
        return whole, np.concatenate([low, np.asarray(places), high])

    def summed(self, pad: Equation) -> Equation | None:
        """For a pad of a sum over neighbouring rows of an array, an equation that adds them."""
        if pad.name != "pad":
            return None
        shape = self.flat.avals[pad.outputs[0]].shape
        changed = [d for d in range(len(shape)) if _pads_zeros(pad, d) not in (None, (0, 0))]
        if len(changed) != 1 or isinstance(pad.inputs[0], Literal):
            return None
        (dimension,), padded = changed, pad.inputs[0]
        total = next((one for one in self._reshaped(padded) if self._is_sum(one)), None)
        if total is None or self.flat.avals[padded].shape[dimension] != 1:
            return None
        made = self.flat.made_by[total]
        (terms,) = made.inputs
        assert not isinstance(terms, Literal)
        long = self.flat.avals[terms].shape
        reduced = [d for d in made.params["axes"] if long[d] > 1]
        if len(reduced) != 1 or math.prod(long[: reduced[0]]) != math.prod(shape[:dimension]):
            return None
        count = long[reduced[0]]
        wanted = (*shape[:dimension], count, *shape[dimension + 1 :])
        rows = [one for one in self._reshaped(terms) if self.flat.avals[one].shape == wanted]
        if not rows:
            return None
        whole, places = self.of(rows[-1], dimension)
        first, place = int(places[0]), _pads_zeros(pad, dimension)
        if whole == rows[-1] or place is None or list(places) != list(range(first, first + count)):
            return None
        params = {"dimension": dimension, "first": first, "limit": first + count, "place": place[0]}
        size = shape[dimension]
        return Equation(SummedRows, {**params, "size": size}, (whole,), pad.outputs, False)

    def _is_sum(self, value: Value) -> bool:
        """Whether it is a sum over more than one entry."""
        made = self.flat.made_by.get(value)
        if made is None or made.name != "reduce_sum" or isinstance(made.inputs[0], Literal):
            return False
        terms = math.prod(self.flat.avals[made.inputs[0]].shape)
        return bool(terms > math.prod(self.flat.avals[value].shape))

    def _same_rows(self, value: Value) -> Value:
        """What a value is but for dimensions of one entry that come and go, as in sums over one."""
        avals = self.flat.avals
        return [one for one in self._reshaped(value) if avals[one].shape == avals[value].shape][-1]

    def _reshaped(self, value: Value) -> Iterator[Value]:
        """A value, and all that have the same entries in the same order on the way to it."""
        avals = self.flat.avals
        size = math.prod(avals[value].shape)
        yield value
        while (made := self.flat.made_by.get(value)) is not None and made.name in _RESHAPING:
            operand = made.inputs[0]
            if isinstance(operand, Literal) or math.prod(avals[operand].shape) != size:
                return
            value = operand
            yield value

    def of(self, value: Value, dimension: int) -> tuple[Value, Any]:
        """The array of which a value has whole rows along a dimension, and which ones."""
        key = value, dimension
        if key not in self.known:
            self.known[key] = self._found(value, dimension)
        return self.known[key]

    def _found(self, value: Value, dimension: int) -> tuple[Value, Any]:
        avals, made = self.flat.avals, self.flat.made_by.get(value)
        itself = value, range(avals[value].shape[dimension])
        if made is None or not made.inputs or any(isinstance(one, Literal) for one in made.inputs):
            return itself
        if made.name == "scatter" and made.params["update_jaxpr"] is None:
            return self._with_row_set(made, dimension) or itself
        if (row := self._gathered_row(value, dimension)) is not None:
            whole, places = self.of(row[0], dimension)
            return whole, np.asarray(places)[row[1] : row[1] + 1]
        if made.primitive is lax.concatenate_p and made.params["dimension"] == dimension:
            parts = [one for one in made.inputs if not isinstance(one, Literal)]
            found = [self.of(one, dimension) for one in parts if avals[one].shape[dimension]]
            wholes = {whole for whole, _ in found}
            return (wholes.pop(), np.concatenate([some for _, some in found])) if len(wholes) == 1 else itself
        rows = self._rows(made, dimension)
        if rows is None:
            return itself
        source, index = rows
        whole, places = self.of(source, dimension)
        return whole, np.full(index, places[0]) if isinstance(index, int) else places[index]

    def _with_row_set(self, made: Equation, dimension: int) -> tuple[Value, Any] | None:
        """An array of which a row is set to another one of the same array, as at a wall; None for others."""
        operand, indices, update = made.inputs
        numbers, shape = made.params["dimension_numbers"], self.flat.avals[made.outputs[0]].shape
        others = tuple(d for d in range(len(shape) - 1))
        if not numbers.inserted_window_dims == numbers.scatter_dims_to_operand_dims == (dimension,):
            return None
        if numbers.operand_batching_dims or numbers.update_window_dims != others:
            return None
        if isinstance(operand, Literal) or isinstance(indices, Literal) or isinstance(update, Literal):
            return None
        if self.flat.avals[indices].shape != (1,):
            return None
        row = constant_row(self.flat, indices)
        wanted = tuple(1 if d == dimension else size for d, size in enumerate(shape))
        rows = [one for one in self._reshaped(update) if self.flat.avals[one].shape == wanted]
        if row is None or not 0 <= row < shape[dimension] <= MOST_PLACES or not rows:
            return None
        (whole, places), (source, taken) = self.of(operand, dimension), self.of(rows[-1], dimension)
        if whole != source:
            return None
        found = np.array(places)
        found[row] = taken[0]
        return whole, found

    def _gathered_row(self, value: Value, dimension: int) -> tuple[Value, int] | None:
        """The array of which a value is one row, at a known place, and which; so are derivatives of walls."""
        for one in self._reshaped(value):
            made = self.flat.made_by.get(one)
            if made is not None and made.name == "gather":
                found = gathered_row(self.flat, made, dimension)
                shape = self.flat.avals[value].shape
                return found if found and len(shape) == len(self.flat.avals[found[0]].shape) else None
        return None

    def _rows(self, made: Equation, dimension: int) -> tuple[Value, Any] | None:
        """Of which value an equation takes rows, as they are, and which: a slice, or how often the first."""
        operand, result = made.inputs[0], made.outputs[0]
        assert not isinstance(operand, Literal)
        before, after = self.flat.avals[operand].shape, self.flat.avals[result].shape
        match made.name:
            case "slice" if _without(before, dimension) == _without(after, dimension):
                starts, limits, strides = (
                    made.params[name] for name in ("start_indices", "limit_indices", "strides")
                )
                step = 1 if strides is None else strides[dimension]
                return operand, slice(starts[dimension], limits[dimension], step)
            case "rev" if made.params["dimensions"] == (dimension,):
                return operand, slice(None, None, -1)
            case "reshape":
                return self._repeated(operand, after, dimension)
        return None

    def _repeated(self, grown: Value, shape: Any, dimension: int) -> tuple[Value, Any] | None:
        """The row that a reshape has several times: a dimension is added behind it, and both are made one."""
        made = self.flat.made_by.get(grown)
        if made is None or made.name != "broadcast_in_dim" or isinstance(made.inputs[0], Literal):
            return None
        row = self.flat.avals[made.inputs[0]].shape
        kept = tuple(d + (d > dimension) for d in range(len(row)))
        if tuple(made.params["broadcast_dimensions"]) != kept or len(row) != len(shape):
            return None
        if row[dimension] != 1 or _without(row, dimension) != _without(shape, dimension):
            return None
        return made.inputs[0], int(shape[dimension])


def gathered_row(flat: FlatJaxpr, gather: Equation, dimension: int) -> tuple[Value, int] | None:
    """The array of which a gather takes one row, at a known place, without the dimension; and which row."""
    (operand, indices), numbers = gather.inputs, gather.params["dimension_numbers"]
    if isinstance(operand, Literal) or isinstance(indices, Literal) or numbers.operand_batching_dims:
        return None
    shape = flat.avals[operand].shape
    wanted = tuple(1 if d == dimension else size for d, size in enumerate(shape))
    alone = numbers.collapsed_slice_dims == numbers.start_index_map == (dimension,)
    if not alone or gather.params["slice_sizes"] != wanted or flat.avals[indices].shape != (1,):
        return None
    row = constant_row(flat, indices)
    return (operand, row) if row is not None and 0 <= row < shape[dimension] <= MOST_PLACES else None


def constant_row(flat: FlatJaxpr, indices: Value) -> int | None:
    """The number that an array of one index has, if it is written in the function."""
    made = flat.made_by.get(indices)
    while made is not None and made.name in _RESHAPING and isinstance(made.inputs[0], int):
        made = flat.made_by.get(made.inputs[0])
    if made is None or made.name not in _RESHAPING or not isinstance(made.inputs[0], Literal):
        return None
    return int(made.inputs[0].val)


def _pads_zeros(equation: Equation, dimension: int) -> tuple[int, int] | None:
    """How many zeros an equation pads before and behind its operand along a dimension, if along no other."""
    if equation.name != "pad" or isinstance(equation.inputs[0], Literal) or not _is_zero(equation.inputs[1]):
        return None
    low, high, interior = equation.params["padding_config"][dimension]
    others = any(any(one) for d, one in enumerate(equation.params["padding_config"]) if d != dimension)
    return None if others or interior or min(low, high) < 0 else (int(low), int(high))


def _is_zero(value: Value | Literal) -> bool:
    """Whether a value is written as the positive zero, which a sum with changes nothing but its own sign."""
    return (
        isinstance(value, Literal)
        and not value.val
        and not np.signbit([value.val.real, value.val.imag]).any()
    )


def _without(shape: Any, dimension: int) -> tuple[int, ...]:
    return tuple(size for d, size in enumerate(shape) if d != dimension)
