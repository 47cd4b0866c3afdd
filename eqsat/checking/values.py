"""Draws values for variables: ordinary ones, whole numbers, extremes, and data on which rounding is hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking.hostile import Distribution
from eqsat.checking.kinds import kind_of
from eqsat.checking.matrices import in_shape, matrices, spread
from eqsat.checking.operand_constraints import OperandConstraint
from eqsat.errors import RuleError
from eqsat.ir.dtypes import limits_of

Array = np.ndarray[Any, np.dtype[Any]]

OFFSET = 1e4
"""How far data of the style "offset" is from 0, in units of its spread."""

SINGULAR = frozenset(
    {"regular", "lower part", "upper part", "symmetric part", "lower", "upper", "diagonal", "symmetric"}
)
"""Properties under which a matrix may still be singular, and hold NaN.

These are what operations need without a condition that says so, and properties about where the entries are.
"""

SIGNS = frozenset({"nonnegative", "positive"})
"""Properties that exclude negative numbers."""

NO_ZEROS = frozenset({"positive", "nonzero"})
"""Properties that exclude 0."""

TRUE = (0.5, 0.5, 1.0)
"""Which share of truth values is true: one of these."""

CENTRES = (30.0, 100.0)
"""The centres of clusters: far apart for their size, and of one sign, so that sums don't cancel."""


@dataclass(frozen=True, slots=True)
class Style:
    """What data is like.

    **Attributes:**

    - `name`: "normal", "positive", "whole", "full" (all integers of the dtype), "huge" (up to
      1e4), "zeros" (many of them), "masked" (minus infinity in places, where the constraints allow it),
      "infinite" (infinities and NaN in places), "offset" (spread 1 about 1e4), "small" (a thousandth),
      "clusters" (near one of two points that are far apart), "hostile" (any distribution of
      `eqsat.checking.hostile`) or "tame" (its regimes of moderate sizes).
    - `condition`: the condition number of matrices that operations or properties are about.
    - `consistent`: whether the solutions of linear systems are of order 1, not their right-hand sides.
    - `lone`: whether matrices are ill-conditioned in one direction only.
    """

    name: str
    condition: float = 1.0
    consistent: bool = False
    lone: bool = False

    def __str__(self) -> str:
        shown = self.name
        if self.condition > 1:
            shown = f"condition number {self.condition:.0e}"
        return f"{shown}, right-hand sides in range" if self.consistent else shown


