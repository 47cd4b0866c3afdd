"""Draws hostile data: the whole range of each dtype, ±0, infinities, NaN, both ends of integers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.checking.hostile import SPECIALS, Distribution
from tests.fuzzing.text import Value

FAMILIAR = 0.25
"""The share of float arrays with small whole numbers, whose sums and products are exact in any order."""

TAME = 0.4
"""The share of distributions with moderate magnitudes. With others, values soon are all infinite or NaN."""


def arguments(inputs: list[Value], rng: np.random.Generator) -> list[Any]:
    """Returns an array for each input. The floats of one dtype have one distribution throughout a program."""
    distributions: dict[Any, Distribution] = {}
    return [
        jnp.asarray(_array(value, rng, distributions)) if value.kind != "key" else _key(value, rng)
        for value in inputs
    ]


def _key(value: Value, rng: np.random.Generator) -> Any:
    seeds = rng.integers(0, 2**31, value.shape)
    return (
        jax.random.key(int(seeds)) if value.shape == () else jax.vmap(jax.random.key)(seeds.astype(np.uint32))
    )


def _array(value: Value, rng: np.random.Generator, distributions: dict[Any, Distribution]) -> Any:
    shape, dtype = value.shape, value.dtype
    match value.kind:
        case "bool":
            return rng.random(shape) < rng.choice([0.5, 0.5, 0.05, 0.95, 0.0, 1.0])
        case "int":
            return _integers(np.iinfo(dtype), shape, rng).astype(dtype)
        case "complex":
            parts = [_floats(np.dtype(np.float32), shape, rng, distributions) for _ in range(2)]
            return (parts[0] + 1j * parts[1]).astype(dtype)
    return _floats(dtype, shape, rng, distributions)


def _floats(
    dtype: Any, shape: tuple[int, ...], rng: np.random.Generator, distributions: dict[Any, Distribution]
) -> Any:
    limits = jnp.finfo(dtype)
    if rng.random() < FAMILIAR:
        numbers = rng.integers(-4, 5, shape).astype(np.float64)
        if rng.random() < 0.5:
            numbers = np.where(rng.random(shape) < 0.05, rng.choice(SPECIALS), numbers)
    else:
        distribution = distributions.setdefault(dtype, Distribution.drawn(rng, rng.random() < TAME, limits))
        numbers = distribution.numbers(rng, shape)
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(dtype)


def _integers(limits: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    low, high = int(limits.min), int(limits.max)
    match rng.choice(["small", "small", "ends", "all"]):
        case "small":
            return rng.integers(max(low, -5), 6, shape)
        case "ends":
            ends = np.array([low, low + 1, high, high - 1, 0, 1, max(low, -1)], dtype=limits.dtype)
            return rng.choice(ends, shape)
    return rng.integers(low, high, shape, dtype=limits.dtype, endpoint=True)
