"""The ten nearest of many points, beside libraries that also compare all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.loops import lengths, loops
from benchmarks.paper.knn_methods import FUNCTIONS, METHODS, PEERS, K, Search, distances
from benchmarks.speed.case import Case, Peer
from examples.data import images

Array = np.ndarray

GROUP = "neighbours"
CHECKED = 5
"""The number of queries that are compared with a search in float64."""

FUSED = 32
"""The longest sum whose operand XLA computes on the fly."""

MOST_GENERATED = 100
"""The most coordinates for KeOps, which unrolls sums over them. With more, compiling takes minutes."""


def data(n: int, width: int, queries: int) -> tuple[Array, Array]:
    points, looked_for = images(None, n, queries, width)
    return looked_for, points


def peer(name: str, metric: str) -> Peer:
    def prepared(queries: Any, points: Any) -> Any:
        search: Search = METHODS[name](metric, np.asarray(points), "")
        return lambda queries, points: search(np.asarray(queries))

    return prepared


def found(metric: str, indices: Any, arguments: tuple[Any, ...]) -> Array:
    """Returns the distances of the neighbours that were found for the first queries."""
    queries, points = map(np.asarray, arguments)
    return distances(metric, queries[:CHECKED], points, np.asarray(indices)[:CHECKED])


def nearest(metric: str, queries: Any, points: Any) -> Array:
    """Returns the distances of the nearest points from the first queries, by brute force in float64."""
    queries, points = np.asarray(queries)[:CHECKED], np.asarray(points)
    everything = np.arange(len(points))[None]
    each = [distances(metric, query[None], points, everything)[0] for query in queries]
    return np.sort(each, axis=1)[:, :K]


def case(metric: str, n: int, width: int, queries: int) -> Case:
    row = 4 * n * (width if metric == "L1" and width > FUSED else 1)
    chunks = lengths(queries // 10, row)
    names = [name for name in PEERS if name != "KeOps" or width <= MOST_GENERATED]
    return Case(
        GROUP,
        f"{metric}: {n:,} points, {queries:,} queries, d = {width}",
        FUNCTIONS[metric],
        partial(data, n, width, queries),
        loops({"": FUNCTIONS[metric]}, (0,), chunks, ("scan", "in place")),
        lambda arguments: (arguments[0][: queries // 10], arguments[1]),
        {name: peer(name, metric) for name in names},
        partial(found, metric),
        partial(nearest, metric),
    )


def cases(quick: bool) -> Iterator[Case]:
    if quick:
        yield case("L2", 100_000, 3, 200)
        yield case("cosine", 10_000, 100, 1_000)
        return
    yield from (case("L2", n, width, 1_000) for n in (10_000, 100_000) for width in (3, 10, 100, 784))
    yield from (case("L2", n, width, 10_000) for n in (10_000, 100_000) for width in (3, 100))
    yield from (case("L2", 1_000_000, width, 1_000) for width in (3, 10, 100))
    yield from (case("L1", 10_000, width, 1_000) for width in (3, 10, 100))
    yield case("L1", 10_000, 784, 100)
    yield from (case("L1", 100_000, width, queries) for width, queries in ((3, 1_000), (100, 100)))
    yield from (case("cosine", n, width, 1_000) for n in (10_000, 100_000) for width in (10, 100, 784))