class Values:
    """Draws the values of the variables of one instance.

    **Arguments:**

    - `lengths`: the length of each axis.
    - `dtypes`: the dtype of each variable.
    - `constraints`: the constraints on each variable that has any.
    - `shared`: the axes that all variables have in common.
    """

    def __init__(
        self,
        seed: int,
        style: Style,
        lengths: Mapping[str, int],
        dtypes: Mapping[str, str],
        constraints: Mapping[str, OperandConstraint],
        shared: frozenset[str] = frozenset(),
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.style = style
        self.lengths = lengths
        self.dtypes = dtypes
        self.constraints = constraints
        self.shared = shared
        self.distribution: Distribution | None = None
        if style.name in ("hostile", "tame"):
            floats = [dtype for dtype in dtypes.values() if kind_of(dtype) in "fc"]
            limits = limits_of(floats[0] if floats else "float32")
            self.distribution = Distribution.drawn(self.rng, style.name == "tame", limits)
        self.drawn: dict[str, Array] = {}
        self.axes: dict[str, tuple[str, ...]] = {}

    def draw(self, name: str, axes: Sequence[str]) -> Array:
        """Draws the value of a variable, with its dimensions in the order of `axes`.

        Floats and complex numbers are in double precision. Other integers than indices are in their dtype.
        """
        constraint = self.constraints.get(name, OperandConstraint())
        dtype = self.dtypes[name]
        shape = tuple(self.lengths[axis] for axis in axes)
        if constraint.index_along is not None:
            value = self.rng.integers(-1, self.lengths[constraint.index_along] + 1, shape).astype(np.int8)
        elif constraint.matrix:
            value = self.matrix(constraint, tuple(axes))
        elif self.style.consistent and constraint.solved is not None and constraint.solved[0] in self.drawn:
            value = self.image(constraint.solved, tuple(axes), shape)
        else:
            value = self.plain(dtype, shape, constraint, tuple(axes))
        if self.distribution is not None and kind_of(dtype) in "fc":
            scalar, distribution = constraint.scalar, self.distribution.within(limits_of(dtype))
            if constraint.matrix and not any("orthogonal" in wanted for wanted in constraint.matrix.values()):
                plain = all(wanted <= SINGULAR for wanted in constraint.matrix.values()) and not scalar
                value = distribution.matrix(self.rng, value, plain)
                for pair, wanted in constraint.matrix.items():
                    places = axes.index(pair[0]), axes.index(pair[1])
                    stacked = in_shape(np.moveaxis(value, places, (-2, -1)), wanted)
                    value = np.moveaxis(stacked, (-2, -1), places)
            value = distribution.representable(value, bool(scalar & SIGNS), bool(scalar & NO_ZEROS))
        self.drawn[name], self.axes[name] = value, tuple(axes)
        return value

    def plain(
        self, dtype: str, shape: tuple[int, ...], constraint: OperandConstraint, axes: tuple[str, ...]
    ) -> Array:
        rng, kind = self.rng, kind_of(dtype)
        if kind == "b":
            return (
                np.ones(shape, bool)
                if "nonzero" in constraint.scalar
                else np.asarray(rng.random(shape) < rng.choice(TRUE))
            )
        if kind in "iu":
            limits = np.iinfo(dtype)
            low, high = (
                (limits.min, limits.max) if self.style.name == "full" else (-4 if kind == "i" else 0, 4)
            )
            if constraint.scalar & SIGNS:
                low, high = int("positive" in constraint.scalar), high if self.style.name == "full" else 6
            values = rng.integers(low, high, shape, dtype, endpoint=True)
            if self.style.name == "full":
                # Most numbers of wide dtypes are very large; the smallest of a signed dtype can't be negated.
                few = rng.integers(low, high, shape, dtype, endpoint=True) % np.asarray(100, dtype)
                ends = np.where(rng.random(shape) < 0.5, np.asarray(low, dtype), np.asarray(high, dtype))
                which = rng.random(shape)
                values = np.where(which < 0.1 * limits.dtype.itemsize, few, values)
                share = rng.choice([0.1, 0.5])
                values = np.maximum(np.where(which < share, ends, values), np.asarray(low, dtype))
            if "nonzero" in constraint.scalar:
                values = np.where(values == 0, np.asarray(1, dtype), values)
            return np.asarray(values, dtype)
        if self.distribution is not None and kind in "fc":
            distribution = self.distribution.within(limits_of(dtype))
            return (
                distribution.numbers(rng, shape) if kind == "f" else distribution.complex_numbers(rng, shape)
            )
        value = self.floats(shape, constraint, axes)
        if constraint.away:
            value = np.where(value < 0, value - 0.3, value + 0.3)
        if kind == "c":
            turns = 1j if self.style.name == "whole" else 3j  # as angles, more than half a turn
            with np.errstate(invalid="ignore"):  # infinity times 0 is NaN
                value = value + turns * self.floats(shape, constraint, axes)
            return np.where(value == 0, 1.0, value) if "nonzero" in constraint.scalar else np.asarray(value)
        if constraint.spread and self.style.condition > 1:
            sizes = spread(rng, shape, self.style.condition, self.style.lone)
            return sizes * rng.uniform(0.5, 1.0, shape)
        if constraint.scalar & SIGNS:
            value = np.abs(value)
            if "positive" in constraint.scalar:
                value = np.where(value == 0, 1.0, value) if self.style.name == "whole" else value + 0.1
        if "nonzero" in constraint.scalar:
            value = np.where(value == 0, 1.0, value)
        return np.asarray(value)

    def floats(self, shape: tuple[int, ...], constraint: OperandConstraint, axes: tuple[str, ...]) -> Array:
        rng = self.rng
        match self.style.name:
            case "positive":
                return rng.uniform(0.2, 2.0, shape)
            case "whole" | "full":
                return rng.integers(-4, 5, shape).astype(float)
            case "huge":
                scales = rng.choice([1e4, 1e4, 1.0, 1e-4], shape)
                return np.asarray(rng.choice([-1.0, 1.0], shape) * scales * rng.uniform(0.5, 1.0, shape))
            case "zeros":
                return np.where(rng.random(shape) < 0.5, 0.0, rng.normal(size=shape))
            case "infinite":
                special = rng.choice([np.inf, -np.inf, np.nan], shape)
                return np.where(rng.random(shape) < 0.15, special, rng.normal(size=shape))
            case "masked" if constraint.maskable:
                mask = rng.random(shape) < 0.4
                if len(shape) and rng.random() < 0.4:  # mask whole rows, too
                    mask |= rng.random((*shape[:-1], 1)) < 0.5
                return np.where(mask, -np.inf, rng.normal(size=shape))
            case "offset":
                return OFFSET + rng.normal(size=shape)
            case "small":
                return 1e-3 * rng.normal(size=shape)
            case "clusters":
                return self.clustered(shape, axes)
            case _:
                return rng.normal(size=shape)

    def clustered(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> Array:
        """Draws numbers near one of two centres.

        The centre changes along an axis that other variables lack, if there is one. So some differences
        between variables are small, and others are not.
        """
        along = next((axis for axis in axes if axis not in self.shared), axes[0] if axes else "")
        centre = self.rng.choice(CENTRES, tuple(self.lengths[axis] if axis == along else 1 for axis in axes))
        return np.asarray(centre + 0.01 * self.rng.normal(size=shape))

    # ------------------------------------------------------------------------------- matrices

    def matrix(self, constraint: OperandConstraint, axes: tuple[str, ...]) -> Array:
        """Draws matrices with the properties of a constraint.

        **Raises:** `RuleError` if it has properties along several pairs of axes.
        """
        if len(constraint.matrix) > 1:
            pairs = " and ".join(f"[{', '.join(pair)}]" for pair in constraint.matrix)
            raise RuleError(
                f"the check can't draw a term that has properties along several pairs of axes, {pairs}"
            )
        ((pair, wanted),) = constraint.matrix.items()
        order = [axis for axis in axes if axis not in pair] + list(pair)
        shape = tuple(self.lengths[axis] for axis in order)
        whole = self.style.name in ("whole", "full")
        if self.style.name == "positive" and wanted <= {"regular", "symmetric"}:
            wanted = wanted | {"positive"}  # so that the entries have roots and logarithms
        wanted = wanted | constraint.scalar
        value = matrices(self.rng, shape, wanted, self.style.condition, self.style.lone, whole)
        return np.transpose(value, [order.index(axis) for axis in axes])

    def image(
        self, solved: tuple[str, tuple[str, str]], axes: tuple[str, ...], shape: tuple[int, ...]
    ) -> Array:
        """Draws a right-hand side: the matrix times a vector of order 1.

        If the right-hand side lacks axes of the matrix, other than that of its columns, it is drawn by
        itself.

        **Arguments:**

        - `solved`: the variable that is the matrix, and its axes.
        """
        matrix, (rows, columns) = solved
        matrix_axes = self.axes[matrix]
        names = {axis: number for number, axis in enumerate(dict.fromkeys((*matrix_axes, *axes)))}
        if not set(matrix_axes) - {columns} <= set(axes) or rows not in axes:
            return np.asarray(self.rng.normal(size=shape))
        vector_axes = [columns if axis == rows else axis for axis in axes]
        vector = self.rng.normal(size=tuple(self.lengths[axis] for axis in vector_axes))
        return np.asarray(
            np.einsum(
                self.triangle(matrix, rows, columns),
                [names[axis] for axis in matrix_axes],
                vector,
                [names[axis] for axis in vector_axes],
                [names[axis] for axis in axes],
            )
        )

    def triangle(self, name: str, rows: str, columns: str) -> Array:
        """Returns what a solve reads of a matrix: one triangle for a triangular solve, else all of it."""
        value, axes = self.drawn[name], self.axes[name]
        wanted = self.constraints[name].matrix.get((rows, columns), set())
        core = (axes.index(rows), axes.index(columns))
        for part, cut in (("lower part", np.tril), ("upper part", np.triu)):
            if part in wanted:
                value = np.moveaxis(cut(np.moveaxis(value, core, (-2, -1))), (-2, -1), core)
        return value
