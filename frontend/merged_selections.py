"""The best entries of several axes that a reshape has merged, from the best along one after the other.

    argmax over (i, j) of a  =  n i + argmax over j of a[i],    i = argmax over i of (max over j of a[i])

Of equal entries, the first is the best, along each axis and so of all; NaN is best wherever it is.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

Array = Any


def place_over_axes(kind: str, array: Array, first: int, count: int, dtype: str) -> Array:
    """Where the best entry is of `count` axes from `first` on, in row-major order.

    **Arguments:**

    - `kind`: "argmax" or "argmin".
    - `dtype`: that of the result, which counts all entries.
    """
    last = first + count - 1
    place = lax.argmax if kind == "argmax" else lax.argmin
    inside = place(array, last, jnp.dtype(dtype))
    if count == 1:
        return inside
    best = jnp.max(array, axis=last) if kind == "argmax" else jnp.min(array, axis=last)
    outer = place_over_axes(kind, best, first, count - 1, dtype)
    flat = inside.reshape(*inside.shape[:first], -1, *inside.shape[last:])
    of_best = jnp.take_along_axis(flat, jnp.expand_dims(outer, first), axis=first, mode="clip")
    return outer * jnp.asarray(array.shape[last], dtype) + jnp.squeeze(of_best, first)


def top_over_axes(array: Array, k: int, first: int, dtype: str) -> tuple[Array, Array]:
    """The k best entries of all axes from `first` on, and where they are in row-major order."""
    length = array.shape[-1]
    values, inside = lax.top_k(array, min(k, length))
    if array.ndim == first + 1:
        return values, inside.astype(dtype)
    rows = values.shape[:first]
    best, at = lax.top_k(values.reshape(*rows, -1), k)
    row = at // values.shape[-1]
    column = jnp.take_along_axis(inside.reshape(*rows, -1), at, axis=-1, mode="clip")
    return best, row.astype(dtype) * jnp.asarray(length, dtype) + column.astype(dtype)
