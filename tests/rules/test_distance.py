"""Squared distances as matrix products."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.ir.ops import Dot, Map
from tests.rules.proving import fires, optimized, saturated

ARRAYS = "a: i k   b: j k   s: i k   n: int32 i k   o: int32 j k   z: complex64 i k   y: complex64 j k"


@pytest.mark.parametrize(
    "expression",
    [
        "sum((a[:, None] - b) ** 2, -1)",
        "sum((a - b[:, None]) ** 2, -1)",
        "sum(square(a[:, None] - b), -1)",
        "sqrt(sum((a[:, None] - b) ** 2, -1))",
        "sum((2 * a[:, None] - exp(b)) ** 2, -1)",
        "sum(exp(-sum((a[:, None] - b) ** 2, -1)), 1)",
        # one coordinate of many points, all coordinates of two sets of vectors
        "sum((a[:, None, :2] - b[:, :2]) ** 2, -1)",
    ],
)
def test_a_distance_between_points_of_two_sets(expression: str) -> None:
    assert fires("squared-distance", expression, ARRAYS)


@pytest.mark.parametrize(
    "expression",
    [
        # of the same set, number by number; of a set and one point; of a set and the origin
        "sum((a - s) ** 2, -1)",
        "sum((a - b[0]) ** 2, -1)",
        "sum((a - 1) ** 2, -1)",
        # nothing is summed, or not squares, or not differences
        "(a[:, None] - b) ** 2",
        "sum((a[:, None] - b) ** 3, -1)",
        "sum(abs(a[:, None] - b), -1)",
        "sum((a[:, None] + b) ** 2, -1)",
        "max((a[:, None] - b) ** 2, -1)",
        # summed over the points of one set as well
        "sum((a[:, None] - b) ** 2, (1, 2))",
        # of integers, which are subtracted exactly
        "sum((n[:, None] - o) ** 2, -1)",
    ],
)
def test_what_is_no_such_distance(expression: str) -> None:
    assert not fires("squared-distance", expression, ARRAYS)


def test_the_distance_is_a_product_and_not_negative() -> None:
    graph = saturated(("sum((a[:, None] - b) ** 2, -1)",), ARRAYS, "squared-distance")
    nodes = graph.saturation.graph.classes[graph.classes()[0]].nodes
    assert {node.op.name for node in nodes if isinstance(node.op, Map)} == {"max"}
    assert any(isinstance(n.op, Dot) for c in graph.saturation.graph.classes for n in c.nodes)


def test_complex_numbers_are_not_clamped() -> None:
    assert not fires("squared-distance", "sum((z[:, None] - y) ** 2, -1)", ARRAYS)


def test_it_is_used_where_the_caller_allows_cancellation() -> None:
    expression, arrays = "exp(-sum((a[:, None] - b) ** 2, -1)).sum(1)", "a: 211 32   b: 199 32"
    plan = optimized(expression, arrays, 600_000, "cancels")
    assert "squared-distance" in plan.rules_fired
    exact = optimized(expression, arrays, 600_000, "reassociates")
    assert "squared-distance" not in exact.rules_fired


def test_points_far_from_the_origin_keep_their_distances() -> None:
    rng = np.random.default_rng(0)
    a, b = (1000 + rng.normal(size=(n, 32)).astype(np.float32) for n in (211, 199))

    def distances(a: jnp.ndarray, b: jnp.ndarray) -> jnp.ndarray:
        return jnp.sqrt(jnp.sum((a[:, None] - b) ** 2, -1)).min(1)

    small = eqsat.optimize(distances, budget=600_000, accuracy="cancels")
    assert "squared-distance" in small.plan(a, b).rules_fired
    exact = np.sqrt(((a[:, None].astype(float) - b) ** 2).sum(-1)).min(1)
    np.testing.assert_allclose(small(a, b), exact, rtol=1e-5)


def test_the_distance_of_a_point_to_itself_has_a_root() -> None:
    a = np.random.default_rng(0).normal(size=(211, 32)).astype(np.float32)

    def distances(a: jnp.ndarray, b: jnp.ndarray) -> jnp.ndarray:
        return jnp.sqrt(jnp.sum((a[:, None] - b) ** 2, -1)).min(1)

    small = eqsat.optimize(distances, budget=600_000, accuracy="cancels")
    assert "squared-distance" in small.plan(a, a).rules_fired
    nearest = np.asarray(small(a, a))
    assert np.isfinite(nearest).all()
    assert nearest.max() < 0.01
