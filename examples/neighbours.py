"""Nearest neighbours of digits and words by brute force, under the L2, L1 and cosine distances.

    python -m examples.neighbours [--data DIR] [--small]

The program computes all distances, and then the smallest ones of each row. `accuracy="cancels"` allows
rules to rewrite the square of a difference as |x|² - 2xy + |y|², which turns L2 into a product of
matrices and may cost a digit.

What `python -m examples.neighbours --data DIR` prints, on two cores shared with other work:

    l2, images: 10 of 60,000 × 784 for 2,000 queries
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 389 GB                  budget 250 MB                 eqsat 236 MB
      time    plain does not fit            planning 14.7 s               eqsat 18.5 s
      error   plain –                       (float64 distances, 100 rows) eqsat 1.3e-06
      loops   database.0: 60000 in 60 chunks of 1000, combined by top_k
      rules   chunk-map 10, squared-distance 8, split-selection 2, chunk-reduction 1, chunk-contraction
              1

    l1, images: 10 of 60,000 × 784 for 200 queries
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 39 GB                   budget 250 MB                 eqsat 204 MB
      time    plain does not fit            planning 2.6 s                eqsat 5.8 s
      error   plain –                       (float64 distances, 100 rows) eqsat 9.3e-08
      loops   database.0: 60000 in 5000 chunks of 12, combined by top_k
      rules   chunk-map 4, split-selection 2, chunk-reduction 1

    cosine, images: 10 of 60,000 × 784 for 2,000 queries
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 869 MB                  budget 250 MB                 eqsat 212 MB
      time    plain 19.0 s                  planning 7.9 s                eqsat 15.8 s
      error   plain 2.6e-06                 (float64 distances, 100 rows) eqsat 1.3e-06
      loops   database.0: 60000 in 60 chunks of 1000, combined by top_k
      rules   chunk-map 3, chunk-contraction 2, split-selection 2, sum-of-product 1, negated-difference
              1

    l2, word vectors: 10 of 140,000 × 100 for 2,000 queries
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 117 GB                  budget 100 MB                 eqsat 96.3 MB
      time    plain does not fit            planning 8.4 s                eqsat 11.4 s
      error   plain –                       (float64 distances, 100 rows) eqsat 2.0e-07
      loops   queries.0: 2000 in 16 chunks of 125, combined by concatenation; database.0: 140000 in 10
              chunks of 14000, combined by top_k
      rules   chunk-map 16, squared-distance 3, chunk-reduction 2, split-selection 2, split-result 2,
              chunk-contraction 1

    l1, word vectors: 10 of 140,000 × 100 for 200 queries
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 11.7 GB                 budget 100 MB                 eqsat 72.3 MB
      time    plain does not fit            planning 2.3 s                eqsat 1.8 s
      error   plain –                       (float64 distances, 100 rows) eqsat 7.1e-08
      loops   queries.0: 200 in 2 chunks of 100, combined by concatenation; database.0: 140000 in 700
              chunks of 200, combined by top_k
      rules   chunk-map 6, split-selection 2, split-result 2, chunk-reduction 1

    cosine, word vectors: 10 of 140,000 × 100 for 2,000 queries
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 1.23 GB                 budget 100 MB                 eqsat 72 MB
      time    plain 21.0 s                  planning 6.7 s                eqsat 7.9 s
      error   plain 3.0e-07                 (float64 distances, 100 rows) eqsat 4.5e-07
      loops   database.0: 140000 in 16 chunks of 8750, combined by concatenation; queries.0: 2000 in 80
              chunks of 25, combined by concatenation
      rules   chunk-map 6, split-result 3, chunk-contraction 2, chunk-selection 2, sum-of-product 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from examples.comparison import Comparison, compare, in_double_precision
from examples.data import images, parse, word_vectors

Array = Any
REFERENCE_ROWS = 100


def l2(x: Array, y: Array) -> Array:
    """Returns squared Euclidean distances, from [n, d] and [m, d] to [n, m]."""
    return jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)


def l1(x: Array, y: Array) -> Array:
    return jnp.sum(jnp.abs(x[:, None, :] - y[None, :, :]), axis=-1)


def cosine(x: Array, y: Array) -> Array:
    x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    y = y / jnp.linalg.norm(y, axis=-1, keepdims=True)
    return 1 - x @ y.T


def neighbours(distance: Callable[[Array, Array], Array], queries: Array, database: Array) -> Any:
    """Returns the ten smallest distances of every query and their rows of the database, both [n, 10]."""
    smallest, rows = jax.lax.top_k(-distance(queries, database), 10)
    return -smallest, rows


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = parse(args, __doc__)
    digits, words = (
        ((2_000, 100, 20), (2_000, 100, 16)) if options.small else ((60_000, 2_000), (140_000, 2_000))
    )
    sets = {"images": images(options.data, *digits), "word vectors": word_vectors(options.data, *words)}
    budgets = {"images": "250MB", "word vectors": "100MB"}
    return [
        look_for(
            f"{distance.__name__}, {name}",
            distance,
            queries[:200] if distance is l1 else queries,  # L1 is slow, as it is no product of matrices
            database,
            0.5 if options.small else budgets[name],
        )
        for name, (database, queries) in sets.items()
        for distance in (l2, l1, cosine)
    ]


def look_for(
    title: str,
    distance: Callable[[Array, Array], Array],
    queries: Array,
    database: Array,
    budget: float | str,
) -> Comparison:
    function = partial(neighbours, distance)
    (m, d), n = database.shape, len(queries)
    return compare(
        f"{title}: 10 of {m:,} × {d} for {n:,} queries",
        function,
        queries,
        database,
        budget=budget,
        accuracy="cancels",
        reference=lambda queries, database: in_double_precision(function)(queries[:REFERENCE_ROWS], database)[
            0
        ],
        part=lambda result: result[0][:REFERENCE_ROWS],
        note=f"float64 distances, {REFERENCE_ROWS} rows",
    )


if __name__ == "__main__":
    main()
