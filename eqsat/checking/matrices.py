"""Matrices with properties: functions that draw them, and a test of whether an array has a property.

All functions work on stacks of matrices: the last two dimensions are rows and columns. Properties
without axes are about single numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = 1e-9


def matrices(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    properties: Iterable[str],
    condition: float = 1.0,
    lone: bool = False,
    whole: bool = False,
) -> Array:
    """Draws a stack of matrices with these properties, well-conditioned unless `condition` says otherwise.

    **Arguments:**

    - `shape`: that of the stack; the last two dimensions are rows and columns.
    - `properties`: names from `eqsat.ir.properties`, and what operations need. "regular" adds no property.
      "lower part" and "upper part" are triangles of a matrix whose other triangle is arbitrary, since a
      triangular solve does not read it. "symmetric part" is a positive definite matrix plus an arbitrary
      skew-symmetric one, which a Cholesky factorisation ignores.
    - `condition`: the approximate condition number, if it is larger than 1.
    - `lone`: whether the matrices are ill-conditioned in one direction only.
    - `whole`: whether the entries are small integers. Such matrices may be singular.
    """
    wanted = set(properties)
    if whole:
        return _whole(rng, shape, wanted)
    *_, rows, columns = shape
    spectrum = np.exp(rng.uniform(-0.5, 0.5, (*shape[:-2], min(rows, columns))))
    if condition > 1:
        spectrum = spectrum * spread(rng, spectrum.shape, condition, lone)
    if {"symmetric", "spd", "orthogonal"} & wanted and {"lower", "upper"} & wanted:
        wanted.add("diagonal")
    if {"lower", "upper"} <= wanted:
        wanted.add("diagonal")
    if "symmetric part" in wanted and not wanted & {
        "spd",
        "symmetric",
        "diagonal",
        "lower",
        "upper",
        "orthogonal",
    }:
        skew = rng.normal(size=shape)
        return np.asarray(_symmetric(rng, shape, spectrum, {"spd"}) + skew - np.swapaxes(skew, -1, -2))
    for part in ("lower", "upper"):
        if f"{part} part" in wanted and not wanted & {"lower", "upper", "diagonal", "spd", "orthogonal"}:
            other = {"lower": np.triu, "upper": np.tril}[part](
                rng.normal(size=shape), 1 if part == "lower" else -1
            )
            return np.asarray(_triangular(rng, shape, spectrum, {part}, condition) + other)
    if "diagonal" in wanted:
        return _diagonal(rng, spectrum, wanted)
    if "orthogonal" in wanted:
        return _orthogonal(rng, shape, wanted)
    if "spd" in wanted or "symmetric" in wanted:
        return _symmetric(rng, shape, spectrum, wanted)
    if "lower" in wanted or "upper" in wanted:
        return _triangular(rng, shape, spectrum, wanted, condition)
    left, right = _rotations(rng, (*shape[:-1], rows)), _rotations(rng, (*shape[:-2], columns, columns))
    found = np.einsum(
        "...ik,...k,...jk->...ij", left[..., : spectrum.shape[-1]], spectrum, right[..., : spectrum.shape[-1]]
    )
    if "positive" in wanted:
        return np.asarray(np.abs(found))
    return np.asarray(_with_zeros(rng, np.abs(found)) if "nonnegative" in wanted else found)


def spread(rng: np.random.Generator, shape: tuple[int, ...], condition: float, lone: bool = False) -> Array:
    """Draws positive numbers whose maximum is `condition` times their minimum, along the last dimension.

    The numbers form a geometric sequence in random order. If `lone`, all but one of them are 1: then
    numbers that are added to a matrix with this spectrum may hide how small that one is.
    """
    if not shape:
        return np.asarray(1 / condition)
    decay = np.geomspace(1.0, 1 / condition, shape[-1])
    if lone:
        decay = np.where(np.arange(shape[-1]) == 0, 1 / condition, 1.0)
    return np.asarray(rng.permuted(np.broadcast_to(decay, shape), axis=-1))


def in_shape(value: Array, wanted: set[str]) -> Array:
    """Makes matrices triangular, diagonal or symmetric again after their entries have changed."""
    if "lower" in wanted or "diagonal" in wanted:
        value = np.tril(value)
    if "upper" in wanted or "diagonal" in wanted:
        value = np.triu(value)
    if "symmetric" in wanted:
        value = np.where(np.tri(value.shape[-1], dtype=bool), value, np.swapaxes(value, -1, -2))
    return value


def _rotations(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draws matrices with orthonormal columns."""
    if 0 in shape:
        return np.zeros(shape)
    return np.asarray(np.linalg.qr(rng.normal(size=shape))[0])


def _diagonal(rng: np.random.Generator, spectrum: Array, wanted: set[str]) -> Array:
    signs = np.where(rng.random(spectrum.shape) < 0.5, -1.0, 1.0)
    entries = np.ones_like(spectrum) if "orthogonal" in wanted else spectrum
    if not {"spd", "nonnegative", "positive"} & wanted:
        entries = entries * signs
    return np.asarray(entries[..., None] * np.eye(spectrum.shape[-1]))


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...], wanted: set[str]) -> Array:
    if "symmetric" in wanted:
        vector = rng.normal(size=(*shape[:-1], 1))
        vector = vector / np.linalg.norm(vector, axis=-2, keepdims=True)
        return np.asarray(np.eye(shape[-1]) - 2 * vector * np.swapaxes(vector, -1, -2))
    if {"nonnegative", "positive"} & wanted:
        return np.broadcast_to(rng.permutation(np.eye(shape[-2], shape[-1])), shape).copy()
    return _rotations(rng, shape)


