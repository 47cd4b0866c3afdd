"""Tiles over two axes, where even a few whole rows are too large.

    python -m benchmarks.beyond.tiles [--quick] [--runs N]

The program is a contrastive loss: for every query, it takes the likelihood of its own key among all keys. The
arguments are 10 MB, and the budget leaves half a megabyte beside them, which is six rows of scores. The
programs written by hand are `lax.map` over as few queries, and tiles.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.beyond.table import Case, main

Array = Any


def contrastive(queries: Array, keys: Array) -> Array:
    likelihoods = jax.nn.logsumexp(queries @ keys.T, axis=1)
    return jnp.mean(likelihoods - jnp.sum(queries * keys, axis=1))


def by_rows(queries: Array, keys: Array, length: int) -> Array:
    def rows(pair: Any) -> Array:
        some, own = pair
        return jnp.sum(jax.nn.logsumexp(some @ keys.T, axis=1) - jnp.sum(some * own, axis=1))

    pairs = [x.reshape(-1, length, x.shape[1]) for x in (queries, keys)]
    return jnp.sum(lax.map(rows, tuple(pairs))) / len(queries)


def by_tiles(queries: Array, keys: Array, length: int) -> Array:
    columns = keys.reshape(-1, length, keys.shape[1])

    def rows(pair: Any) -> Array:
        some, own = pair

        def turn(carry: Any, tile: Array) -> Any:
            maximum, total = carry
            scores = some @ tile.T
            larger = jnp.maximum(maximum, scores.max(axis=1))
            rescaled = total * jnp.exp(maximum - larger)
            return (larger, rescaled + jnp.exp(scores - larger[:, None]).sum(axis=1)), None

        start = (jnp.full(length, -jnp.inf), jnp.zeros(length))
        (maximum, total), _ = lax.scan(turn, start, columns)
        return jnp.sum(maximum + jnp.log(total) - jnp.sum(some * own, axis=1))

    return jnp.sum(lax.map(rows, (queries.reshape(columns.shape), columns))) / len(queries)


def data(count: int) -> tuple[Array, Array]:
    return tuple(np.random.default_rng(0).normal(size=(2, count, 64)).astype(np.float32) / 4)


CASES = (
    Case(
        "contrastive loss of 20,000 pairs",
        contrastive,
        partial(data, 20_000),
        ("20MB", "10.8MB"),
        {
            "lax.map over 4 queries": partial(by_rows, length=4),
            "tiles of 250 by hand": partial(by_tiles, length=250),
        },
    ),
)
QUICK = (
    Case(
        "contrastive loss of 1,000 pairs",
        contrastive,
        partial(data, 1_000),
        ("550kB",),
        {"lax.map": partial(by_rows, length=4), "tiles": partial(by_tiles, length=50)},
    ),
)

if __name__ == "__main__":
    main("tiles", __doc__.splitlines()[0], CASES, QUICK)
