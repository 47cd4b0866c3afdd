"""Images by tiles of rows: beside what convolutions give, the same computed tile by tile.

    conv(relu(conv(x)))[tile t]  =  conv(relu(conv(x[tile t and the rows around it])))

No chunk of an image's rows passes through a convolution, since its entries reach over rows of other chunks.
But the rows that a tile needs of every value before it can be computed from those of its own operands: they
are a few more with each convolution, the halo. Tiles are a batch, and batches are computed chunk by chunk.

Which rows are needed is found backwards from the last convolution. So every value is computed once for each
tile, whoever reads it, as in a network whose later layers read earlier ones again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

# Imported for the rules that they register.
from eqsat.frontend import tile_halos as tile_halos
from eqsat.frontend import tile_rows as tile_rows
from eqsat.frontend.flat import Equation, FlatJaxpr, Value
from eqsat.frontend.tile_windows import Misaligned, Need, Wanted, Window, need_of
from eqsat.ir.tiled_values import WINDOWED

TILES = (32, 16, 8)
"""How many tiles are tried."""

FEWEST_ROWS = 32
"""The fewest rows of an image that are worth tiles."""

MOST_IMAGES = 8
"""In a larger batch, an image is a chunk."""

MOST_WORK = 2.0
"""The most work that tiles may be, relative to the image as a whole: they compute halos more than once."""

MULTIPLES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Tiles have a multiple of one of these rows, so that the steps of all convolutions divide them."""

MOST_TILED = 4
"""The most results that are also computed by tiles: each computes all before it again."""

MOST_KNOWN = 1 << 20
"""The most entries of an array that is evaluated beforehand."""


@dataclass(frozen=True)
class Tiling:
    """A value by tiles.

    **Attributes:**

    - `program`: computes it.
    - `inputs`: what of, by variables of the jaxpr that it is in.
    - `dimension`: that of the rows.
    - `parts`: how many tiles there are, and how many rows a tile has.
    """

    program: ClosedJaxpr
    inputs: tuple[Var, ...]
    dimension: int
    parts: tuple[int, int]


def tilings(jaxpr: Jaxpr) -> dict[Var, Tiling]:
    """The results of convolutions in a jaxpr by tiles, where that can save memory."""
    if all(equation.primitive.name not in WINDOWED for equation in jaxpr.eqns):
        return {}
    image = _Image(FlatJaxpr(jaxpr))
    variables = image.flat.variables
    found: dict[Var, Tiling] = {}
    seen: set[Value] = set()
    waiting = list(image.windowed_before(image.flat.results))
    while waiting and len(waiting) + len(found) <= MOST_TILED:
        equation = waiting.pop()
        (value,) = equation.outputs
        if value in seen or value not in variables:
            continue
        seen.add(value)
        tiles = image.tiled(equation)
        if tiles is not None:
            found[variables[value]] = tiling = tiles.tiling()
            waiting += image.windowed_before(image.flat.numbers[var] for var in tiling.inputs)
    return {} if waiting else found


