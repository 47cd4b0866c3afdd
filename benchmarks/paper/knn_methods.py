"""Methods to find nearest neighbours: plain JAX, eqsat, a loop written by hand, and common libraries.

Each is prepared for one set of points, and then returns for queries the indices of the nearest points,
nearest first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import eqsat

K = 10
"""The number of neighbours."""

BLOCK = 8 << 20
"""The bytes of distances that an iteration of the loop by hand computes."""

Array = Any
Search = Callable[[Array], Array]
"""A prepared method, from queries [m, d] to indices [m, K]."""


# The distances as one writes them, of all queries from all points.


def euclidean(queries: Array, points: Array) -> Array:
    """Returns the indices of the nearest points, by squared distances written as a product."""
    squares = jnp.sum(queries**2, 1)[:, None] + jnp.sum(points**2, 1)
    return lax.top_k(2 * queries @ points.T - squares, K)[1]


def manhattan(queries: Array, points: Array) -> Array:
    """Returns the indices of the nearest points, by sums of absolute differences."""
    return lax.top_k(-jnp.sum(jnp.abs(queries[:, None] - points), -1), K)[1]


def cosine(queries: Array, points: Array) -> Array:
    """Returns the indices of the nearest points, by the cosines of angles."""
    return lax.top_k(_unit(queries, jnp) @ _unit(points, jnp).T, K)[1]


FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "L2": euclidean,
    "L1": manhattan,
    "cosine": cosine,
}


def _unit(rows: Array, library: Any) -> Array:
    return rows / library.linalg.norm(rows, axis=1, keepdims=True)


# JAX


def by_plain(metric: str, points: Array, budget: str) -> Search:
    function = jax.jit(FUNCTIONS[metric])
    return lambda queries: function(queries, points)


def by_eqsat(metric: str, points: Array, budget: str) -> Search:
    function = eqsat.optimize(FUNCTIONS[metric], budget=budget)
    return lambda queries: function(queries, points)


def chunked(metric: str, points: Array) -> Callable[[Array, Array], Array]:
    """Returns a loop by `lax.map` over chunks of queries with 8 MiB of distances or differences."""
    width = points.shape[1] if metric == "L1" and points.shape[1] > 32 else 1
    length = max(BLOCK // (4 * len(points) * width), 1)
    function = FUNCTIONS[metric]

    def search(queries: Array, points: Array) -> Array:
        return lax.map(lambda query: function(query[None], points)[0], queries, batch_size=length)

    return search


def by_hand(metric: str, points: Array, budget: str) -> Search:
    function = jax.jit(chunked(metric, points))
    return lambda queries: function(queries, points)


# Libraries: the extra `peers`.


def by_keops(metric: str, points: Array, budget: str) -> Search:
    from pykeops.numpy import LazyTensor

    points = np.ascontiguousarray(_unit(points, np) if metric == "cosine" else points)

    def search(queries: Array) -> Array:
        queries = np.ascontiguousarray(_unit(queries, np) if metric == "cosine" else queries)
        one, other = LazyTensor(queries[:, None, :]), LazyTensor(points[None, :, :])
        if metric == "cosine":
            distances = -(one | other)
        else:
            distances = ((one - other) ** 2).sum(-1) if metric == "L2" else (one - other).abs().sum(-1)
        return distances.argKmin(K, dim=1)

    return search


def by_sklearn(metric: str, points: Array, budget: str) -> Search:
    from sklearn.neighbors import NearestNeighbors

    name = {"L2": "euclidean", "L1": "manhattan", "cosine": "cosine"}[metric]
    fitted = NearestNeighbors(n_neighbors=K, algorithm="brute", metric=name).fit(points)
    return lambda queries: fitted.kneighbors(queries, return_distance=False)


def by_faiss(metric: str, points: Array, budget: str) -> Search:
    import faiss

    kind = {"L2": faiss.METRIC_L2, "L1": faiss.METRIC_L1, "cosine": faiss.METRIC_INNER_PRODUCT}[metric]
    index = faiss.IndexFlat(points.shape[1], kind)
    index.add(_unit(points, np) if metric == "cosine" else points)
    return lambda queries: index.search(_unit(queries, np) if metric == "cosine" else queries, K)[1]


METHODS: dict[str, Callable[[str, Array, str], Search]] = {
    "plain": by_plain,
    "eqsat": by_eqsat,
    "by hand": by_hand,
    "KeOps": by_keops,
    "scikit-learn": by_sklearn,
    "faiss": by_faiss,
}

PEERS = ("KeOps", "scikit-learn", "faiss")


def distances(metric: str, queries: Array, points: Array, indices: Array) -> Array:
    """Returns the distances of queries from their neighbours, [m, K] in float64."""
    queries, found = np.asarray(queries, np.float64), np.asarray(points, np.float64)[np.asarray(indices)]
    if metric == "cosine":
        return 1 - np.einsum(
            "md,mkd->mk", _unit(queries, np), found / np.linalg.norm(found, axis=-1)[..., None]
        )
    differences = found - queries[:, None]
    return np.sum(differences**2 if metric == "L2" else np.abs(differences), axis=-1)
