"""Which rows of its operands an equation needs for some rows of its result, and how it computes them.

An image is computed by tiles of rows. Each value on the way has a window in every tile, of rows that begin at
a multiple of the tile's number:

    window of tile t  =  rows  stride * t + start  to  stride * t + start + length

The last tile may begin earlier, so that it ends with the image. Its rows are then as far from those of the
tile before as a part of a tile, by which all windows move.

A convolution needs more rows of its operand than it gives, the halo. Rows above and below the image are
computed from something, and replaced where an equation reads them: by what it pads with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np

from eqsat.frontend.flat import Equation
from eqsat.ir.elementwise import ELEMENTWISE

ROW_BY_ROW = frozenset(
    {
        *(ELEMENTWISE.keys() - {"convert"}),
        *("convert_element_type", "copy", "stop_gradient", "square", "reduce_precision"),
        *("integer_pow", "clamp", "select_n", "is_finite", "erf_inv"),
    }
)
"""Primitives that compute each entry by itself."""


class Misaligned(Exception):
    """The rows of a tile are not a whole number of steps of an equation: longer tiles may have some."""


@dataclass(frozen=True)
class Window:
    """The rows of a value that a tile needs: see above.

    **Attributes:**

    - `dimension`: that of the rows.
    - `end`: the number of the last tile, if that begins earlier: it is not a whole one then.
    - `period`: after how many rows they repeat beyond the edges, if those beyond are read: an array that is
      as long goes around. In a shorter one, nothing is said of the rows from its end to there. 0 if nothing
      is said of any.

    **Raises:** `Misaligned` if the last tile does not begin with a whole row.
    """

    dimension: int
    stride: int
    start: int
    length: int
    end: Fraction | None = None
    period: int = 0

    def __post_init__(self) -> None:
        if self.end is not None and (self.stride * self.end).denominator > 1:
            raise Misaligned

    def merged(self, other: Window) -> Window | None:
        """The rows of both; None if the two move apart from tile to tile."""
        if (self.dimension, self.stride, self.end) != (other.dimension, other.stride, other.end):
            return None
        if self.period and other.period and self.period != other.period:
            return None
        start = min(self.start, other.start)
        end = max(self.start + self.length, other.start + other.length)
        return replace(self, start=start, length=end - start, period=self.period or other.period)

    def places(self, tile: Any) -> Any:
        """The rows of a tile."""
        return self.first(tile) + jnp.arange(self.length, dtype=np.int32)

    def first(self, tile: Any) -> Any:
        """The row that a tile begins with."""
        offset = self.stride * tile
        if self.end is not None:
            offset = jnp.minimum(offset, int(self.stride * self.end))
        return offset + self.start

    def offsets(self, tiles: int) -> Any:
        """How far each of so many tiles is from the first."""
        found = self.stride * np.arange(tiles)
        return found if self.end is None else np.minimum(found, int(self.stride * self.end))

    def inside(self, tiles: int, rows: int) -> bool:
        """Whether all rows of all tiles are among so many."""
        last = tiles - 1 if self.end is None else self.end
        return self.start >= 0 and self.stride * last + self.start + self.length <= rows


@dataclass(frozen=True)
class Need:
    """What an equation needs for a window of its result.

    **Attributes:**

    - `windows`: of each operand; None of one that is needed whole.
    - `padding`: by the number of an operand, what the equation has in place of rows above and below it, given
      all operands. Of other operands, it reads no such rows.
    - `compute`: the window, of the operands' windows and the number of the tile.
    - `total`: of a sum over tiles, the sum, given the operands' windows with the tiles as first dimension.
      None if it is the sum of what `compute` gives.
    """

    windows: tuple[Window | None, ...]
    compute: Callable[[Sequence[Any], Any], Any]
    padding: Mapping[int, Callable[[Sequence[Any]], Any]] = field(default_factory=dict)
    total: Callable[[Sequence[Any]], Any] | None = None


@dataclass(frozen=True)
class Wanted:
    """A window of an equation's result, or none of a result that is summed over tiles.

    **Attributes:**

    - `asked`: the window.
    - `shapes`: of the operands; `shape`: of the result, `dtype`: its dtype.
    - `constants`: by operand, its value where it is known beforehand.
    - `tiles`: the number of tiles.
    - `near`: which operands of a concatenation are few rows that are computed from rows near to their place.
    """

    equation: Equation
    asked: Window | None
    shapes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    dtype: Any
    constants: Mapping[int, Any]
    tiles: int
    near: frozenset[int] = frozenset()

    @property
    def params(self) -> Mapping[str, Any]:
        return self.equation.params

    @property
    def window(self) -> Window:
        assert self.asked is not None
        return self.asked

    @property
    def row(self) -> int:
        return self.window.dimension

    def bind(self, operands: Sequence[Any], **changed: Any) -> Any:
        """The equation, with some of its parameters changed."""
        return self.equation.bind(operands, **changed)

    def same(self, **changed: Any) -> Need:
        """The same rows of every operand that has them, in the same dimension."""
        return self.along(dict.fromkeys(range(len(self.shapes)), self.row), **changed)

    def along(self, dimensions: Mapping[int, int], **changed: Any) -> Need:
        """The same rows of operands, by the dimension that they are in, where it is of that length."""
        rows = self.shape[self.row]
        windows = tuple(
            replace(self.window, dimension=dimensions[number])
            if number in dimensions and shape[dimensions[number] : dimensions[number] + 1] == (rows,)
            else None
            for number, shape in enumerate(self.shapes)
        )
        return Need(windows, lambda operands, _: self.bind(operands, **changed))

    def resized(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """A shape of the result, with the length of the window."""
        return tuple(self.window.length if d == self.row else size for d, size in enumerate(sizes))


def rows_of_part(wanted: Wanted, begin: int, rows: int) -> Window | None:
    """The rows of a part of the wanted array, by their place in it: all of them in each tile that has some.

    Other tiles have other rows, which the part has not. None if no tile has any of it.

    **Arguments:**

    - `begin`: where the part begins; `rows`: how many there are.
    """
    window = wanted.window
    offsets = window.offsets(wanted.tiles)
    firsts = offsets + window.start
    turns = range(-1, int(firsts.max() + window.length) // window.period + 1) if window.period else [0]
    starts = [
        turn * window.period - offsets[(firsts < at + rows) & (firsts + window.length > at)]
        for turn in turns
        for at in [begin + turn * window.period]
    ]
    having = np.concatenate(starts)
    if not len(having):
        return None
    first, last = int(having.min()), int(having.max())
    return replace(window, start=first, length=last - first + rows)


def joined(tiles: Any, dimension: int) -> Any:
    """What all tiles give, of which the tiles are the first dimension, one after another along another."""
    moved = jnp.moveaxis(tiles, 0, dimension)
    shape = moved.shape
    return moved.reshape(*shape[:dimension], shape[dimension] * shape[dimension + 1], *shape[dimension + 2 :])


def identity_of(reduction: str, dtype: Any) -> Any:
    """What makes no difference to a sum, "max", "min", "and" or "or"."""
    if reduction in ("max", "min"):
        lowest = reduction == "max"
        if jnp.issubdtype(dtype, jnp.inexact):
            return -np.inf if lowest else np.inf
        if jnp.issubdtype(dtype, np.bool_):
            return not lowest
        limits = jnp.iinfo(dtype)  # type: ignore[no-untyped-call]
        return limits.min if lowest else limits.max
    return reduction == "and" if jnp.issubdtype(dtype, np.bool_) else 0


Rule = Callable[[Wanted], Need | None]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(found: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, found))
        return found

    return register


def need_of(wanted: Wanted) -> Need | None:
    """What an equation needs for a window of its result; None if it is not known to need less than all.

    **Raises:** `Misaligned`.
    """
    found = RULES.get(wanted.equation.name)
    need = found(wanted) if found is not None else None
    if need is not None and wanted.window.period:
        # What others compute of rows beyond the edges is not what is at the other end.
        periods = {one.period for one in need.windows if one is not None}
        return need if periods <= {wanted.window.period} else None
    return need