class _Image:
    """The equations of a jaxpr, and what is known of them."""

    def __init__(self, flat: FlatJaxpr) -> None:
        self.flat = flat
        self._constants: dict[Value, Any] = {}
        self._free: set[Value] = set()
        for equation in flat.equations:
            if all(isinstance(value, Literal) or value in self._free for value in equation.inputs):
                self._free.update(equation.outputs)

    def shape(self, value: Value | Literal) -> tuple[int, ...]:
        aval: Any = value.aval if isinstance(value, Literal) else self.flat.avals[value]
        return tuple(aval.shape)

    def windowed_before(self, values: Iterable[Value | Literal]) -> Iterator[Equation]:
        """The last window operations on the way to some values."""
        seen: set[Value] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            if isinstance(value, Literal) or value in seen or value not in self.flat.made_by:
                continue
            seen.add(value)
            equation = self.flat.made_by[value]
            if equation.name in WINDOWED:
                yield equation
            else:
                stack += equation.inputs

    def tiled(self, equation: Equation) -> _Tiles | None:
        """A window operation by the most tiles that are not too much work, along the best dimension.

        The best is one along which least has to be stored that tiles are computed from.
        """
        for count in TILES:
            tilings = [self._aligned(equation, dimension, count) for dimension in self._rows(equation)]
            found = [tiles for tiles in tilings if tiles is not None and tiles.work <= MOST_WORK]
            if found:
                return min(found, key=lambda tiles: (tiles.stored_bytes, tiles.work))
        return None

    def _rows(self, equation: Equation) -> list[int]:
        """The dimensions of a result along which there are rows with others around them."""
        shape = self.shape(equation.outputs[0])
        if equation.name == "conv_general_dilated":
            batch, _, *spatial = equation.params["dimension_numbers"].out_spec
            images = shape[batch]
        else:
            sizes = equation.params["window_dimensions"]
            spatial = [d for d, size in enumerate(sizes) if size > 1]
            images = math.prod(shape[: min(spatial, default=0)])
        return [d for d in spatial if shape[d] >= FEWEST_ROWS] if images <= MOST_IMAGES else []

    def _aligned(self, equation: Equation, dimension: int, count: int) -> _Tiles | None:
        rows = self.shape(equation.outputs[0])[dimension]
        for multiple in MULTIPLES:
            if 2 * multiple > rows:
                break
            length = _even(rows, rows / count, multiple)
            with contextlib.suppress(Misaligned):
                return _Tiles.of(self, equation, Window(dimension, length, 0, length))
        return None

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
        equation = self.flat.made_by.get(value)
        if equation is None or len(equation.outputs) > 1 or equation.effects:
            return None
        if math.prod(self.shape(value)) > MOST_KNOWN or jnp.issubdtype(
            self.flat.avals[value].dtype, jax.dtypes.extended
        ):
            return None
        operands = [self.constant(one) for one in equation.inputs]
        if any(operand is None for operand in operands):
            return None
        with jax.ensure_compile_time_eval():
            return np.asarray(equation.bind(operands))