def _with_zeros(rng: np.random.Generator, value: Array) -> Array:
    """Sets some entries off the diagonal to 0, so that positive matrices become merely nonnegative."""
    rows, columns = value.shape[-2:]
    kept = (rng.random(value.shape) < 0.7) | (np.eye(rows, columns) == 1)
    return np.where(kept, value, 0.0)


def _symmetric(rng: np.random.Generator, shape: tuple[int, ...], spectrum: Array, wanted: set[str]) -> Array:
    signs = {"nonnegative", "positive"} & wanted
    if signs and "spd" in wanted:
        factor = np.abs(rng.normal(size=shape))
        return np.asarray(factor @ np.swapaxes(factor, -1, -2) / shape[-1] + 0.5 * np.eye(shape[-1]))
    if signs:
        # Entries of one sign say nothing about eigenvalues, so a matrix with both signs is shifted.
        found = _symmetric(rng, shape, spectrum, wanted - signs)
        lowest = np.min(found, axis=(-2, -1), keepdims=True, initial=0.0)
        return np.asarray(found - lowest + (0.1 if "positive" in signs else 0.0))
    rotation = _rotations(rng, shape)
    if "spd" not in wanted:
        spectrum = spectrum * np.where(rng.random(spectrum.shape) < 0.5, -1.0, 1.0)
    found = np.einsum("...ik,...k,...jk->...ij", rotation, spectrum, rotation)
    return np.asarray((found + np.swapaxes(found, -1, -2)) / 2)


def _triangular(
    rng: np.random.Generator, shape: tuple[int, ...], spectrum: Array, wanted: set[str], condition: float
) -> Array:
    if condition > 1:
        # The Cholesky factor of an ill-conditioned positive definite matrix, as in a Gaussian process.
        found = np.linalg.cholesky(_symmetric(rng, shape, spectrum**2, {"spd"}))
    else:
        signs = np.where(rng.random(spectrum.shape) < 0.5, -1.0, 1.0)
        diagonal = (spectrum * signs)[..., None] * np.eye(shape[-1])
        found = np.tril(rng.normal(size=shape) * 0.4, -1) + diagonal
    if {"nonnegative", "positive"} & wanted:
        found = np.abs(found)
    return np.asarray(np.swapaxes(found, -1, -2) if "upper" in wanted else found)


def _whole(rng: np.random.Generator, shape: tuple[int, ...], wanted: set[str]) -> Array:
    """Draws matrices of small integers."""
    found = rng.integers(-3, 4, shape).astype(float)
    if "orthogonal" in wanted:
        signs = 1.0 if wanted & {"nonnegative", "positive", "spd"} else rng.choice([-1.0, 1.0], shape[-1])
        found = np.broadcast_to(np.eye(shape[-2], shape[-1]) * signs, shape).copy()
    if wanted & {"nonnegative", "positive"}:
        found = np.abs(found)
    if wanted & {"diagonal"}:
        found = found * np.eye(shape[-2], shape[-1])
    if "lower" in wanted:
        found = np.tril(found)
    if "upper" in wanted:
        found = np.triu(found)
    transposed = np.swapaxes(found, -1, -2)
    if "spd" in wanted and "orthogonal" not in wanted:
        triangular = wanted & {"diagonal", "lower", "upper"}
        entries = np.abs(found) * np.eye(shape[-1]) if triangular else found @ transposed
        return np.asarray(entries + np.eye(shape[-1]))
    if "symmetric" in wanted and "orthogonal" not in wanted:
        if wanted & {"lower", "upper"}:
            return np.asarray(found * np.eye(shape[-1]))
        return np.asarray(found + transposed)
    return np.asarray(found)


def has_property(value: Array, name: str) -> bool:
    """Returns whether matrices (the last two dimensions), or numbers, have a property, up to rounding.

    An empty array has every property.
    """
    if value.size == 0:
        return True
    if value.dtype.kind not in "fc":
        value = value.astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(value))))
    if name == "nonnegative":
        return bool(np.all(value >= -TOLERANCE * scale))
    if name == "positive":
        return bool(np.all(value > 0))
    if name == "nonzero":
        return bool(np.all(value != 0))

    def close(first: Array, second: Array) -> bool:
        return bool(np.all(np.abs(first - second) <= TOLERANCE * scale))

    rows, columns = value.shape[-2:]
    transposed = np.swapaxes(value, -1, -2)
    if name == "orthogonal":
        return close(
            transposed @ value, np.broadcast_to(np.eye(columns), (*value.shape[:-2], columns, columns))
        )
    if name in ("lower", "upper"):
        return close(value, np.tril(value) if name == "lower" else np.triu(value))
    if rows != columns:
        return False
    if name == "diagonal":
        return close(value, value * np.eye(rows))
    symmetric = close(value, transposed)
    if name == "symmetric" or not symmetric:
        return symmetric
    eigenvalues = np.linalg.eigvalsh((value + transposed) / 2)
    return bool(np.all(eigenvalues > 0))
