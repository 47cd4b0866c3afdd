"""What tiles end in: reductions over rows, and results. Rows that the last tile has in excess don't count.

    sum over rows r of  f(conv(x))[r]  =  sum over tiles t and their rows l of  f(conv(x[tile t]))[l]

Whatever the number of rows is, tiles of one length can be reduced so. Of results, the rows in excess are cut
off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.flat import Equation, Value
from eqsat.frontend.image_values import FEWEST_ROWS, ImageValues, Target
from eqsat.frontend.merged_selections import place_over_axes
from eqsat.frontend.tile_windows import Misaligned, Need, Wanted, Window, identity_of, need_of

COMBINED: Mapping[str, Callable[[Any, Any], Any]] = {
    "reduce_sum": lax.add,
    "dot_general": lax.add,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
    "reduce_and": lax.bitwise_and,
    "reduce_or": lax.bitwise_or,
}
"""Primitives that reduce rows, and what combines their results for two parts of the rows."""

REDUCTIONS = frozenset({*COMBINED, "argmax", "argmin"})
"""Primitives that reduce rows, behind which rows of an identity can be added."""

MOST_ENDS = 16
"""Tiles are not looked for where more values behind window operations are reduced, or are results."""


def ends_after(image: ImageValues, targets: Sequence[Target]) -> list[Target]:
    """Reductions over rows, and results by rows, that all of some window operations only go into.

    Convolutions among them that sum over rows are such reductions themselves. The list is empty if any go
    elsewhere, too.
    """
    flat = image.flat
    rows = {target.value: target for target in targets if target.dimension is not None}
    sums = {target.value: target for target in targets if target.is_sum}
    if not rows:
        return []
    place, tried = targets[0].place, 0
    reached = set(rows)
    found: list[Target] = list(sums.values())
    for equation in flat.equations:
        if reached.isdisjoint(one for one in equation.inputs if isinstance(one, Value)):
            continue
        if not sums.keys().isdisjoint(equation.outputs):
            continue
        target: Target | None = None
        if equation.name in REDUCTIONS and _reduces_rows(image, equation):
            tried += 1
            target = _over_rows(image, equation, rows, place) if tried <= MOST_ENDS else None
        if target is None:
            reached.update(equation.outputs)
        else:
            found.append(target)
    results = dict.fromkeys(one for one in flat.results if isinstance(one, Value) and one in reached)
    if tried + len(results) > MOST_ENDS:
        return []
    for value in results:
        target = rows.get(value) or _by_rows(image, value, rows, place)
        if target is None:
            return []
        found.append(target)
    return found


def _over_rows(
    image: ImageValues, equation: Equation, rows: dict[Value, Target], place: int
) -> Target | None:
    """A reduction as a target, if it goes over the rows of window operations; None for others."""
    whole = equation.inputs[0]
    if not isinstance(whole, Value) or not _has_identity(equation, image.flat.avals[whole].dtype):
        return None
    for dimension in _reduced(equation):
        length = image.shape(whole)[dimension]
        if length >= FEWEST_ROWS:
            target = Target(equation, None, length, place, dimension)
            if _reads_rows(image, target, rows):
                return target
    return None


def _by_rows(image: ImageValues, value: Value, rows: dict[Value, Target], place: int) -> Target | None:
    """A result as a target, if its rows are those of window operations; None for others."""
    equation = image.flat.made_by[value]
    for dimension, length in enumerate(image.shape(value)):
        if length >= FEWEST_ROWS and len(equation.outputs) == 1:
            target = Target(equation, dimension, length, place)
            if _reads_rows(image, target, rows):
                return target
    return None


def _reduced(equation: Equation) -> tuple[int, ...]:
    """The dimensions of its first operand that an equation reduces."""
    if equation.name == "dot_general":
        return tuple(equation.params["dimension_numbers"][0][0])
    return tuple(equation.params["axes"])


def _reduces_rows(image: ImageValues, equation: Equation) -> bool:
    """Whether an equation reduces a dimension that is long enough for tiles."""
    shape = image.shape(equation.inputs[0])
    return any(shape[dimension] >= FEWEST_ROWS for dimension in _reduced(equation))


def _has_identity(equation: Equation, dtype: Any) -> bool:
    """Whether rows can be added to what is reduced that make no difference."""
    return jnp.issubdtype(dtype, np.bool_) or equation.name not in ("reduce_and", "reduce_or")


def _reads_rows(image: ImageValues, target: Target, rows: dict[Value, Target]) -> bool:
    """Whether the rows that a target has, or reduces, are those of window operations."""
    windows: dict[Value, Window] = {}
    if target.dimension is not None:
        windows[target.value] = Window(target.dimension, target.rows, 0, target.rows)
    found = False
    for equation in reversed(image.flat.equations):
        if len(equation.outputs) != 1:
            continue
        (value,) = equation.outputs
        window = windows.get(value)
        if equation is target.equation and target.reduced is not None:
            rows_of_all = Window(target.reduced, 0, 0, target.rows)
            need = reduction_of_tiles(image.wanted(equation, None, 1), rows_of_all)
        elif window is None:
            continue
        elif value in rows:
            if window.dimension != rows[value].dimension:
                return False
            found = True
            continue
        else:
            try:
                need = need_of(image.wanted(equation, window, 1))
            except Misaligned:
                return False
        for operand, part in zip(equation.inputs, need.windows if need else (), strict=False):
            if isinstance(operand, Value) and part is not None:
                windows.setdefault(operand, part)
    return found


def reduction_of_tiles(wanted: Wanted, rows: Window) -> Need | None:
    """What the part of a tile of these rows, in the first operand, needs of a reduction over rows."""
    dimensions = [rows.dimension]
    if wanted.equation.name == "dot_general":
        (left, right), _ = wanted.params["dimension_numbers"]
        dimensions.append(right[tuple(left).index(rows.dimension)])
    windows = tuple(replace(rows, dimension=one) for one in dimensions)
    return Need(windows, lambda operands, _: operands, total=partial(_over_tiles, wanted, windows))


def _over_tiles(wanted: Wanted, windows: Sequence[Window], operands: Sequence[Any]) -> Any:
    """The reduction over all rows of all tiles, which are the first dimension of each operand."""
    operands = [
        _within(wanted, number, window, operand)
        for number, (window, operand) in enumerate(zip(windows, operands, strict=True))
    ]
    if wanted.equation.name in ("argmax", "argmin"):
        (dimension,) = wanted.params["axes"]
        rows = jnp.moveaxis(operands[0], 0, dimension)
        return place_over_axes(wanted.equation.name, rows, dimension, 2, str(wanted.dtype))
    if wanted.equation.name != "dot_general":
        return wanted.bind(operands, axes=(0, *(axis + 1 for axis in wanted.params["axes"])))
    sums, batches = (
        [tuple(axis + 1 for axis in axes) for axes in pair] for pair in wanted.params["dimension_numbers"]
    )
    return wanted.bind(operands, dimension_numbers=(tuple((0, *axes) for axes in sums), tuple(batches)))


def _within(wanted: Wanted, number: int, window: Window, tiles: Any) -> Any:
    """The rows of tiles, with an identity in place of those that there are not."""
    rows = wanted.shapes[number][window.dimension]
    if window.end is None and window.inside(wanted.tiles, rows):
        return tiles
    shape = [1] * tiles.ndim
    shape[0], shape[window.dimension + 1] = wanted.tiles, window.length
    identity = identity_of(wanted.equation.name.removeprefix("reduce_").removeprefix("arg"), tiles.dtype)
    tile = jnp.arange(wanted.tiles, dtype=np.int32)[:, None]
    at = window.places(tile)
    # The first rows of a last tile that begins earlier are in the tile before, too.
    own = (at < rows) if window.end is None else (at >= window.stride * tile + window.start)
    return jnp.where(own.reshape(shape), tiles, jnp.asarray(identity, tiles.dtype))


def is_in_parts(image: ImageValues, target: Target) -> bool:
    """Whether a target can be computed of each of two parts of the rows, and then of both.

    Sums of narrow floats would be rounded for each part.
    """
    if target.dimension is not None or target.is_sum:
        return True
    combined, dtype = COMBINED.get(target.equation.name), image.flat.avals[target.value].dtype
    narrow = jnp.issubdtype(dtype, jnp.inexact) and dtype.itemsize < 4
    return combined is not None and not (combined is lax.add and narrow)


def both(target: Target, one: Any, other: Any) -> Any:
    """A target of all rows, given those of two parts."""
    if target.dimension is not None:
        return lax.concatenate([one, other], target.dimension)
    return lax.add(one, other) if target.is_sum else COMBINED[target.equation.name](one, other)
