"""Variances, covariances and centring."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.rules.proving import can_stream, cannot_prove, cannot_stream, fires, optimized, prove, saturated

ARRAYS = "x: i k   y: i k   c: i   d: k   s:   a: i j   g: i p   w: n   t: l n   u: n j   n: int32 i k"
EYE = "equal-indices"


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        (
            "deviation-of-shifted",
            "(x + d) - mean(x + d, 0)",
            "x - mean(x, 0)",
        ),
        ("deviation-of-shifted", "(s + x) - mean(s + x)", "x - mean(x)"),
        ("deviation-of-decreased", "(x - d) - mean(x - d, 0)", "x - mean(x, 0)"),
        ("deviation-of-shifted", "var(x + d, 0)", "var(x, 0)"),
        ("covariance-of-one-centred", "(x - mean(x, 0)).T @ (a - mean(a, 0))", "(x - mean(x, 0)).T @ a"),
        (
            "variance-by-moments",
            "sum((x - mean(x, 0)) ** 2, 0)",
            "maximum(sum(x ** 2, 0) - sum(x, 0) ** 2 / 5, 0)",
        ),
        # centring matrices
        (f"{EYE} centring-matrix", "(eye(5) - s) @ x", "x - s * sum(x, 0)"),
        (f"{EYE} centring-matrix", "(eye(5) - 1 / 5) @ x", "x - (1 / 5) * sum(x, 0)"),
        (f"{EYE} centring-matrix", "(eye(5) - ones((5, 5)) / 5) @ x", "x - ones(5)[:, None] / 5 * sum(x, 0)"),
        (f"{EYE} centring-matrix", "x.T @ (eye(5) - c)", "x.T - c * sum(x.T, 1, keepdims=True)"),
        (
            f"{EYE} centring-matrix",
            "(eye(5) - s) @ g @ (eye(5) - s)",
            "(lambda h: h - s * sum(h, 1, keepdims=True))(g - s * sum(g, 0))",
        ),
    ],
)
def test_identities(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules, given="rename-map rename-reduction rename-twice rename-back")


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        # what is added has the axis; the mean is of another number of entries
        ("deviation-of-shifted", "(x + d) - mean(x + d, 1, keepdims=True)", "x - mean(x, 1, keepdims=True)"),
        ("deviation-of-shifted", "(x + d) - sum(x + d, 0) / 4", "x - sum(x, 0) / 4"),
        ("deviation-of-decreased", "(x - y) - mean(x - y, 0)", "x - mean(x, 0)"),
        ("covariance-of-one-centred", "x.T @ (a - mean(a, 0))", "x.T @ a"),
        (
            "covariance-of-one-centred",
            "(x - sum(x, 0) / 4).T @ (a - mean(a, 0))",
            "(x - sum(x, 0) / 4).T @ a",
        ),
        (
            "variance-by-moments",
            "sum((x - sum(x, 0) / 4) ** 2, 0)",
            "maximum(sum(x ** 2, 0) - sum(x, 0) ** 2 / 4, 0)",
        ),
        (f"{EYE} centring-matrix", "(eye(5) - c) @ x", "x - sum(c[:, None] * x, 0)"),
    ],
)
def test_what_is_not_so(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


def test_integers_have_no_such_mean() -> None:
    assert not fires("deviation-of-shifted", "(n + 1) - (n + 1).sum(0) // 5", ARRAYS)


# ------------------------------------------------------------------------------------ in one pass


@pytest.mark.parametrize(
    ("rules", "expression"),
    [
        ("split-variance", "var(w)"),
        ("split-variance chunk-map", "std(exp(t), 1, ddof=1)"),
        ("split-variance", "var(u, 0)"),
        ("split-covariance", "(u - mean(u, 0)).T @ (t.T - mean(t, 1))"),
        ("split-weighted-variance", "w @ (u - (w @ u) / sum(w)) ** 2 / sum(w)"),
    ],
)
def test_in_one_pass(rules: str, expression: str) -> None:
    can_stream(expression, ARRAYS, "n", rules, one_pass=True)


def test_covariance_of_a_matrix_with_itself_is_one_pass() -> None:
    rules = "split-covariance rename-map rename-reduction"
    can_stream("cov(t)", ARRAYS, "n", rules, one_pass=True)


def test_the_sum_of_squares_about_something_else_is_not_split_so() -> None:
    cannot_stream(
        "sum((t - mean(t, 1, keepdims=True) / 2) ** 2, 1)", ARRAYS, "n", "split-variance", one_pass=True
    )
    graph = saturated(("sum((t - sum(t, 1, keepdims=True) / 5) ** 2, 1)",), ARRAYS, "split-variance", "n")
    assert not graph.saturation.matches["split-variance"]


def test_no_digits_are_lost_far_from_0() -> None:
    x = (1e4 + np.random.default_rng(0).normal(size=(200_003, 3)) * [[1, 2, 3]]).astype(np.float32)

    def variance(x: jax.Array) -> jax.Array:
        return jnp.var(jnp.sort(x, axis=1) * 1.5, 0)

    small = eqsat.optimize(variance, budget=x.nbytes + 600_000, accuracy="rescales")
    plan = small.plan(x)
    assert "split-variance" in plan.rules_fired
    assert plan.source.count("lax.scan") == 1
    exact = (np.sort(x.astype(float), axis=1) * 1.5).var(0)
    np.testing.assert_allclose(small(x), exact, rtol=3e-4)


@pytest.mark.parametrize(
    "expression",
    [
        # the Hilbert-Schmidt independence criterion, in two spellings
        "sum(((eye(199) - 1 / 199) @ k @ (eye(199) - 1 / 199)) * l)",
        "trace((eye(199) - 1 / 199) @ k @ (eye(199) - 1 / 199) @ l)",
    ],
)
def test_centred_kernels_need_no_centring_matrix(expression: str) -> None:
    plan = optimized(expression, "k: 199 199   l: 199 199", 600_000)
    assert "centring-matrix" in plan.rules_fired
    lines = plan.source.splitlines()
    # Sums are products with ones (`backend/reductions.py`).
    (product,) = [line for line in lines if "einsum" in line and "jnp.ones" not in line]
    assert '->"' in product, "the only product of two matrices is a number"
