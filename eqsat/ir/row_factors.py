"""The triangular factor of a tall matrix, of which there is one chunk of rows at a time, as functions of JAX.

The factor R of a stack of matrices is that of the stack of their factors (Demmel, Grigori, Hoemmen and
Langou, "Communication-optimal parallel and sequential QR and LU factorizations", 2012): an orthogonal matrix
that acts on some rows changes nothing but the signs of rows of R. By Householder's reflections, as in LAPACK
and JAX, these signs depend on the first rows of the matrix, as many as it has columns, and on the products of
the columns of all other rows. So if the first rows are kept as they are, above the factor of all others, the
factor of both has the signs that the factor of the whole matrix has. They need not be found from its
orthogonal factor (as by Ballard, Demmel, Grigori, Jacquelin, Nguyen and Solomonik, "Reconstructing
Householder vectors from TSQR", 2014). Nothing is inverted: where columns are zero, or depend on one another,
R is still the factor of a matrix that is off by rounding.

Q^T b is found with R: what reflects rows of the matrix reflects those of b. All products with the same Q that
one loop computes, and R, come from the same reflections. The factors of chunks are merged like the digits of
a binary counter, so that each is rounded few times: merged one after another, they would be rounded as often
as there are chunks, which costs a digit for some hundreds of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp
from jax import lax

NAMES = ("reflected", "finite_part", "finite_factors", "first_of", "add_rows", "factors")

MOST_LEVELS = 6
"""How many factors wait to be merged at most: of 1 chunk, of 2, of 4 and so on; the last of all others."""

FUNCTIONS = """def reflected(rows, *columns):
    # The triangular factor of rows, and what the same reflections make of other columns.
    reflections, scales = jnp.linalg.qr(rows, mode="raw")
    reflections, kept = jnp.swapaxes(reflections, -1, -2), rows.shape[-1]
    turned = [lax.linalg.ormqr(reflections, scales, c, transpose=True)[..., :kept, :] for c in columns]
    return jnp.triu(reflections[..., :kept, :]), *turned


def finite_part(parts, lost, end):
    # A column that is not finite would spoil others. It is noted as lost, and the rest goes on without it.
    known = (jnp.arange(parts[0].shape[-2]) < end[..., None])[..., None]
    whole = [jnp.isfinite(part) for part in parts]
    lost = [old | jnp.any(known & ~fine, axis=-2) for old, fine in zip(lost, whole)]
    return [jnp.where(known & fine, part, 0) for part, fine in zip(parts, whole)], lost


def finite_factors(stacks, lost, end):
    # Where the length of a column overflows, the rows from its place on are unknown.
    parts = reflected(*stacks)
    end = jnp.minimum(end, first_of(~jnp.all(jnp.isfinite(parts[0]), axis=-2)))
    return *finite_part(parts, lost, end), end


def first_of(marks):
    return jnp.min(jnp.where(marks, jnp.arange(marks.shape[-1]), marks.shape[-1]), axis=-1)


def add_rows(state, parts, start, count):
    # The first rows are kept, as many as there are columns. Factors stand for chunks of all others.
    first, factors, lost, end = state
    parts = [columns_in_order(part) for part in parts]
    parts, lost = finite_part(parts, lost, jnp.full_like(end, parts[0].shape[-2]))
    height, width = parts[0].shape[-2:]
    place = jnp.arange(width) - start
    here = ((place >= 0) & (place < height))[:, None]
    near = [jnp.take(part, jnp.clip(place, 0, height - 1), axis=-2) for part in parts]
    first = [jnp.where(here, row, old) for row, old in zip(near, first)]
    # Rows of zeros change no factor.
    beyond = (jnp.arange(height) + start >= width)[:, None]
    stacks = [jnp.concatenate((f[0], jnp.where(beyond, part, 0)), axis=-2) for f, part in zip(factors, parts)]
    levels = factors[0].shape[0]

    def occupied(merged):
        level = merged[0]
        return (level < levels) & (((count >> level) & 1 == 1) | (level == levels - 1))

    def merge(merged):
        level, (merged, *unknown) = merged
        stacks = [jnp.concatenate((f[level], m), axis=-2) for f, m in zip(factors, merged)]
        return level + 1, finite_factors(stacks, *unknown)

    merged = finite_factors(stacks, lost, end)
    level, (merged, lost, end) = lax.while_loop(occupied, merge, (count & 1, merged))
    level = jnp.minimum(level, levels - 1)
    below = jnp.arange(levels) < level
    factors = [
        jnp.where(jnp.expand_dims(below, tuple(range(1, f.ndim))), 0, f).at[level].set(m)
        for f, m in zip(factors, merged)
    ]
    return first, factors, lost, end


def factors(state):
    first, factors, lost, end = state
    stacks = [jnp.concatenate((rows, *levels), axis=-2) for rows, levels in zip(first, factors)]
    parts, lost, end = finite_factors(stacks, lost, end)
    end = jnp.minimum(end, first_of(lost[0]))
    unknown = (jnp.arange(parts[0].shape[-2]) >= end[..., None])[..., None]
    filled = [jnp.where(unknown | mark[..., None, :], jnp.nan, part) for mark, part in zip(lost, parts)]
    return jnp.triu(filled[0]), *filled[1:]
"""
"""The functions of the emitted program: chunks of rows are taken into a state, of which factors are made.

A state has three lists, with an entry for each operand: the first rows, a stack of factors, and which columns
are lost; and the row from which on nothing is known. `count` is the chunk's number.
"""


@cache
def loaded() -> dict[str, Callable[..., Any]]:
    """These functions by name, for a chunk that is an array by itself."""
    found: dict[str, Any] = {"jnp": jnp, "lax": lax, "columns_in_order": lambda rows: rows}
    exec(FUNCTIONS, found)
    return {name: found[name] for name in NAMES}
