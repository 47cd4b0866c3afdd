"""Images by tiles of rows: beside what convolutions give, the same computed tile by tile.

    conv(relu(conv(x)))[tile t]  =  conv(relu(conv(x[tile t and the rows around it])))

No chunk of an image's rows passes through a convolution, since its entries reach over rows of other chunks.
But the rows that a tile needs of every value before it can be computed from those of its own operands: they
are a few more with each convolution, the halo. Tiles are a batch, and batches are computed chunk by chunk.

In a function without convolutions, the shifted slices that a stencil reads of one array are in their place,
and so are turned arrays, as of `jnp.roll` (`ImageValues.is_windowed`).

A rule can't say this: what a tile needs of a value depends on all that read it, up to the last convolutions.

Which rows are needed is found backwards from the last convolutions, for all that they read together. So
every value is computed once for each tile, whoever reads it, as in a network whose later layers read earlier
ones again, or in its derivative. Of a derivative by a kernel, each tile gives a part of the sum over rows.
What a tile needs and computes is in `tiled_program.py`; here, tiles are chosen.
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
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from eqsat.frontend.flat import Equation, FlatJaxpr, Value, Variable
from eqsat.frontend.image_values import ImageValues, Target
from eqsat.frontend.tile_ends import both, ends_after, is_in_parts
from eqsat.frontend.tile_windows import Misaligned
from eqsat.frontend.tiled_program import Rows, Tiles

MOST_WORK = 2.0
"""The most work that tiles may be, relative to the image as a whole: they compute halos more than once."""

LEAST_WORK = 1.1
"""The most work that many tiles may be."""

TILES = {512: LEAST_WORK, 128: 1.2, 32: MOST_WORK, 16: MOST_WORK, 8: MOST_WORK}
"""How many tiles are tried, each with the most work that they may be."""

STRIDED = 0.05
"""By what share tiles along each further dimension cost more: along the first, they are contiguous."""

LONG = 4096
"""How many rows a tile has where there would be more: a series is longer than an image."""

MULTIPLES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Tiles have a multiple of one of these rows, so that the steps of all convolutions divide them."""

FINEST = 16
"""The most by which an image is made smaller between one result and another."""

PLACES = 3
"""Tiles are tried along so many of the dimensions of an image, or of a volume."""

LONGEST_REST = 2
"""How many times as long as another tile the rest may be."""

MOST_TILINGS = 4
"""The most programs by tiles: each computes all before it again."""


@dataclass(frozen=True)
class TiledResult:
    """A result of a tiling.

    **Attributes:**

    - `variable`: which of the jaxpr it is.
    - `dimension`: that of the rows; None if the result is a reduction over tiles.
    - `parts`: how many tiles there are, and how many rows a tile has; None if one has others.
    """

    variable: Variable
    dimension: int | None
    parts: tuple[int, int] | None


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


def tilings(jaxpr: Jaxpr, cuts: bool = False) -> list[Tiling]:
    """Results of window operations, or slices of a stencil, by tiles, if that can save memory.

    They may be in calls that are seen through. Where tiles have rows in excess, what window operations go
    into is computed by tiles, too, up to reductions and results: nothing else would read tiles.

    **Arguments:**

    - `cuts`: whether rows in excess are cut off, as in `ImageValues`.
    """
    image = ImageValues(FlatJaxpr(jaxpr), cuts)
    if not any(map(image.is_windowed, image.flat.equations)):
        return []
    found: list[_Tiled] = []
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


def _best(image: ImageValues, equations: Sequence[Equation]) -> _Tiled | None:
    """Window operations, or reductions after them, by tiles; None if that saves nothing."""
    targets = [
        [target for one in equations if (target := image.target(one, place)) is not None]
        for place in range(PLACES)
    ]
    best = _by_most(image, targets, len(equations))
    # What moves rows, or changes some, has no chunks of joined tiles.
    if best is not None and (not best.is_even or image.is_moved_after(equations)):
        ends = [ends_after(image, along) for along in targets]
        return _by_most(image, ends, max(map(len, ends))) or best
    return best