def _even(rows: int, wanted: float, multiple: int) -> int:
    """The rows of a tile: a multiple, near what is wanted, and a divisor of all rows if there is one."""
    nearest = max(1, round(wanted / multiple)) * multiple
    lengths = range(multiple, min(2 * nearest, rows // 2) + 1, multiple)
    even = [length for length in lengths if rows % length == 0 and 2 * length >= wanted]
    return min(even, key=lambda length: abs(length - wanted), default=nearest)


@dataclass
class _Tiles:
    """A window operation by tiles.

    **Attributes:**

    - `windows`: what is needed of each value, by its number; `needs`: what of that is computed in tiles.
    """

    image: _Image
    target: Equation
    count: int
    windows: dict[Value, Window]
    needs: dict[Value, Need]

    @staticmethod
    def of(image: _Image, target: Equation, window: Window) -> _Tiles | None:
        rows = image.shape(target.outputs[0])[window.dimension]
        tiles = _Tiles(image, target, -(-rows // window.length), {target.outputs[0]: window}, {})
        return tiles if tiles._find() else None

    def _find(self) -> bool:
        """Find what is needed, backwards from the target; whether that can be computed by tiles."""
        flat = self.image.flat
        for equation in reversed(flat.equations):
            value = equation.outputs[0] if len(equation.outputs) == 1 else None
            window = self.windows.get(value) if value is not None else None
            if value is None or window is None or equation.effects or self._is_known(value):
                continue
            need = need_of(self._wanted(equation, window))
            if need is None:
                if equation.name in WINDOWED:
                    return False
                continue
            self.needs[value] = need
            for operand, part in zip(equation.inputs, need.windows, strict=True):
                if part is None:
                    continue
                assert not isinstance(operand, Literal)
                known = self.windows.get(operand)
                merged = part if known is None else known.merged(part)
                if merged is None:
                    return False
                self.windows[operand] = merged
        return self.target.outputs[0] in self.needs

    def _is_known(self, value: Value) -> bool:
        return self.image.constant(value) is not None

    def _wanted(self, equation: Equation, window: Window) -> Wanted:
        image = self.image
        (output,) = equation.outputs
        constants: Mapping[int, Any] = {}
        if equation.name == "gather" and (known := image.constant(equation.inputs[1])) is not None:
            constants = {1: known}
        shapes = tuple(image.shape(value) for value in equation.inputs)
        dtype = image.flat.avals[output].dtype
        return Wanted(equation, window, shapes, image.shape(output), dtype, constants, self.count)

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
        """How much more work tiles are than the image as a whole."""
        done = whole = 0.0
        for value, window in self.windows.items():
            if value in self.needs:
                each = self._work(self.image.flat.made_by[value])
                shape = self.image.shape(value)
                whole += each * math.prod(shape)
                done += each * math.prod(shape) / shape[window.dimension] * window.length * self.count
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
        """The value by tiles, as a program."""
        flat, window = self.image.flat, self.windows[self.target.outputs[0]]
        numbers = [value for value in self._wholes if value in flat.variables]
        avals = [jax.ShapeDtypeStruct(flat.avals[one].shape, flat.avals[one].dtype) for one in numbers]
        program = jax.make_jaxpr(lambda *values: self._joined(dict(zip(numbers, values, strict=True))))(
            *avals
        )
        inputs = tuple(flat.variables[one] for one in numbers)
        return Tiling(program, inputs, window.dimension, (self.count, window.length))

    @cached_property
    def _wholes(self) -> dict[Value, None]:
        """What tiles are computed from: variables of the jaxpr, and what calls in it compute of these."""
        flat, found = self.image.flat, dict[Value, None]()
        stack: list[Value | Literal] = [value for value in self.windows if value not in self.needs]
        for value, need in self.needs.items():
            operands = flat.made_by[value].inputs
            stack += [one for one, part in zip(operands, need.windows, strict=True) if part is None]
        while stack:
            one = stack.pop()
            if not isinstance(one, Literal) and one not in found:
                found[one] = None
                stack += () if one in flat.variables else flat.made_by[one].inputs
        return found

    def _joined(self, known: dict[Value, Any]) -> Any:
        """All tiles, joined, given the variables that they are computed from."""
        (output,) = self.target.outputs
        row, shape = self.windows[output].dimension, self.image.shape(output)
        for equation in self.image.flat.equations:
            if any(value in self._wholes and value not in known for value in equation.outputs):
                operands = [one.val if isinstance(one, Literal) else known[one] for one in equation.inputs]
                results = equation.bind(operands)
                results = results if equation.primitive.multiple_results else [results]
                known.update(zip(equation.outputs, results, strict=True))
        tiles = jax.vmap(lambda tile: self._tile(tile, known))(jnp.arange(self.count, dtype=np.int32))
        joined = jnp.moveaxis(tiles, 0, row)
        rows = joined.shape[row] * joined.shape[row + 1]
        joined = joined.reshape(*shape[:row], rows, *shape[row + 1 :])
        return joined if rows == shape[row] else lax.slice_in_dim(joined, 0, shape[row], axis=row)

    def _tile(self, tile: Any, known: Mapping[Value, Any]) -> Any:
        """The rows of the target in a tile."""
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
            if need.padding is not None:
                operands[0] = self._padded(equation, need, operands, tile)
            made[equation.outputs[0]] = need.compute(operands, tile)
        return made[self.target.outputs[0]]

    def _padded(self, equation: Equation, need: Need, operands: list[Any], tile: Any) -> Any:
        """The rows of an operand, with those above and below it replaced."""
        (window, *_), rows = need.windows, operands[0]
        assert window is not None
        assert need.padding is not None
        count = self.image.shape(equation.inputs[0])[window.dimension]
        if window.inside(self.count, count):
            return rows
        filler = jnp.asarray(need.padding(operands), rows.dtype)
        places = window.stride * tile + window.start + jnp.arange(window.length, dtype=np.int32)
        inside = (places >= 0) & (places < count)
        shape = [1] * rows.ndim
        shape[window.dimension] = window.length
        return jnp.where(inside.reshape(shape), rows, filler)
