"""Attention, split along keys in one pass, and its gradient.

    python -m benchmarks.beyond.attention [--quick] [--runs N]

The programs written by hand are `lax.map` over queries with `jax.checkpoint`, as is usual in JAX, and tiles
over queries and keys with the online softmax and a gradient of their own (Dao, "FlashAttention-2", 2023).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.beyond.table import Case, main
from examples.comparison import in_double_precision
from examples.programs import attention, attention_data

Array = Any
ROWS = 100


def gradient(q: Array, k: Array, v: Array, cotangent: Array) -> Array:
    """Returns the cotangents of q, k and v for a cotangent of the result."""
    return jax.vjp(attention, q, k, v)[1](cotangent)


def mapped(q: Array, k: Array, v: Array, length: int) -> Array:
    """Computes attention by `lax.map` over chunks of the queries, which the gradient recomputes."""
    chunk = jax.checkpoint(lambda rows: attention(rows, k, v))
    return lax.map(chunk, q.reshape(-1, length, q.shape[-1])).reshape(len(q), -1)


def mapped_gradient(q: Array, k: Array, v: Array, cotangent: Array, length: int) -> Array:
    return jax.vjp(partial(mapped, length=length), q, k, v)[1](cotangent)


# Tiles over queries and keys, by hand.


def _tiles(x: Array, length: int) -> Array:
    return x.reshape(-1, length, x.shape[-1])


def _statistics(rows: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    """Returns the result for some queries, and the logarithms of their sums of exponentials, in one pass."""
    scale = 1 / math.sqrt(rows.shape[-1])

    def turn(carry: Any, tile: Any) -> Any:
        maximum, total, result = carry
        scores = rows @ tile[0].T * scale
        larger = jnp.maximum(maximum, scores.max(axis=1))
        weights, rescale = jnp.exp(scores - larger[:, None]), jnp.exp(maximum - larger)
        total = total * rescale + weights.sum(axis=1)
        return (larger, total, result * rescale[:, None] + weights @ tile[1]), None

    start = (jnp.full(len(rows), -jnp.inf), jnp.zeros(len(rows)), jnp.zeros((len(rows), values.shape[-1])))
    (maximum, total, result), _ = lax.scan(turn, start, (keys, values))
    return result / total[:, None], maximum + jnp.log(total)


def tiled(q: Array, k: Array, v: Array, length: int) -> Array:
    keys, values = _tiles(k, length), _tiles(v, length)
    return lax.map(lambda rows: _statistics(rows, keys, values)[0], _tiles(q, length)).reshape(len(q), -1)


def tiled_gradient(q: Array, k: Array, v: Array, cotangent: Array, length: int) -> Array:
    keys, values = _tiles(k, length), _tiles(v, length)
    scale = 1 / math.sqrt(q.shape[-1])

    def rows_turn(carry: Any, tile: Any) -> Any:
        rows, given = tile
        result, logarithms = _statistics(rows, keys, values)
        shift = jnp.sum(given * result, axis=1)

        def keys_turn(carry: Any, tile: Any) -> Any:
            at_rows = carry
            some_keys, some_values, at_keys, at_values = tile
            weights = jnp.exp(rows @ some_keys.T * scale - logarithms[:, None])
            at_scores = weights * (given @ some_values.T - shift[:, None]) * scale
            at_rows = at_rows + at_scores @ some_keys
            return at_rows, (at_keys + at_scores.T @ rows, at_values + weights.T @ given)

        at_rows, carry = lax.scan(keys_turn, jnp.zeros_like(rows), (keys, values, *carry))
        return carry, at_rows

    start = (jnp.zeros_like(keys), jnp.zeros_like(values))
    (at_keys, at_values), at_rows = lax.scan(rows_turn, start, (_tiles(q, length), _tiles(cotangent, length)))
    return at_rows.reshape(q.shape), at_keys.reshape(k.shape), at_values.reshape(v.shape)


def few_queries(keys: int) -> tuple[Array, ...]:
    q, k, v = attention_data(keys)
    return q[:16], k, v


def with_cotangent(positions: int) -> tuple[Array, ...]:
    return (*attention_data(positions), attention_data(positions, seed=1)[0])


def first(result: Array) -> Array:
    return result[:ROWS]


CASES = (
    Case(
        "attention, 8,192 positions",
        attention,
        lambda: attention_data(8_192),
        ("50MB", "10MB"),
        {
            "lax.map over 128 queries": partial(mapped, length=128),
            "tiles of 256 by hand": partial(tiled, length=256),
        },
        lambda q, k, v: in_double_precision(attention)(q[:ROWS], k, v),
        first,
    ),
    Case(
        "attention, 16 queries, 400,000 keys",
        attention,
        lambda: few_queries(400_000),
        ("206MB",),
    ),
    Case(
        "its gradient, 8,192 positions",
        gradient,
        lambda: with_cotangent(8_192),
        ("80MB", "20MB"),
        {
            "lax.map over 128 queries, jax.checkpoint": partial(mapped_gradient, length=128),
            "tiles of 256 by hand": partial(tiled_gradient, length=256),
        },
    ),
)

QUICK = (
    Case(
        "attention, 512 positions",
        attention,
        lambda: attention_data(512),
        ("700kB",),
        {
            "lax.map over 64 queries": partial(mapped, length=64),
            "tiles of 64 by hand": partial(tiled, length=64),
        },
    ),
    Case(
        "its gradient, 512 positions",
        gradient,
        lambda: with_cotangent(512),
        ("2MB",),
        {
            "lax.map over 64 queries, jax.checkpoint": partial(mapped_gradient, length=64),
            "tiles of 64 by hand": partial(tiled_gradient, length=64),
        },
    ),
)

if __name__ == "__main__":
    main("attention", __doc__.splitlines()[0], CASES, QUICK)
