"""Some values of a jaxpr by tiles: which rows each tile needs of every value, and the tiles as a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

# Imported for the rules that they register.
from eqsat.frontend import tile_places as tile_places
from eqsat.frontend import tile_rows as tile_rows
from eqsat.frontend.flat import Equation, Value
from eqsat.frontend.image_values import ImageValues, Target
from eqsat.frontend.tile_ends import reduction_of_tiles
from eqsat.frontend.tile_halos import sum_of_tiles
from eqsat.frontend.tile_windows import Need, Wanted, Window, joined, need_of
from eqsat.ir.tiled_values import WINDOWED

MOST_PLACES = np.iinfo(np.int32).max
"""Rows are counted in 32 bits."""


class Rows(NamedTuple):
    """The rows of a target that the first tile gives. The next tile gives as many, from where these end."""

    first: int
    length: int


@dataclass
class Tiles:
    """Window operations, or reductions after them, by tiles.

    **Attributes:**

    - `count`: the number of tiles; `rows`: what the first gives of each target, by its number.
    - `end`: as in `Window`, if the last tile begins earlier.
    - `windows`: what is needed of each value, by its number; `needs`: what of that is computed in tiles.
    """

    image: ImageValues
    targets: Sequence[Target]
    count: int
    rows: Mapping[Value, Rows]
    end: Fraction | None = None
    windows: dict[Value, Window] = field(default_factory=dict)
    needs: dict[Value, Need] = field(default_factory=dict)

    @staticmethod
    def of(
        image: ImageValues,
        targets: Sequence[Target],
        count: int,
        rows: Mapping[Value, Rows],
        end: Fraction | None = None,
    ) -> Tiles | None:
        """None if the targets can't be computed by these tiles.

        **Raises:** `Misaligned`.
        """
        tiles = Tiles(image, targets, count, rows, end)
        for target in targets:
            if target.dimension is not None:
                tiles.windows[target.value] = tiles._window(target)
        return tiles if tiles._find() else None

    def _window(self, target: Target) -> Window:
        """The rows of a target that tiles give."""
        assert target.dimension is not None
        first, length = self.rows[target.value]
        return Window(target.dimension, self._stride(length), first, length, self.end)

    def _stride(self, length: int) -> int:
        """How far the rows of a tile are from those of the next, if there is one."""
        return length if self.count > 1 else 0

    def _find(self) -> bool:
        """Find what is needed, backwards from the targets; whether that can be computed by tiles."""
        flat = self.image.flat
        sums = {target.value: target for target in self.targets if target.dimension is None}
        for equation in reversed(flat.equations):
            value = equation.outputs[0] if len(equation.outputs) == 1 else None
            if value is None or equation.effects or not (value in self.windows or value in sums):
                continue
            wanted = self.image.wanted(equation, self.windows.get(value), self.count)
            need = self._reduced(wanted, sums[value]) if value in sums else need_of(wanted)
            if need is None:
                if self.image.is_windowed(equation):
                    return False
                continue
            self.needs[value] = need
            for operand, part in zip(equation.inputs, need.windows, strict=True):
                if part is None:
                    continue
                assert not isinstance(operand, Literal)
                if not self.image.shape(operand)[part.dimension]:
                    return False
                known = self.windows.get(operand)
                merged = part if known is None else known.merged(part)
                if merged is None:
                    return False
                self.windows[operand] = merged
        for value, window in self.windows.items():
            rows = self.image.shape(value)[window.dimension]
            if value not in self.needs and 0 < window.period < rows:
                return False
        last = max(
            (one.stride * self.count + one.start + one.length for one in self.windows.values()), default=0
        )
        return last <= MOST_PLACES and all(target.value in self.needs for target in self.targets)

    def _reduced(self, wanted: Wanted, target: Target) -> Need | None:
        first, length = self.rows[target.value]
        stride = self._stride(length)
        if target.reduced is not None:
            return reduction_of_tiles(wanted, Window(target.reduced, stride, first, length, self.end))
        return sum_of_tiles(wanted, target.place, Window(0, stride, first, length))

    @property
    def is_even(self) -> bool:
        """Whether tiles have all rows, and no more."""
        return all(self.rows[target.value] == (0, target.rows / self.count) for target in self.targets)

    @cached_property
    def wholes(self) -> list[Value]:
        """What tiles are computed from."""
        made_by = self.image.flat.made_by
        found = [value for value in self.windows if value not in self.needs]
        for value, need in self.needs.items():
            operands = zip(made_by[value].inputs, need.windows, strict=True)
            found += [one for one, part in operands if part is None and isinstance(one, Value)]
        return list(dict.fromkeys(found))

    def work(self, value: Value) -> float:
        """Operations for a value. Each entry that is read is one."""
        window, shape = self.windows.get(value), self.image.shape(value)
        entry = self.work_of_entry(value)
        if window is None:
            return entry * math.prod(shape)
        rest = (size for dimension, size in enumerate(shape) if dimension != window.dimension)
        return entry * math.prod(rest) * window.length * self.count

    def work_of_entry(self, value: Value) -> float:
        if value not in self.needs:
            return 1.0
        equation = self.image.flat.made_by[value]
        if equation.name == "conv_general_dilated":
            kernel = self.image.shape(equation.inputs[1])
            features = equation.params["dimension_numbers"].rhs_spec[0]
            return 2.0 * math.prod(kernel) / int(kernel[features])
        if equation.name in WINDOWED:
            return float(math.prod(equation.params["window_dimensions"]))
        return 1.0

    def results(self, known: Mapping[Value, Any]) -> list[Any]:
        """The targets, of the rows that tiles have, given what these are computed from."""
        if self.count == 1:
            tiles: Any = jax.tree.map(lambda value: value[None], self._tile(0, known))
        else:
            tiles = jax.vmap(lambda tile: self._tile(tile, known))(jnp.arange(self.count, dtype=np.int32))
        return [self._of_tiles(target, found) for target, found in zip(self.targets, tiles, strict=True)]

    def _of_tiles(self, target: Target, tiles: Any) -> Any:
        row, shape = target.dimension, self.image.shape(target.value)
        if row is None:
            total = self.needs[target.value].total
            return jnp.sum(tiles, axis=0) if total is None else total(tiles)
        if self.end is not None:
            return self._placed(tiles, self._window(target), shape)
        found = joined(tiles, row)
        rows = min(found.shape[row], shape[row] - self.rows[target.value].first)
        return found if found.shape[row] == rows else lax.slice_in_dim(found, 0, rows, axis=row)

    def _placed(self, tiles: Any, window: Window, shape: Sequence[int]) -> Any:
        """All tiles in their places, in an array of that shape. What two of them have is the same in both."""
        places = window.first(jnp.arange(self.count, dtype=np.int32))[:, None]
        numbers = lax.ScatterDimensionNumbers(
            update_window_dims=tuple(range(1, tiles.ndim)),
            inserted_window_dims=(),
            scatter_dims_to_operand_dims=(window.dimension,),
        )
        empty, mode = jnp.zeros(shape, tiles.dtype), lax.GatherScatterMode.PROMISE_IN_BOUNDS
        return lax.scatter(empty, places, tiles, numbers, indices_are_sorted=True, mode=mode)

    def _tile(self, tile: Any, known: Mapping[Value, Any]) -> list[Any]:
        """What a tile gives of the targets; of some sums, the operands."""
        made: dict[Value, Any] = {}

        def rows(value: Value, window: Window) -> Any:
            whole = self.windows[value]
            if value not in made:
                made[value] = self._taken(known[value], whole, tile)
            if window == whole:
                return made[value]
            first = window.start - whole.start
            return lax.slice_in_dim(made[value], first, first + window.length, axis=window.dimension)

        for equation in self.image.flat.equations:
            need = self.needs.get(equation.outputs[0]) if len(equation.outputs) == 1 else None
            if need is None:
                continue
            operands = []
            for operand, window in zip(equation.inputs, need.windows, strict=True):
                if isinstance(operand, Literal):
                    operands.append(operand.val)
                elif window is None:
                    operands.append(known[operand])
                else:
                    operands.append(rows(operand, window))
            for number, filler in need.padding.items():
                operands[number] = self._padded(equation, need, number, filler(operands), operands, tile)
            made[equation.outputs[0]] = operands if need.total is not None else need.compute(operands, tile)
        return [
            made[target.value] if target.dimension is None else rows(target.value, self._window(target))
            for target in self.targets
        ]

    def _taken(self, value: Any, window: Window, tile: Any) -> Any:
        """The rows of a tile. Beyond the edges, the nearest, or those of the other end."""
        count, places = value.shape[window.dimension], window.places(tile)
        if not window.period:
            return jnp.take(value, jnp.clip(places, 0, count - 1), axis=window.dimension)
        around = lax.rem(places, np.int32(window.period))
        around = jnp.where(around < 0, around + window.period, around)
        if window.period > count:
            around = jnp.minimum(around, count - 1)
        inside = (*[slice(None)] * window.dimension, around)
        return value.at[inside].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def _padded(
        self, equation: Equation, need: Need, number: int, filler: Any, operands: Sequence[Any], tile: Any
    ) -> Any:
        """The rows of an operand, with those above and below it replaced."""
        window, rows = need.windows[number], operands[number]
        assert window is not None
        count = self.image.shape(equation.inputs[number])[window.dimension]
        if window.inside(self.count, count):
            return rows
        places = window.places(tile)
        inside = (places >= 0) & (places < count)
        shape = [1] * rows.ndim
        shape[window.dimension] = window.length
        return jnp.where(inside.reshape(shape), rows, jnp.asarray(filler, rows.dtype))
