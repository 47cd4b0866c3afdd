"""Images by tiles of rows: beside what convolutions give, the same computed tile by tile.

    conv(relu(conv(x)))[tile t]  =  conv(relu(conv(x[tile t and the rows around it])))

No chunk of an image's rows passes through a convolution, since its entries reach over rows of other chunks.
But the rows that a tile needs of every value before it can be computed from those of its own operands: they
are a few more with each convolution, the halo. Tiles are a batch, and batches are computed chunk by chunk.

In a function without convolutions, the shifted slices that a stencil reads of one array are in their place
(`ImageValues.is_windowed`).

A rule can't say this: what a tile needs of a value depends on all that read it, up to the last convolutions.

Which rows are needed is found backwards from the last convolutions, for all that they read together. So
every value is computed once for each tile, whoever reads it, as in a network whose later layers read earlier
ones again, or in its derivative. Of a derivative by a kernel, each tile gives a part of the sum over rows.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Imported for the rules that they register.
from eqsat.frontend import tile_halos as tile_halos
from eqsat.frontend import tile_places as tile_places
from eqsat.frontend import tile_rows as tile_rows
from eqsat.frontend.flat import Equation, FlatJaxpr, Value, Variable
from eqsat.frontend.image_values import ImageValues, Target
from eqsat.frontend.tile_ends import ends_after, reduction_of_tiles
from eqsat.frontend.tile_halos import sum_of_tiles
from eqsat.frontend.tile_windows import Misaligned, Need, Wanted, Window, joined, need_of
from eqsat.ir.tiled_values import WINDOWED

MOST_WORK = 2.0
"""The most work that tiles may be, relative to the image as a whole: they compute halos more than once."""

LEAST_WORK = 1.1
"""The most work that many tiles may be."""

TILES = {512: LEAST_WORK, 128: 1.2, 32: MOST_WORK, 16: MOST_WORK, 8: MOST_WORK}
"""How many tiles are tried, each with the most work that they may be."""

LONG = 4096
"""How many rows a tile has where there would be more: a series is longer than an image."""

MOST_PLACES = np.iinfo(np.int32).max
"""Rows are counted in 32 bits."""

MULTIPLES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Tiles have a multiple of one of these rows, so that the steps of all convolutions divide them."""

FINEST = 16
"""The most by which an image is made smaller between one result and another."""

PLACES = 3
"""Tiles are tried along so many of the dimensions of an image, or of a volume."""

MOST_TILINGS = 4
"""The most programs by tiles: each computes all before it again."""


@dataclass(frozen=True)
class TiledResult:
    """A result of a tiling.

    **Attributes:**

    - `variable`: which of the jaxpr it is.
    - `dimension`: that of the rows; None if the result is a reduction over tiles.
    - `parts`: how many tiles there are, and how many rows a tile has.
    """

    variable: Variable
    dimension: int | None
    parts: tuple[int, int]


@dataclass(frozen=True)
class Tiling:
    """Values by tiles.

    **Attributes:**

    - `program`: computes them.
    - `inputs`: what of, by variables of the jaxpr that it is in.
    - `rows`: by input, the dimension of its rows; None if tiles read all of it.
    """

    program: ClosedJaxpr
    inputs: tuple[Variable, ...]
    rows: tuple[int | None, ...]
    results: tuple[TiledResult, ...]


def tilings(jaxpr: Jaxpr) -> list[Tiling]:
    """Results of window operations, or slices of a stencil, by tiles, if that can save memory.

    They may be in calls that are seen through. Where tiles have rows in excess, what window operations go
    into is computed by tiles, too, up to reductions and results: nothing else would read tiles.
    """
    image = ImageValues(FlatJaxpr(jaxpr))
    if not any(map(image.is_windowed, image.flat.equations)):
        return []
    found: list[_Tiles] = []
    seen: set[Value] = set()
    waiting: Sequence[Value | Literal] = image.flat.results
    while waiting and len(found) <= MOST_TILINGS:
        last = [one for one in image.windowed_before(waiting) if one.outputs[0] not in seen]
        seen.update(one.outputs[0] for one in last)
        tiles = [_best(image, group) for group in image.connected(last)[: MOST_TILINGS + 1]]
        made = [one for one in tiles if one is not None]
        found += made
        waiting = [value for one in made for value in one.wholes]
    return [one.tiling() for one in found] if len(found) <= MOST_TILINGS else []


