"""Distances: as matrix products, in all spellings, weighted, scaled, and between points that are trouble."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.ir.ops import Dot, Map
from eqsat.rulesets.files import shipped_files
from tests.rules.proving import fires, optimized, proves, saturated

ARRAYS = (
    "a: i k   b: j k   s: i k   n: int32 i k   o: int32 j k   z: complex64 i k   y: complex64 j k"
    "   t: k   w: k   c:   d: i   e: j   q: l i k   r: l j k"
)


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
        # of several sets at once
        "sum((q[:, :, None] - r[:, None]) ** 2, -1)",
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


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ("weighted-squared-distance", "sum(w * (a[:, None] - b) ** 2, -1)"),
        ("weighted-squared-distance", "sum((a[:, None] - b) ** 2 * abs(w), -1)"),
        ("divided-squares", "sum((a[:, None] - b) ** 2 / w, -1)"),
        ("weights-of-squares", "(a[:, None] - b) ** 2 @ w"),
        ("fourth-power-distance", "sum((a[:, None] - b) ** 4, -1)"),
        ("contraction-with-itself", "einsum('ijk,ijk->ij', a[:, None] - b, a[:, None] - b)"),
        ("contraction-with-itself", "einsum('ik,ik->i', a, a)"),
        ("fourth-power-of-root", "sqrt(sum((a[:, None] - b) ** 2, -1)) ** 4"),
        ("scale-points", "(a[:, None] - b) * w"),
        ("scale-points", "sum((2 * (a[:, None] - b)) ** 2, -1)"),
        ("divide-points", "sum(((a[:, None] - b) / w) ** 2, -1)"),
        ("common-shift", "(a + t)[:, None] - (t + b)"),
        ("common-negative-shift", "(a - t)[:, None] - (b - t)"),
        ("scale-out-of-squares", "sum((c * a) ** 2, -1)"),
        ("scale-out-of-squares", "sum((d[:, None] * a) ** 2, -1)"),
        ("divisor-out-of-squares", "sum((a / c) ** 2, -1)"),
        ("scale-out-of-squared-distance", "sum(((c * a)[:, None] - c * b) ** 2, -1)"),
        ("divisor-out-of-squared-distance", "sum(((a / c)[:, None] - b / c) ** 2, -1)"),
        ("scale-out-of-city-block", "sum(abs(c * a), -1)"),
        ("divisor-out-of-city-block", "sum(abs(a / c), -1)"),
        ("scale-out-of-city-block-distance", "linalg.norm((c * a)[:, None] - c * b, ord=1, axis=-1)"),
        ("divisor-out-of-city-block-distance", "sum(abs((a / c)[:, None] - b / c), -1)"),
        ("normalise-first", "(a @ b.T) / (linalg.norm(a, axis=1)[:, None] * linalg.norm(b, axis=1))"),
    ],
)
def test_it_is_about(rule: str, expression: str) -> None:
    assert fires(rule, expression, ARRAYS, "nonnegative-square nonnegative-sum product-with-itself")


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        # weights of pairs, of points, of none; of points of one set
        ("weighted-squared-distance", "sum(c * (a[:, None] - b) ** 2, -1)"),
        ("weighted-squared-distance", "sum(d[:, None, None] * (a[:, None] - b) ** 2, -1)"),
        ("weighted-squared-distance", "sum(w * (a - s) ** 2, -1)"),
        ("divided-squares", "sum((a - s) ** 2 / w, -1)"),
        ("weights-of-squares", "(a - s) ** 2 @ w"),
        ("fourth-power-distance", "sum((a - s) ** 4, -1)"),
        ("fourth-power-distance", "sum((a[:, None] - b) ** 6, -1)"),
        ("contraction-with-itself", "a @ a.T"),
        ("fourth-power-of-root", "sqrt(a) ** 4"),
        ("scale-points", "(a - s) * w"),
        ("scale-points", "(a[:, None] - b) * d[:, None, None]"),
        ("divide-points", "(a - s) / w"),
        ("divide-points", "w / (a[:, None] - b)"),
        ("common-shift", "(a + t)[:, None] - (w + b)"),
        ("common-shift", "(a + t)[:, None] - (t - b)"),
        ("common-negative-shift", "(a - t)[:, None] - (t - b)"),
        ("scale-out-of-squares", "sum((w * a) ** 2, -1)"),
        ("divisor-out-of-squares", "sum((a / w) ** 2, -1)"),
        ("divisor-out-of-squares", "sum((c / a) ** 2, -1)"),
        ("scale-out-of-squared-distance", "sum(((w * a)[:, None] - w * b) ** 2, -1)"),
        ("scale-out-of-squared-distance", "sum(((c * a)[:, None] - d[0] * b) ** 2, -1)"),
        ("divisor-out-of-squared-distance", "sum(((a / w)[:, None] - b / w) ** 2, -1)"),
        ("scale-out-of-city-block", "sum(abs(w * a), -1)"),
        ("scale-out-of-city-block", "sum(c * a, -1)"),
        ("divisor-out-of-city-block", "sum(abs(a / w), -1)"),
        ("scale-out-of-city-block-distance", "sum(abs((w * a)[:, None] - w * b), -1)"),
        ("divisor-out-of-city-block-distance", "sum(abs((a / w)[:, None] - b / w), -1)"),
        # a divisor of pairs; fewer pairs than numbers in a point
        ("normalise-first", "(a @ b.T) / exp(d[:, None] + e)"),
        ("normalise-first", "(a[:2] @ b[:2].T) / (d[:2, None] * e[:2])"),
    ],
)
def test_it_is_not_about(rule: str, expression: str) -> None:
    assert not fires(rule, expression, ARRAYS)


ALGEBRA = (
    "product-with-itself square-of-absolute-value square-of-negation absolute-value-of-negation"
    " add-negation power-two square-of-root nonnegative-square nonnegative-sum"
)


@pytest.mark.parametrize(
    ("rules", "expression"),
    [
        ("", "sum((b - a[:, None]) ** 2, -1).astype(float32)"),
        (ALGEBRA, "linalg.norm(a[:, None] - b, axis=-1) ** 2"),
        (ALGEBRA, "sum(abs(a[:, None] - b) ** 2, -1)"),
        (ALGEBRA, "sum((a[:, None] + -b) ** 2, -1)"),
        (ALGEBRA, "sum((-(a[:, None] - b)) ** 2, -1)"),
        (ALGEBRA, "sum((a[:, None] - b) ** 2.0, -1)"),
        (ALGEBRA, "sum((a[:, None] - b) * (a[:, None] - b), -1)"),
        (f"{ALGEBRA} contraction-with-itself", "vecdot(a[:, None] - b, a[:, None] - b)"),
        ("scale-points", "sum(((a[:, None] - b) * w) ** 2, -1)"),
        ("divide-points", "sum(((a[:, None] - b) / w) ** 2, -1)"),
        ("divide-points scale-points", "sum((3 * (a[:, None] - b) / w) ** 2, -1)"),
        ("common-shift", "sum(((a + t)[:, None] - (b + t)) ** 2, -1)"),
    ],
)
def test_every_spelling_of_a_squared_distance(rules: str, expression: str) -> None:
    assert fires("squared-distance", expression, ARRAYS, rules)


@pytest.mark.parametrize("expression", ["(a[:, None] - b) ** 2 @ w", "sum((a[:, None] - b) ** 2 / w, -1)"])
def test_every_spelling_of_a_weighted_distance(expression: str) -> None:
    rules = "weights-of-squares divided-squares"
    assert fires("weighted-squared-distance", expression, ARRAYS, rules)


@pytest.mark.parametrize(
    ("left", "right", "rules"),
    [
        # distances on several scales are the same distances
        (
            "sum(((c * a)[:, None] - c * b) ** 2, -1)",
            "c ** 2 * sum((a[:, None] - b) ** 2, -1)",
            "scale-out-of-squared-distance",
        ),
        (
            "sum(((a / c)[:, None] - b / c) ** 2, -1)",
            "sum((a[:, None] - b) ** 2, -1) / c ** 2",
            "divisor-out-of-squared-distance",
        ),
        (
            "sum(abs((c * a)[:, None] - c * b), -1)",
            "abs(c) * sum(abs(a[:, None] - b), -1)",
            "scale-out-of-city-block-distance",
        ),
        (
            "sum(abs((a / c)[:, None] - b / c), -1)",
            "sum(abs(a[:, None] - b), -1) / abs(c)",
            "divisor-out-of-city-block-distance",
        ),
        ("linalg.norm(c * a, axis=1) ** 2", "c ** 2 * sum(a ** 2, 1)", f"{ALGEBRA} scale-out-of-squares"),
        (
            "(a @ b.T) / (d[:, None] * e)",
            "(a / d[:, None]) @ (b / e[:, None]).T",
            "normalise-first",
        ),
        # the first power is no distance, and is two sums
        (
            "sum(a[:, None] - b, -1)",
            "sum(a, -1)[:, None] - sum(b, -1)",
            "sum-of-subtraction",
        ),
    ],
)
def test_distances_are_equal(left: str, right: str, rules: str) -> None:
    assert proves(left, right, ARRAYS, rules)
    assert not proves(left, right, ARRAYS, " ".join(ALGEBRA.split()))


def test_exponentials_of_distances_are_not_taken_apart() -> None:
    """exp(-a^2) exp(2ab) exp(-b^2) overflows where exp(-(a - b)^2) does not."""
    left = "exp(-(sum(a ** 2, 1)[:, None] - 2 * a @ b.T + sum(b ** 2, 1)))"
    right = "exp(-sum(a ** 2, 1))[:, None] * exp(2 * a @ b.T) * exp(-sum(b ** 2, 1))"
    distances = [rule.name for file in shipped_files() for rule in file.rules if rule.space == "distance"]
    assert not proves(left, right, ARRAYS, " ".join(distances))


def test_what_was_written_as_a_product_is_left_as_it_is() -> None:
    """As users write it: neither centred nor clamped, as they wanted it."""
    expression = "(sum(a ** 2, 1)[:, None] - 2 * a @ b.T + sum(b ** 2, 1)).min(1)"
    plan = optimized(expression, "a: 211 32   b: 199 32", 2_000_000, "cancels")
    assert not plan.changed


def test_the_distance_is_a_product_and_not_negative() -> None:
    graph = saturated(("sum((a[:, None] - b) ** 2, -1)",), ARRAYS, "squared-distance")
    nodes = graph.saturation.graph.classes[graph.classes()[0]].nodes
    assert {node.op.name for node in nodes if isinstance(node.op, Map)} == {"max"}
    assert any(isinstance(n.op, Dot) for c in graph.saturation.graph.classes for n in c.nodes)


def test_complex_numbers_are_not_clamped() -> None:
    assert not fires("squared-distance", "sum((z[:, None] - y) ** 2, -1)", ARRAYS)


def test_absolute_values_of_complex_numbers_are_no_squares() -> None:
    assert not fires("square-of-absolute-value", "abs(z) ** 2", ARRAYS)


def test_it_is_used_where_the_caller_allows_cancellation() -> None:
    expression, arrays = "exp(-sum((a[:, None] - b) ** 2, -1)).sum(1)", "a: 211 32   b: 199 32"
    plan = optimized(expression, arrays, 600_000, "cancels")
    assert "squared-distance" in plan.rules_fired
    exact = optimized(expression, arrays, 600_000, "reassociates")
    assert "squared-distance" not in exact.rules_fired


# What comes out.

LARGE = 600_000
"""Bytes; the array of differences takes 5.4 MB."""


def squared(a: jnp.ndarray, b: jnp.ndarray) -> jnp.ndarray:
    return jnp.sum((a[:, None] - b) ** 2, -1)


def smallest(a: jnp.ndarray, b: jnp.ndarray) -> jnp.ndarray:
    return jnp.sqrt(squared(a, b)).min(1)


SMALLEST = eqsat.optimize(smallest, budget=LARGE, accuracy="cancels")
SQUARED = eqsat.optimize(squared, budget=LARGE, accuracy="cancels")
"""Planned once for all tests."""


def points(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def exactly(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(((a[:, None].astype(float) - b) ** 2).sum(-1))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (points(211, 32), points(199, 32, seed=1)),
        # far from the origin, far from each other, and in one direction
        (1000 + points(211, 32), 1000 + points(199, 32, seed=1)),
        (points(211, 32) - 100, points(199, 32, seed=1)),
        (np.sort(1000 + 10 * points(211, 32), 0), 1000 + 10 * points(199, 32, seed=1)),
        # where the second set is far larger than a sample of it
        (50 + points(70, 32), 50 + points(1500, 32, seed=1)),
    ],
)
def test_distances_keep_their_digits(a: np.ndarray, b: np.ndarray) -> None:
    assert "squared-distance" in SMALLEST.plan(a, b).rules_fired
    np.testing.assert_allclose(SMALLEST(a, b), np.sqrt(exactly(a, b)).min(1), rtol=1e-5)


@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e10, 1e30, np.finfo(np.float32).max])
@pytest.mark.parametrize("where", ["a", "b"])
def test_a_bad_point_spoils_no_others(offset: float, bad: float, where: str) -> None:
    """A NaN is NaN from all, infinity and the largest numbers are infinitely far: as without the product."""
    a, b = points(211, 32) + np.float32(offset), points(199, 32, seed=1) + np.float32(offset)
    spoilt = {"a": a, "b": b}[where]
    spoilt[3:6] = bad
    spoilt[-1, 7] = bad
    assert "squared-distance" in SQUARED.plan(a, b).rules_fired
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(SQUARED(a, b), exactly(a, b).astype(np.float32), rtol=1e-5)


def test_it_is_no_worse_than_expanding_by_hand_where_half_the_points_are_fillers() -> None:
    a, b = points(211, 32), points(199, 32, seed=1)
    b[::2] = 0
    np.testing.assert_allclose(SQUARED(a, b), exactly(a, b), rtol=1e-5, atol=1e-5)


def test_the_distance_of_a_point_to_itself_has_a_root() -> None:
    a = points(211, 32)
    assert "squared-distance" in SMALLEST.plan(a, a).rules_fired
    nearest = np.asarray(SMALLEST(a, a))
    assert np.isfinite(nearest).all()
    assert nearest.max() < 0.01


@pytest.mark.parametrize("sign", [1, -1])
def test_weights_of_any_sign(sign: int) -> None:
    """Clamped at 0 if no weight is negative, and not if one is."""
    a, b, w = points(211, 32), points(199, 32, seed=1), np.abs(points(32, seed=2))
    w[3] *= sign

    def weighted(a: jnp.ndarray, b: jnp.ndarray, w: jnp.ndarray) -> jnp.ndarray:
        return jnp.sum(w * (a[:, None] - b) ** 2, -1).min(1)

    small = eqsat.optimize(weighted, budget=LARGE, accuracy="cancels")
    assert "weighted-squared-distance" in small.plan(a, b, w).rules_fired
    exact = ((a[:, None].astype(float) - b) ** 2 * w).sum(-1).min(1)
    np.testing.assert_allclose(small(a, b, w), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("sum((a[:, None] - b) ** 4, -1).min(1)", "fourth-power-distance"),
        ("sum(((a[:, None] - b) / w) ** 2, -1).min(1)", "divide-points"),
        ("sum((3 * w * (a[:, None] - b)) ** 2, -1).min(1)", "scale-points"),
        ("(linalg.norm(a[:, None] - b, axis=-1) ** 4).min(1)", "fourth-power-of-root"),
        ("((a[:, None] - b) ** 2 @ w ** 2).min(1)", "weighted-squared-distance"),
        (
            "((a @ b.T) / (linalg.norm(a, axis=1)[:, None] * linalg.norm(b, axis=1))).max(1)",
            "normalise-first",
        ),
    ],
)
def test_a_plan_with_it_computes_the_same(expression: str, rule: str) -> None:
    width = 8 if rule == "normalise-first" else 32  # a product of more takes as long as what is saved
    plan = optimized(expression, f"a: 211 {width}   b: 199 {width}   w: {width}", 700_000, "cancels")
    assert rule in plan.rules_fired


def test_a_product_pays_and_streams() -> None:
    """As a loop whose body is one matrix product, with no array of differences in it."""
    expression, arrays = "exp(-sum((a[:, None] - b) ** 2, -1)) @ v", "a: 2003 32   b: 1999 32   v: 1999"
    plan = optimized(expression, arrays, 1_500_000, "cancels")
    assert "squared-distance" in plan.rules_fired
    assert plan.loops
    assert plan.source.count("einsum") >= 2
    assert plan.predicted_seconds < 0.5 * plan.original_seconds
