"""The values of a jaxpr on the way from an image to what is computed of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from eqsat.frontend.flat import Equation, FlatJaxpr, Value
from eqsat.frontend.kept_rows import with_kept_rows
from eqsat.frontend.placed_rows import is_cyclic, with_placed_rows
from eqsat.frontend.row_primitives import PLACED_ROWS
from eqsat.frontend.scatter_updates import COMBINED
from eqsat.frontend.tile_places import PLACED
from eqsat.frontend.tile_windows import ROW_BY_ROW, Wanted, Window
from eqsat.ir.tiled_values import STENCIL, WINDOWED

FEWEST_ROWS = 32
"""The fewest rows of an image that are worth tiles."""

MOST_IMAGES = 8
"""In a larger batch, an image is a chunk, but for those of many rows."""

MANY_ROWS = 1 << 18
"""So many rows are worth tiles in any batch, as of channels that are recorded together."""

MOST_SHIFTS = 200
"""Of so many slices of one array, it is looked whether they overlap."""

MOST_KNOWN = 1 << 20
"""The most entries of an array that is evaluated beforehand."""

JUMPS = frozenset({"sign", "rem", "nextafter"})
"""Functions to floats that a last digit can change by much, of which it is not said where."""

ROUNDINGS = 32
"""How many times the relative error of a rounding a known float may be off."""


_Box = tuple[Sequence[int], Sequence[int]]
"""Where a part begins in each dimension, and where it ends."""


@dataclass(frozen=True)
class Target:
    """A window operation, or a reduction after some, whose result tiles give, or are reduced to.

    **Attributes:**

    - `dimension`: that of the rows in the result. None if they are summed over, as by the derivative of a
      convolution by its kernel, or reduced.
    - `rows`: how many there are.
    - `place`: which of the dimensions of an image they are.
    - `reduced`: of a reduction over them, their dimension in what it reduces.
    """

    equation: Equation
    dimension: int | None
    rows: int
    place: int
    reduced: int | None = None

    @property
    def value(self) -> Value:
        return self.equation.outputs[0]

    @property
    def is_sum(self) -> bool:
        """Whether it is a convolution that sums over the rows."""
        return self.dimension is None and self.reduced is None


class ImageValues:
    """The equations of a jaxpr, and what is known of them.

    **Attributes:**

    - `cuts`: whether rows that the last tile has in excess are cut off. That costs nothing where results are
      written to files, tile by tile. Otherwise the last tile begins earlier, where it can.
    """

    def __init__(self, flat: FlatJaxpr, cuts: bool = False) -> None:
        # Where windows pad an array, its rows beyond the edges are not those of the other end.
        windows = [equation for equation in flat.equations if equation.name in WINDOWED]
        pads = any(any(map(any, equation.params["padding"])) for equation in windows)
        # Of a file, joins of its rows are read as they are.
        self.flat = flat if cuts else with_kept_rows(with_placed_rows(flat, around=not pads))
        self.cuts = cuts
        self._constants: dict[Value, Any] = dict(flat.constants)
        self._free: set[Value] = set(flat.constants)
        for equation in flat.equations:
            if all(isinstance(value, Literal) or value in self._free for value in equation.inputs):
                self._free.update(equation.outputs)
        self._stencils = set() if windows else self._shifted() | self._turned()

    def shape(self, value: Value | Literal) -> tuple[int, ...]:
        aval: Any = value.aval if isinstance(value, Literal) else self.flat.avals[value]
        return tuple(aval.shape)

    def wanted(self, equation: Equation, window: Window | None, tiles: int) -> Wanted:
        """A window of the result of an equation, by so many tiles; or all of it, of a reduction over them."""
        (output,) = equation.outputs
        constants: Mapping[int, Any] = {}
        if equation.name in PLACED and (known := self.constant(equation.inputs[1])) is not None:
            constants = {1: known}
        shapes = tuple(map(self.shape, equation.inputs))
        dtype = self.flat.avals[output].dtype
        near = self._near(equation, window) if equation.name == "concatenate" and window else frozenset[int]()
        return Wanted(equation, window, shapes, self.shape(output), dtype, constants, tiles, near)

    def _near(self, join: Equation, window: Window) -> frozenset[int]:
        """The operands of a concatenation that are few rows, computed from rows near to where they are."""
        found, begin, row = set(), 0, window.dimension
        for number, operand in enumerate(join.inputs if join.params["dimension"] == row else ()):
            rows = self.shape(operand)[row]
            origins = self._origins(operand, row) if 0 < rows <= window.length else None
            if origins and all(abs(origin - begin) <= window.length for origin in origins):
                found.add(number)
            begin += rows
        return frozenset(found)

    def _origins(self, value: Value | Literal, row: int) -> set[int] | None:
        """From which rows of long arrays the first of few rows is computed; None if that is not known."""
        if isinstance(value, Literal) or value in self._free or not self.shape(value):
            return set()
        equation = self.flat.made_by.get(value)
        if equation is None or not (equation.name == "slice" or equation.name in ROW_BY_ROW):
            return None
        if equation.name == "slice":
            start, steps = equation.params["start_indices"][row], equation.params["strides"]
            if steps is not None and steps[row] != 1:
                return None
            (operand,) = equation.inputs
            before = {0} if self.shape(operand)[row] >= FEWEST_ROWS else self._origins(operand, row)
            return None if before is None else {start + origin for origin in before}
        found = [self._origins(operand, row) for operand in equation.inputs]
        return None if any(one is None for one in found) else set[int]().union(*(one for one in found if one))

    def is_windowed(self, equation: Equation) -> bool:
        """Whether an equation is a window operation, or a part of an array that a stencil reads."""
        return equation.name in WINDOWED or not self._stencils.isdisjoint(equation.outputs)

    def _shifted(self) -> set[Value]:
        """The slices that overlap another one of the same array, if there are some along several dimensions.

        In a derivative, slices are pads that are added to others. If each moves along one dimension, as by
        `jnp.diff`, some move along each long one: otherwise, another is one of a loop as it is.
        """
        equations = [one for one in self.flat.equations if one.name in STENCIL and self._moved(one)]
        if len(equations) < 2:
            return set()
        alike, total = self._alike(), self._totals()
        parts: dict[tuple[Value | Literal, bool], list[tuple[Value, _Box]]] = {}
        for equation in equations:
            whole, part = equation.inputs[0], equation.outputs[0]
            several = len(self._moved(equation)) > 1
            if equation.name == "pad":
                box = _padded(self.shape(whole), equation.params["padding_config"])
                parts.setdefault((total[part], several), []).append((part, box))
            else:
                box = (equation.params["start_indices"], equation.params["limit_indices"])
                key = whole if isinstance(whole, Literal) else alike[whole]
                parts.setdefault((key, several), []).append((part, box))
        found: set[Value] = set()
        single: dict[tuple[int, ...], set[Value]] = {}
        for (_, several), same in parts.items():
            for (one, box), (other, another) in itertools.combinations(same[:MOST_SHIFTS], 2):
                if _overlap(box, another):
                    members = found if several else single.setdefault(_sizes(box), set())
                    members.update((one, other))
        for shape, members in single.items():
            moved = {d for one in members for d in self._moved(self.flat.made_by[one])}
            if len(moved) > 1 and {d for d, size in enumerate(shape) if size >= FEWEST_ROWS} <= moved:
                found |= members
        return found

    def _totals(self) -> dict[Value, Value]:
        """By value, the last sum that it is a part of."""
        found = {value: value for value in range(len(self.flat.avals))}
        for equation in reversed(self.flat.equations):
            if equation.name in ("add", "add_any", "sub"):
                total = found[equation.outputs[0]]
                found.update({one: total for one in equation.inputs if not isinstance(one, Literal)})
        return found

    def _turned(self) -> set[Value]:
        """The arrays that are turned, as by `jnp.roll`, if there are several turns along each long dimension.

        Otherwise, another dimension is one of a loop as it is.
        """
        rolls = [one for one in self.flat.equations if one.name == PLACED_ROWS and self._is_roll(one)]
        ways = {(one.params["dimension"], int(one.params["places"][0])) for one in rolls}
        turned = {dimension for dimension, _ in ways}
        return {
            one.outputs[0]
            for one in rolls
            if len(ways) > 1
            and {d for d, size in enumerate(self.shape(one.outputs[0])) if size >= FEWEST_ROWS} <= turned
        }

    def _is_roll(self, equation: Equation) -> bool:
        size = self.shape(equation.inputs[0])[equation.params["dimension"]]
        places = equation.params["places"]
        return len(places) == size and is_cyclic(places, size)

    def _alike(self) -> dict[Value, Value]:
        """By value, the first that is computed in the same way."""
        first = {value: value for value in range(len(self.flat.avals))}
        seen: dict[tuple[Any, ...], Sequence[Value]] = {}
        for one in self.flat.equations:
            inputs = tuple(str(v.val) if isinstance(v, Literal) else first[v] for v in one.inputs)
            same = seen.setdefault((one.name, inputs, str(one.params)), one.outputs)
            first.update(zip(one.outputs, (first[value] for value in same), strict=True))
        return first

    def _moved(self, equation: Equation) -> list[int]:
        """The long dimensions along which a slice leaves something out."""
        whole, part = self.shape(equation.inputs[0]), self.shape(equation.outputs[0])
        sizes = enumerate(zip(whole, part, strict=True))
        return [number for number, (a, b) in sizes if a != b and min(a, b) >= FEWEST_ROWS]

    def windowed_before(self, values: Iterable[Value | Literal]) -> Iterator[Equation]:
        """The last window operations on the way to some values."""
        seen: set[Value] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            # What depends on no argument is in the place of a constant.
            if isinstance(value, Literal) or value in seen or value in self._free:
                continue
            seen.add(value)
            equation = self.flat.made_by.get(value)
            if equation is None:
                continue
            if self.is_windowed(equation):
                yield equation
            else:
                stack += equation.inputs

    def is_moved_after(self, equations: Sequence[Equation]) -> bool:
        """Whether window operations are pads, or go into what pads or changes a part of an array."""
        reached: set[Value] = set()
        for equation in equations:
            reached.update(equation.outputs)
            if equation.name == "pad":
                return True
        for equation in self.flat.equations:
            if any(isinstance(one, int) and one in reached for one in equation.inputs):
                if equation.name in ("pad", PLACED_ROWS) or equation.name in COMBINED:
                    return True
                reached.update(equation.outputs)
        return False

    def connected(self, equations: Sequence[Equation]) -> list[list[Equation]]:
        """Equations by the images that they are computed from: those that share one are together."""
        groups: list[tuple[int, list[Equation]]] = []
        for equation in equations:
            images, members = self._images[equation.outputs[0]], [equation]
            apart = []
            for other, found in groups:
                if other & images:
                    images, members = images | other, found + members
                else:
                    apart.append((other, found))
            groups = [*apart, (images, members)]
        return [members for _, members in groups]

    @cached_property
    def _images(self) -> dict[Value, int]:
        """By value, which inputs it is computed from, as bits; kernels of convolutions do not count."""
        found: dict[Value, int] = {}
        for value in range(len(self.flat.avals)):
            if value not in self.flat.made_by:
                found[value] = 1 << value
        for equation in self.flat.equations:
            inputs = equation.inputs
            if equation.name == "conv_general_dilated" and not self._sums_rows(equation):
                inputs = inputs[:1]
            images = 0
            for operand in inputs:
                images |= 0 if isinstance(operand, Literal) else found.get(operand, 0)
            found.update(dict.fromkeys(equation.outputs, images))
        return found

    def _sums_rows(self, equation: Equation) -> bool:
        """Whether the kernel of a convolution is an image."""
        numbers = equation.params["dimension_numbers"]
        kernel = self.shape(equation.inputs[1])
        return any(kernel[dimension] >= FEWEST_ROWS for dimension in numbers.rhs_spec[2:])

    def target(self, equation: Equation, place: int) -> Target | None:
        """A window operation along one of the dimensions of its windows; None if that is not worth tiles."""
        shape = self.shape(equation.outputs[0])
        if equation.name == "conv_general_dilated":
            numbers = equation.params["dimension_numbers"]
            batch, _, *spatial = numbers.out_spec
            if place >= len(spatial):
                return None
            left, right = map(self.shape, equation.inputs)
            summed = right[numbers.rhs_spec[2 + place]]
            if summed >= FEWEST_ROWS > shape[spatial[place]]:
                # Of narrow floats, sums of a tile would be rounded.
                wide = self.flat.avals[equation.outputs[0]].dtype.itemsize >= 4
                few = left[numbers.lhs_spec[1]] <= MOST_IMAGES and equation.params["batch_group_count"] == 1
                return Target(equation, None, summed, place) if few and wide else None
            images = shape[batch]
        else:
            if equation.name == PLACED_ROWS:
                spatial = [dimension for dimension, size in enumerate(shape) if size >= FEWEST_ROWS]
            elif equation.name in STENCIL:
                spatial = self._moved(equation)
                if len(spatial) == 1:
                    spatial = [dimension for dimension, size in enumerate(shape) if size >= FEWEST_ROWS]
            else:
                sizes = equation.params["window_dimensions"]
                spatial = [dimension for dimension, size in enumerate(sizes) if size > 1]
            if place >= len(spatial):
                return None
            images = math.prod(shape[: spatial[0]])
        dimension = spatial[place]
        few = images <= MOST_IMAGES or shape[dimension] >= MANY_ROWS
        worth = few and shape[dimension] >= FEWEST_ROWS
        return Target(equation, dimension, shape[dimension], place) if worth else None

    def constant(self, value: Value | Literal) -> Any:
        """What a value is that depends on no argument; None for others, and for large ones."""
        if isinstance(value, Literal):
            return value.val
        if value not in self._free:
            return None
        if value not in self._constants:
            self._constants[value] = self._evaluated(value)
        return self._constants[value]

    def _evaluated(self, value: Value) -> Any:
        equation = self.flat.made_by[value]
        extended = jnp.issubdtype(self.flat.avals[value].dtype, jax.dtypes.extended)
        large = math.prod(self.shape(value)) > MOST_KNOWN
        if extended or large or len(equation.outputs) > 1 or equation.effects:
            return None
        operands = [self.constant(one) for one in equation.inputs]
        if any(operand is None for operand in operands) or not self._is_certain(equation, operands):
            return None
        with jax.ensure_compile_time_eval():
            return np.asarray(equation.bind(operands))

    def _is_certain(self, equation: Equation, operands: Sequence[Any]) -> bool:
        """Whether an equation of known operands gives the same where floats are rounded in other places.

        XLA computes (i + 0.5) * 2 / 3 as a product with 2 / 3, which may be just below a whole number.
        """
        inputs = [
            (one, np.asarray(value))
            for one, value in zip(equation.inputs, operands, strict=True)
            if jnp.issubdtype(np.asarray(value).dtype, jnp.floating)
        ]
        if all(isinstance(one, Literal) or self._rounds(one) for one, _ in inputs):
            return True
        value, name = inputs[0][1], equation.name
        if name in JUMPS:
            return False
        smooth = jnp.issubdtype(self.flat.avals[equation.outputs[0]].dtype, jnp.floating)
        if name in ("floor", "ceil") or (name == "convert_element_type" and not smooth):
            return _far(value, value - np.rint(value))
        if name == "round":
            return _far(value, value - np.floor(value) - 0.5)
        return smooth

    def _rounds(self, value: Value) -> bool:
        """Whether a float is a whole number, by what computes it."""
        equation = self.flat.made_by.get(value)
        return equation is not None and equation.name in ("floor", "ceil", "round", "iota")


def _padded(shape: Sequence[int], config: Sequence[tuple[int, int, int]]) -> _Box:
    """Where an array is in what it is padded to."""
    starts = tuple(low for low, _, _ in config)
    return starts, tuple(low + size for low, size in zip(starts, shape, strict=True))


def _sizes(box: _Box) -> tuple[int, ...]:
    return tuple(limit - start for start, limit in zip(*box, strict=True))


def _overlap(one: _Box, other: _Box) -> bool:
    """Whether two parts are at different places, and have entries between the same bounds."""
    starts, limits = zip(one[0], other[0], strict=True), zip(one[1], other[1], strict=True)
    return all(max(a) < min(b) for a, b in zip(starts, limits, strict=True)) and one[0] != other[0]


def _far(values: Any, off: Any) -> bool:
    """Whether all values are far enough from where a rounded one is another."""
    tolerance = ROUNDINGS * np.finfo(values.dtype).eps * np.maximum(np.abs(values), 1)
    return bool(np.all(np.abs(off) > tolerance))