def _best(image: ImageValues, equations: Sequence[Equation]) -> _Tiles | None:
    """Window operations, or reductions after them, by tiles; None if that saves nothing."""
    targets = [
        [target for one in equations if (target := image.target(one, place)) is not None]
        for place in range(PLACES)
    ]
    best = _by_most(image, targets, len(equations))
    if best is not None and not best.is_even:
        ends = [ends_after(image, along) for along in targets]
        return _by_most(image, ends, max(map(len, ends))) or best
    return best


def _by_most(image: ImageValues, targets: Sequence[Sequence[Target]], wanted: int) -> _Tiles | None:
    """Targets along one of the dimensions, by the most tiles that are not too much work.

    The best is one along which most of them can be computed so, and then, one along which least has to be
    stored that tiles are computed from.

    **Arguments:**

    - `targets`: along each dimension; `wanted`: how many there may be.
    """
    best: _Tiles | None = None
    longest = max((target.rows for along in targets for target in along), default=0)
    more = {longest // LONG: LEAST_WORK} if longest // LONG > max(TILES) else {}
    for count, most in {**more, **TILES}.items():
        tilings = [_aligned(image, along, count) for along in targets]
        found = [tiles for tiles in tilings if tiles is not None and tiles.work <= most]
        found.sort(key=lambda tiles: (-len(tiles.targets), tiles.stored_bytes, tiles.work))
        if found and (best is None or len(found[0].targets) > len(best.targets)):
            best = found[0]
        if best is not None and len(best.targets) == wanted:
            break
    return best


def _aligned(image: ImageValues, targets: Sequence[Target], count: int) -> _Tiles | None:
    rows = max((target.rows for target in targets), default=0)
    for multiple in MULTIPLES:
        if 2 * multiple > rows:
            break
        length = _even(rows, rows / count, multiple)
        with contextlib.suppress(Misaligned):
            return _Tiles.of(image, targets, -(-rows // length), Fraction(length, rows))
    return None


def _even(rows: int, wanted: float, multiple: int) -> int:
    """The rows of a tile: a multiple, near what is wanted, and a divisor of all rows if there is one."""
    nearest = max(1, round(wanted / multiple)) * multiple
    lengths = range(multiple, min(2 * nearest, rows // 2) + 1, multiple)
    even = [length for length in lengths if rows % length == 0 and 2 * length >= wanted]
    return min(even, key=lambda length: abs(length - wanted), default=nearest)


@dataclass
class _Tiles:
    """Window operations by tiles.

    **Attributes:**

    - `count`: the number of tiles; `lengths`: how many rows of each target a tile has, by its number.
    - `windows`: what is needed of each value, by its number; `needs`: what of that is computed in tiles.
    """

    image: ImageValues
    targets: Sequence[Target]
    count: int
    lengths: dict[Value, int]
    windows: dict[Value, Window]
    needs: dict[Value, Need]

    @staticmethod
    def of(image: ImageValues, targets: Sequence[Target], count: int, share: Fraction) -> _Tiles | None:
        """Targets by so many tiles, of that share of the rows; None if they can't be computed so.

        **Raises:** `Misaligned`.
        """
        most = max(target.rows for target in targets)
        tiles = _Tiles(image, targets, count, {}, {}, {})
        for target in targets:
            # Rows that convolutions leave out at the edges make no difference.
            length = share * most * Fraction(target.rows, most).limit_denominator(FINEST)
            if length.denominator > 1:
                raise Misaligned
            rows = int(length) * count
            sums = target.dimension is None and target.reduced is None
            if rows < target.rows or (sums and rows != target.rows):
                return None
            tiles.lengths[target.value] = int(length)
            if target.dimension is not None:
                tiles.windows[target.value] = tiles._window(target)
        return tiles if tiles._find() else None

    def _window(self, target: Target) -> Window:
        """The rows of a target that tiles give."""
        assert target.dimension is not None
        length = self.lengths[target.value]
        return Window(target.dimension, length, 0, length)

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
        last = max(
            (one.stride * self.count + one.start + one.length for one in self.windows.values()), default=0
        )
        return last <= MOST_PLACES and all(target.value in self.needs for target in self.targets)

    def _reduced(self, wanted: Wanted, target: Target) -> Need | None:
        length = self.lengths[target.value]
        if target.reduced is not None:
            return reduction_of_tiles(wanted, target.reduced, length)
        return sum_of_tiles(wanted, target.place, length)

    @property
    def is_even(self) -> bool:
        """Whether tiles have all rows, and no more."""
        return all(self.lengths[target.value] * self.count == target.rows for target in self.targets)

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of what is computed as a whole, and of which tiles take rows."""
        flat = self.image.flat
        avals = [
            flat.avals[value] for value in self.windows if value not in self.needs and value in flat.made_by
        ]
        return sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in avals)

    @cached_property
    def work(self) -> float:
        """How much more work tiles are than the image as a whole. Each entry that is read is an operation."""
        made_by = self.image.flat.made_by
        done = whole = 0.0
        for value in dict.fromkeys((*self.needs, *self.windows)):
            window, shape = self.windows.get(value), self.image.shape(value)
            entry = self._work(made_by[value]) if value in self.needs else 1.0
            whole += entry * math.prod(shape)
            tiled = math.prod(shape)
            if window is not None:
                rest = (size for dimension, size in enumerate(shape) if dimension != window.dimension)
                tiled = math.prod(rest) * window.length * self.count
            done += entry * tiled
        return done / whole

    def _work(self, equation: Equation) -> float:
        """Operations for an entry."""
        if equation.name == "conv_general_dilated":
            kernel = self.image.shape(equation.inputs[1])
            features = equation.params["dimension_numbers"].rhs_spec[0]
            return 2.0 * math.prod(kernel) / int(kernel[features])
        if equation.name in WINDOWED:
            return float(math.prod(equation.params["window_dimensions"]))
        return 1.0

    def tiling(self) -> Tiling:
        """The values by tiles, as a program."""
        flat = self.image.flat
        avals = [jax.ShapeDtypeStruct(flat.avals[one].shape, flat.avals[one].dtype) for one in self.wholes]
        results = tuple(
            TiledResult(
                flat.variables[target.value], target.dimension, (self.count, self.lengths[target.value])
            )
            for target in self.targets
        )
        inputs = tuple(flat.variables[one] for one in self.wholes)
        windows = [self.windows.get(one) for one in self.wholes]
        rows = tuple(None if window is None else window.dimension for window in windows)
        return Tiling(jax.make_jaxpr(self._joined)(*avals), inputs, rows, results)

    @cached_property
    def wholes(self) -> list[Value]:
        """What tiles are computed from."""
        made_by = self.image.flat.made_by
        found = [value for value in self.windows if value not in self.needs]
        for value, need in self.needs.items():
            operands = zip(made_by[value].inputs, need.windows, strict=True)
            found += [one for one, part in operands if part is None and isinstance(one, Value)]
        return list(dict.fromkeys(found))

    def _joined(self, *wholes: Any) -> list[Any]:
        """The results of all tiles, joined or reduced, given what they are computed from."""
        known = dict(zip(self.wholes, wholes, strict=True))
        tiles = jax.vmap(lambda tile: self._tile(tile, known))(jnp.arange(self.count, dtype=np.int32))
        return [self._of_tiles(target, found) for target, found in zip(self.targets, tiles, strict=True)]

    def _of_tiles(self, target: Target, tiles: Any) -> Any:
        row, shape = target.dimension, self.image.shape(target.value)
        if row is None:
            total = self.needs[target.value].total
            return jnp.sum(tiles, axis=0) if total is None else total(tiles)
        found = joined(tiles, row)
        return found if found.shape[row] == shape[row] else lax.slice_in_dim(found, 0, shape[row], axis=row)

    def _tile(self, tile: Any, known: Mapping[Value, Any]) -> list[Any]:
        """What a tile gives of the targets; of some sums, the operands."""
        made: dict[Value, Any] = {}

        def rows(value: Value, window: Window) -> Any:
            whole = self.windows[value]
            if value not in made:
                last = self.image.shape(value)[whole.dimension] - 1
                places = whole.stride * tile + whole.start + jnp.arange(whole.length, dtype=np.int32)
                made[value] = jnp.take(known[value], jnp.clip(places, 0, last), axis=whole.dimension)
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

    def _padded(
        self, equation: Equation, need: Need, number: int, filler: Any, operands: Sequence[Any], tile: Any
    ) -> Any:
        """The rows of an operand, with those above and below it replaced."""
        window, rows = need.windows[number], operands[number]
        assert window is not None
        count = self.image.shape(equation.inputs[number])[window.dimension]
        if window.inside(self.count, count):
            return rows
        places = window.stride * tile + window.start + jnp.arange(window.length, dtype=np.int32)
        inside = (places >= 0) & (places < count)
        shape = [1] * rows.ndim
        shape[window.dimension] = window.length
        return jnp.where(inside.reshape(shape), rows, jnp.asarray(filler, rows.dtype))
