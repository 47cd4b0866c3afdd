"""Arrays that repeat entries of one array at known places, as `jnp.roll` and the modes of `jnp.pad` do.

    concatenate(x[n - 1 :], x[: n - 1])[i]  =  x[(i - 1) mod n]
    concatenate(x[:1], x, x[n - 1 :])[i]  =  x[clip(i - 1, 0, n - 1)]

So a tile of one needs rows of the other: those near its own, or those of the other end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import Literal

from eqsat.frontend.flat import Equation, FlatJaxpr, Value

PLACED_ROWS = "placed_rows"
"""The name of equations that take rows of an array, at `places` along a `dimension`."""

MOST_RUNS = 8
"""So many runs of neighbours the places have at most."""

MOST_PLACES = 1 << 22
"""So many places at most are looked at."""


class _PlacedRows:
    """In place of a primitive."""

    name = PLACED_ROWS
    multiple_results = False

    @staticmethod
    def get_bind_params(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return params

    @staticmethod
    def bind(operand: Any, dimension: int, places: Any) -> Any:
        parts = []
        for first, step, length in _runs(places):
            start, limit = sorted((first, first + step * (length - 1)))
            part = lax.slice_in_dim(operand, start, limit + 1, axis=dimension)
            if step < 0:
                part = lax.rev(part, (dimension,))
            if step == 0:
                shape = (*part.shape[:dimension], length, *part.shape[dimension + 1 :])
                part = lax.broadcast_in_dim(part, shape, range(part.ndim))
            parts.append(part)
        return lax.concatenate(parts, dimension)


def with_placed_rows(flat: FlatJaxpr, around: bool) -> FlatJaxpr:
    """The same equations, with one for each concatenation of parts of one array.

    **Arguments:**

    - `around`: whether those that go around an array are wanted, too.
    """
    origins = _Origins(flat)
    for number, equation in enumerate(flat.equations):
        if equation.primitive is not lax.concatenate_p:
            continue
        dimension, (value,) = equation.params["dimension"], equation.outputs
        if not 0 < flat.avals[value].shape[dimension] <= MOST_PLACES:
            continue
        whole, found = origins.of(value, dimension)
        if whole == value:
            continue
        places = np.asarray(found)
        goes_around = is_cyclic(places, flat.avals[whole].shape[dimension])
        if len(list(_runs(places))) <= MOST_RUNS and (around or not goes_around):
            params = {"dimension": dimension, "places": places}
            placed = Equation(_PlacedRows, params, (whole,), equation.outputs, False)
            flat.equations[number] = flat.made_by[value] = placed
    return flat


def is_cyclic(places: Any, size: int) -> bool:
    """Whether places go around an array of that size, from one to the next."""
    return bool(np.all(places == (places[0] + np.arange(len(places))) % size))


def _runs(places: Any) -> Iterator[tuple[int, int, int]]:
    """Places as runs: the first of each, the step to the next (1, 0 or -1), and how many there are."""
    steps, start = np.diff(places), 0
    while start < len(places):
        step = int(steps[start]) if start < len(steps) else 1
        if step not in (1, 0, -1):
            step = 1
        ends = np.flatnonzero(steps[start:] != step)
        length = int(ends[0]) + 1 if len(ends) else len(places) - start
        yield int(places[start]), step, length
        start += length


class _Origins:
    """Where the rows of values are from.

    **Attributes:**

    - `known`: by value and dimension, the array of which it has whole rows, and which ones. All rows of an
      array are a `range`: there may be more than fit in memory, as in a file.
    """

    def __init__(self, flat: FlatJaxpr) -> None:
        self.flat = flat
        self.known: dict[tuple[Value, int], tuple[Value, Any]] = {}

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


def _without(shape: Any, dimension: int) -> tuple[int, ...]:
    return tuple(size for d, size in enumerate(shape) if d != dimension)
