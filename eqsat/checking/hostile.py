"""Draws numbers that rules fail on: of all sizes, near the limits of the range, infinite, NaN, zero, offset.

All variables of an instance share one *distribution*, because mistakes depend on how they relate. A rule
that moves a factor fails where factors have very different sizes. A rule that splits a sum fails where two
variables nearly cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

DISTRIBUTIONS = (
    *("wide", "levels", "levels", "special", "special", "infinite", "infinite", "opposed", "edge", "edge"),
    *("negative", "zeros", "zeros", "undefined", "whole", "whole"),
)
"""The distributions that a rule of the default class has to cope with. Some are listed twice, to be drawn
more often."""

TAME = ("steps", "opposed", "positive", "zeros", "negative")
"""The distributions whose numbers have moderate sizes."""

INFINITE = ("special", "infinite", "undefined")
"""The distributions that hold infinities or NaN by intent."""

SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan)

ORDINARY = (0.25, 0.5)
"""The probabilities that a variable has ordinary numbers. Most distributions draw one of these."""

WHOLE = (-3.0, -2.0, -1.0, -1.0, 0.0, 1.0, 1.0, 2.0, 3.0)
"""Small whole numbers, whose sums and products are often 0 or 1."""

SPREAD = 1e-3
"""The relative distance between numbers of the distribution "opposed"."""


@dataclass(frozen=True)
class Distribution:
    """What the numbers of one instance are like.

    **Attributes:**

    - `name`: "wide": any exponent for each number; "levels": one exponent for each variable; "steps": the
      same, within a few orders of magnitude; "special": zeros, infinities or NaN in places; "infinite":
      infinities in places, of one sign for each variable; "undefined": NaN in places; "opposed": large
      numbers close to one another, of one sign for each variable; "edge": near the largest number;
      "negative"; "positive"; "zeros": zeros in places; "whole": small whole numbers, which give exact
      results.
    - `exponent`: the largest decimal exponent of a variable's numbers.
    - `tame`: whether sizes are moderate, matrices regular, and zeros never negative.
    - `limits`: the limits of the dtype, as `jax.numpy.finfo` gives them.
    - `ordinary`: the probability that a variable has ordinary numbers.
    """

    name: str
    exponent: float
    tame: bool
    limits: Any
    ordinary: float = ORDINARY[0]

    @staticmethod
    def drawn(rng: np.random.Generator, tame: bool, limits: Any) -> Distribution:
        """Draws a distribution for numbers in the range of a dtype with these limits."""
        names = TAME if tame else DISTRIBUTIONS
        name = names[rng.integers(len(names))]
        most = float(np.log10(float(limits.max)))
        exponent = rng.uniform(0.1, 0.95) * most
        if name == "steps":
            exponent = 0.08 * most
        if name == "opposed":
            exponent = min(rng.uniform(1.0, 4.0 if tame else 6.0), 0.4 * most)
        ordinary = ORDINARY[0] / 2 if name in INFINITE else rng.choice(ORDINARY)
        if name == "whole":
            ordinary = 0.0
        return Distribution(name, exponent, tame, limits, ordinary)

    def within(self, limits: Any) -> Distribution:
        """Returns the same distribution for a variable of another dtype."""
        if limits.dtype == self.limits.dtype:
            return self
        most = 0.95 * float(np.log10(float(limits.max)))
        return replace(self, limits=limits, exponent=min(self.exponent, most))

    def complex_numbers(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draws the complex numbers of one variable. In some of them, one part is a zero of either sign."""
        parts = np.stack([self.numbers(rng, shape), self.numbers(rng, shape)], axis=-1)
        which = rng.integers(0, 6, (*shape, 1))
        zeros = rng.choice([0.0, 0.0 if self.tame else -0.0], parts.shape)
        parts = np.where(which == np.arange(2), zeros, parts)
        return np.ascontiguousarray(parts).view(np.complex128)[..., 0]

    def numbers(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draws the numbers of one variable."""
        normal = rng.normal(size=shape)
        if rng.random() < self.ordinary:
            return np.asarray(normal * rng.choice([1.0, 5.0]))
        match self.name:
            case "wide":
                low, high = np.log2(float(self.limits.smallest_subnormal)), np.log2(float(self.limits.max))
                numbers = np.copysign(np.exp2(rng.uniform(low, high, shape)), normal)
                return self.sprinkled(rng, numbers, 0.1 if rng.random() < 0.3 else 0.0)
            case "levels" | "steps":
                level = 10 ** (self.exponent * rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0]))
                return np.asarray(normal * level)
            case "special":
                return self.sprinkled(rng, normal, rng.choice([0.1, 0.6, 0.6, 1.0]))
            case "infinite":
                return np.where(rng.random(shape) < 0.4, rng.choice([np.inf, -np.inf]), normal)
            case "undefined":
                return np.where(rng.random(shape) < rng.choice([0.2, 1.0]), np.nan, normal)
            case "opposed":
                centre = 10**self.exponent * rng.choice([-1.0, 1.0])
                return np.asarray(centre * (1 + max(SPREAD, 2 * float(self.limits.eps)) * normal))
            case "edge":
                scale = float(self.limits.max) / rng.choice([1.01, 2.0, 4.0, 8.0])
                signs = rng.choice([-1.0, 1.0], shape if rng.random() < 0.5 else ())
                return np.asarray(scale * signs * rng.uniform(0.9, 1.0, shape))
            case "negative":
                return -np.abs(normal)
            case "whole":
                return rng.choice(WHOLE, shape)
            case "positive":
                return rng.uniform(0.2, 2.0, shape)
            case _:
                # Zeros have signs of their own or one for all, since a sum is -0 only if all its terms are.
                zeros = rng.choice([0.0, 0.0 if self.tame else -0.0], shape if rng.random() < 0.5 else ())
                return np.where(rng.random(shape) < rng.choice([0.3, 1.0]), zeros, normal)

    def sprinkled(self, rng: np.random.Generator, numbers: Array, share: float) -> Array:
        """Replaces a share of the numbers by special ones: single numbers, or whole lines of an array."""
        # A NaN mostly makes results NaN, and so hides the effect of other special numbers.
        one = np.nan if rng.random() < 0.4 else rng.choice(SPECIALS)
        several = SPECIALS if rng.random() < 0.5 else SPECIALS[:-1]
        special = rng.choice(several, numbers.shape) if rng.random() < 0.5 else one
        where: Array = np.asarray(rng.random(numbers.shape) < share)
        if numbers.ndim and rng.random() < 0.4:
            along = int(rng.integers(numbers.ndim))
            shape = tuple(1 if place == along else length for place, length in enumerate(numbers.shape))
            where = rng.random(shape) < max(share, 0.3)
        return np.where(where, special, numbers)

    def matrix(self, rng: np.random.Generator, value: Array, plain: bool) -> Array:
        """Changes a regular matrix so that it suits this distribution.

        **Arguments:**

        - `plain`: whether the matrix may be singular, or hold infinities and NaN.
        """
        match self.name:
            case "levels" | "edge" | "wide" | "steps":
                level = 0.4 * self.exponent * rng.choice([-1.0, 0.0, 1.0])
                return np.asarray(value * 10**level)
            case "special" | "infinite" if plain:
                return self.sprinkled(rng, value, 0.1)
            case "zeros" if plain and not self.tame:
                return np.where(rng.random(value.shape[-1:]) < 0.5, 0.0, value)
            case _:
                return value

    def representable(self, value: Array, nonnegative: bool, nonzero: bool) -> Array:
        """Rounds values to the dtype, and makes them nonnegative or nonzero if the variable has to be."""
        if value.dtype.kind == "c":
            parts = np.stack([value.real, value.imag], axis=-1)
            narrow = self.representable(parts, False, False).view(np.complex128)[..., 0]
            return np.where(narrow == 0, 1.0, narrow) if nonzero else np.asarray(narrow)
        with np.errstate(all="ignore"):
            narrow = value.astype(self.limits.dtype).astype(np.float64)
        if self.name not in ("wide", *INFINITE):
            narrow = np.where(
                np.isfinite(value), np.clip(narrow, -float(self.limits.max), float(self.limits.max)), narrow
            )
        if nonnegative:
            narrow = np.where(np.isnan(narrow), np.nan, np.abs(narrow))
        if nonzero:
            narrow = np.where(narrow == 0, 1.0, narrow)
        return np.asarray(narrow)
