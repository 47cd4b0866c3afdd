"""Kronecker products, and axes that are merged and split."""

from __future__ import annotations

import pytest

from tests.rules.proving import cannot_prove, fires, optimized, prove

# Kronecker products of a and b have 15 rows and 14 columns; of s and t, 15 and 15.
ARRAYS = (
    "a: i l   b: k j   s: i p   t: k k   x: 14   y: 15   u: 14 m   w: 15 m   r: i k   q: i k   z: m k"
    "   c: l p   f: j k   h: i"
)
RENAMING = (
    "rename-map rename-reduction rename-contraction rename-operation rename-twice rename-back"
    " rename-contracted rename-past-rename rename-reduced"
)
VIEWS = "split-of-merge merge-of-split split-of-merge-renamed merge-of-split-renamed"


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("kronecker-times-vector", "kron(a, b) @ x", "(a @ (b @ x.reshape(2, 7).T).T).reshape(15)"),
        ("vector-times-kronecker", "y @ kron(a, b)", "(a.T @ (b.T @ y.reshape(5, 3).T).T).reshape(14)"),
        (
            "solve-kronecker",
            "solve(kron(s, t), y)",
            "solve(s, solve(t, y.reshape(5, 3).T).T).reshape(15)",
        ),
    ],
)
def test_kronecker_products(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules, f"{RENAMING} {VIEWS}")


@pytest.mark.parametrize(
    ("rule", "expression", "given"),
    [
        ("kronecker-times-vector", "kron(a, b) @ u", ""),
        ("product-of-kroneckers", "kron(a, b) @ kron(c, f)", ""),
        ("inverse-of-kronecker", "inv(kron(s, t))", ""),
        ("logdet-of-kronecker", "slogdet(kron(s, t))[1]", ""),
        ("contraction-beside-merge", "(r[:, None] * z).reshape(5, 12).T @ h", ""),
        ("contraction-beside-split", "tensordot(y, kron(a, b).reshape(15, 2, 7), 1)", ""),
        ("diagonal-of-kronecker", "diagonal(kron(s, t))", ""),
        (
            "reduction-of-merge",
            "trace(kron(s, t))",
            "diagonal-of-kronecker equal-indices mask-of-diagonal sum-of-diagonal-matrix diagonal-along-rows",
        ),
        ("solve-kronecker", "inv(kron(s, t)) @ w", "solve-for-inverse"),
    ],
)
def test_what_is_found_in_kronecker_products(rule: str, expression: str, given: str) -> None:
    assert fires(rule, expression, ARRAYS, f"{given} {RENAMING} {VIEWS}")


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("split-of-merge", "r.reshape(15).reshape(5, 3)", "r"),
        ("merge-of-split", "y.reshape(5, 3).reshape(15)", "y"),
        ("function-of-merge", "exp(r.reshape(15))", "exp(r).reshape(15)"),
        ("function-of-merges", "r.reshape(15) - q.reshape(15)", "(r - q).reshape(15)"),
        ("function-of-merge-and-vector", "r.reshape(15) - y", "(r - y.reshape(5, 3)).reshape(15)"),
        ("function-of-vector-and-merge", "y - r.reshape(15)", "(y.reshape(5, 3) - r).reshape(15)"),
        ("function-of-merge-and-rest", "r.reshape(15) > 1.0", "(r > 1.0).reshape(15)"),
        ("function-of-rest-and-merge", "1.0 - r.reshape(15)", "(1.0 - r).reshape(15)"),
        ("function-of-split", "exp(y.reshape(5, 3)).reshape(15)", "exp(y)"),
        ("function-of-splits", "(y.reshape(5, 3) * w[:, 0].reshape(5, 3)).reshape(15)", "y * w[:, 0]"),
        ("function-of-split-and-rest", "(y.reshape(5, 3) - h[0]).reshape(15)", "y - h[0]"),
        ("function-of-rest-and-split", "(h[0] - y.reshape(5, 3)).reshape(15)", "h[0] - y"),
        ("reduction-of-merge", "r.reshape(15).sum()", "r.sum()"),
        ("reduction-of-merge", "r.reshape(15).max()", "r.max()"),
        (
            "reduction-beside-merge",
            "(r[:, None] * z).reshape(5, 12).sum(0)",
            "(r[:, None] * z).sum(0).reshape(12)",
        ),
        ("reduction-of-split", "y.reshape(5, 3).max()", "y.max()"),
        ("contraction-over-merge", "r.reshape(15) @ y", "sum(r * y.reshape(5, 3))"),
        ("contraction-over-merge", "r.reshape(15) @ q.reshape(15)", "sum(r * q)"),
    ],
)
def test_merged_and_split_axes(rules: str, left: str, right: str) -> None:
    given = [rule for rule in f"{RENAMING} {VIEWS} sum-of-product".split() if rule != rules]
    prove(left, right, ARRAYS, rules, " ".join(given))


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("kronecker-times-vector", "kron(a, b) @ x", "(a @ (x.reshape(7, 2).T @ b.T)).reshape(15)"),
        ("product-of-kroneckers", "kron(s, t) @ kron(t, s)", "kron(s @ s, t @ t)"),
        ("inverse-of-kronecker", "inv(kron(s, t))", "kron(inv(t), inv(s))"),
        ("split-of-merge", "r.reshape(15).reshape(3, 5).T", "r"),
        ("split-of-merge-renamed", "r.T.reshape(15).reshape(5, 3)", "r"),
        ("merge-of-split", "y.reshape(5, 3).T.reshape(15)", "y"),
        ("function-of-merge", "cumsum(r.reshape(15))", "cumsum(r, 1).reshape(15)"),
        ("reduction-of-split", "y.reshape(5, 3).max(1)", "y.max()"),
        ("function-of-split-and-rest", "(y.reshape(5, 3) - h[:, None]).reshape(15)", "y - h[0]"),
        ("contraction-over-merge", "r.reshape(15) @ q.T.reshape(15)", "sum(r * q)"),
    ],
)
def test_what_is_not_true(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, f"{rules} {RENAMING} {VIEWS}")


def test_a_square_matrix_may_be_made_of_oblong_ones() -> None:
    assert not fires("diagonal-of-kronecker", "diagonal(kron(r, r.T))", ARRAYS)


@pytest.mark.parametrize(
    "expression",
    ["kron(a, b) @ x", "solve(kron(eye(20) + a / 40, eye(25) + b / 50), x)", "trace(kron(a, b))"],
)
def test_the_product_is_never_there(expression: str) -> None:
    plan = optimized(expression, "a: 20 20   b: 25 25   x: 500", 60_000)
    assert plan.peak_bytes <= 60_000, "it would take a megabyte"


def test_a_solve_with_the_product_needs_its_rule() -> None:
    """What else is a product is one of values of four axes, before there are any rules."""
    plan = optimized(
        "solve(kron(eye(20) + a / 40, eye(25) + b / 50), x)", "a: 20 20   b: 25 25   x: 500", 60_000
    )
    assert "solve-kronecker" in plan.rules_fired


def test_what_was_flattened_is_split_in_chunks() -> None:
    plan = optimized("exp(-(a[:, None] - b) ** 2).reshape(60000).sum()", "a: 200   b: 300", 60_000)
    assert "reshape" not in plan.source