def _by_most(image: ImageValues, targets: Sequence[Sequence[Target]], wanted: int) -> _Tiled | None:
    """Targets along one of the dimensions, by the most tiles that are not too much work.

    The best is one along which most of them can be computed so, and then, one along which least has to be
    stored that tiles are computed from.

    **Arguments:**

    - `targets`: along each dimension; `wanted`: how many there may be.
    """
    best: _Tiled | None = None
    longest = max((target.rows for along in targets for target in along), default=0)
    more = {longest // LONG: LEAST_WORK} if longest // LONG > max(TILES) else {}
    for count, most in {**more, **TILES}.items():
        tilings = [_aligned(image, along, count) for along in targets]
        found = [tiles for tiles in tilings if tiles is not None and tiles.work <= most]
        found.sort(key=_preference)
        if found and (best is None or len(found[0].targets) > len(best.targets)):
            best = found[0]
        if best is not None and len(best.targets) == wanted:
            break
    return best


def _preference(tiles: _Tiled) -> tuple[float, ...]:
    """Sorts tilings, the best first."""
    return -len(tiles.targets), tiles.stored_bytes, tiles.work * (1 + STRIDED * tiles.place), tiles.place


def _aligned(image: ImageValues, targets: Sequence[Target], count: int) -> _Tiled | None:
    rows = max((target.rows for target in targets), default=0)
    for multiple in MULTIPLES:
        if 2 * multiple > rows:
            break
        length = _even(rows, rows / count, multiple)
        with contextlib.suppress(Misaligned):
            return _Tiled.of(image, targets, -(-rows // length), Fraction(length, rows))
    return None


def _even(rows: int, wanted: float, multiple: int) -> int:
    """The rows of a tile: a multiple, near what is wanted, and a divisor of all rows if there is one."""
    nearest = max(1, round(wanted / multiple)) * multiple
    lengths = range(multiple, min(2 * nearest, rows // 2) + 1, multiple)
    even = [length for length in lengths if rows % length == 0 and 2 * length >= wanted]
    return min(even, key=lambda length: abs(length - wanted), default=nearest)


def _earlier_end(targets: Sequence[Target], rows: Mapping[Value, Rows], count: int) -> Fraction | None:
    """The number of the last tile, if it has to begin earlier for results to have no rows in excess."""
    ends = {Fraction(target.rows, rows[target.value].length) - 1 for target in targets}
    has_results = any(target.dimension is not None for target in targets)
    end = next(iter(ends))
    return end if has_results and len(ends) == 1 and count - 2 < end < count - 1 else None


@dataclass
class _Tiled:
    """Targets by tiles, and by a rest.

    **Attributes:**

    - `rest`: a last tile of another length, if there is one. Sums need it where no length of tiles divides
      their rows: beside rows in excess, they would add products of zeros, and an infinity times zero is NaN.
    """

    image: ImageValues
    tiles: Tiles
    rest: Tiles | None = None

    @staticmethod
    def of(image: ImageValues, targets: Sequence[Target], count: int, share: Fraction) -> _Tiled | None:
        """Targets by so many tiles, of that share of the rows; None if they can't be computed so.

        **Raises:** `Misaligned`.
        """
        most = max(target.rows for target in targets)
        rows: dict[Value, Rows] = {}
        for target in targets:
            # Rows that convolutions leave out at the edges make no difference.
            length = share * most * Fraction(target.rows, most).limit_denominator(FINEST)
            if length.denominator > 1 or length < 1:
                raise Misaligned
            rows[target.value] = Rows(0, int(length))
        if any(target.is_sum and target.rows != rows[target.value].length * count for target in targets):
            return _Tiled._with_rest(image, targets, rows)
        if any(target.rows > rows[target.value].length * count for target in targets):
            return None
        end = None if image.cuts else _earlier_end(targets, rows, count)
        if end is not None:
            with contextlib.suppress(Misaligned):
                tiles = Tiles.of(image, targets, count, rows, end)
                if tiles is not None:
                    return _Tiled(image, tiles)
        tiles = Tiles.of(image, targets, count, rows)
        return None if tiles is None else _Tiled(image, tiles)

    @staticmethod
    def _with_rest(
        image: ImageValues, targets: Sequence[Target], rows: Mapping[Value, Rows]
    ) -> _Tiled | None:
        """Targets by tiles that begin with these rows, as many as fit, and a rest.

        **Raises:** `Misaligned`.
        """
        count = min((target.rows - 1) // rows[target.value].length for target in targets)
        if count < 2 or not all(is_in_parts(image, target) for target in targets):
            return None
        last = {
            target.value: Rows(first := count * rows[target.value].length, target.rows - first)
            for target in targets
        }
        if any(last[value].length > LONGEST_REST * rows[value].length for value in last):
            return None
        tiles, rest = Tiles.of(image, targets, count, rows), Tiles.of(image, targets, 1, last)
        return None if tiles is None or rest is None else _Tiled(image, tiles, rest)

    @property
    def _all(self) -> list[Tiles]:
        return [self.tiles] if self.rest is None else [self.tiles, self.rest]

    @property
    def targets(self) -> Sequence[Target]:
        return self.tiles.targets

    @property
    def place(self) -> int:
        """Along which dimension of an image the tiles are."""
        return self.targets[0].place

    @property
    def is_even(self) -> bool:
        """Whether tiles of one length have all rows, and no more."""
        return self.rest is None and self.tiles.is_even

    @cached_property
    def wholes(self) -> list[Value]:
        """What tiles are computed from."""
        return list(dict.fromkeys(value for one in self._all for value in one.wholes))

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of what is computed as a whole, and of which tiles take rows."""
        flat = self.image.flat
        avals = [
            flat.avals[value]
            for value in self.wholes
            if self._row(value) is not None and value in flat.made_by
        ]
        return sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in avals)

    @cached_property
    def work(self) -> float:
        """How much more work tiles are than the image as a whole."""
        tiles = self.tiles
        values = dict.fromkeys((*tiles.needs, *tiles.windows))
        done = sum(one.work(value) for one in self._all for value in values)
        return done / sum(tiles.work_of_entry(value) * math.prod(self.image.shape(value)) for value in values)

    def _row(self, whole: Value) -> int | None:
        """The dimension of the rows that tiles take from what they are computed from; None if from all."""
        found = [one.windows[whole].dimension for one in self._all if whole in one.windows]
        return found[0] if found else None

    def tiling(self) -> Tiling:
        """The values by tiles, as a program."""
        flat = self.image.flat
        given: list[Any] = [flat.variables[one].var.aval for one in self.wholes]
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in given]
        results = tuple(
            TiledResult(flat.variables[target.value], target.dimension, self._parts(target))
            for target in self.targets
        )
        inputs = tuple(flat.variables[one] for one in self.wholes)
        # What lacks a dimension of length 1 is read as a whole.
        same = (aval.shape == flat.avals[one].shape for aval, one in zip(given, self.wholes, strict=True))
        rows = tuple(self._row(one) if alike else None for alike, one in zip(same, self.wholes, strict=True))
        return Tiling(jax.make_jaxpr(self._joined)(*avals), inputs, rows, results)

    def _parts(self, target: Target) -> tuple[int, int] | None:
        if self.rest is not None or self.tiles.end is not None:
            return None
        return self.tiles.count, self.tiles.rows[target.value].length

    def _joined(self, *wholes: Any) -> list[Any]:
        """The results of all tiles, joined or reduced, given what they are computed from."""
        avals = self.image.flat.avals
        known = {
            one: lax.reshape(whole, avals[one].shape) for one, whole in zip(self.wholes, wholes, strict=True)
        }
        found = self.tiles.results(known)
        if self.rest is None:
            return found
        rests = self.rest.results(known)
        return [both(*parts) for parts in zip(self.targets, found, rests, strict=True)]
