"""Traces and determinants."""

from __future__ import annotations

import pytest

from tests.rules.proving import cannot_prove, fires, optimized, prove

ARRAYS = "a: i k   b: k p   e: p k   s: i p   t: p p   v: i   w: p   c:   q: spd i p   x: n i p"
RENAMING = (
    "rename-map rename-reduction rename-contraction rename-delta rename-operation rename-twice rename-back"
    " rename-contracted rename-reduced"
)
IDENTITY = "equal-indices identity-is-diagonal"
DIAGONALS = (
    "equal-indices mask-of-diagonal diagonal-along-rows sum-of-diagonal-matrix sum-of-diagonal-contraction"
)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("diagonal-of-product", "trace(a @ b)", "einsum('ik,ki->', a, b)"),
        ("diagonal-of-product", "trace(s @ t)", "sum(s * t.T)"),
        ("diagonal-of-rows-and-columns", "trace(outer(v, w))", "v @ w"),
        ("diagonal-of-both sum-of-addition", "trace(s + t)", "trace(s) + trace(t)"),
        ("diagonal-of-other-transpose diagonal-of-both", "trace(s + s.T)", "trace(s + s)"),
        ("diagonal-of-columns-and-matrix pull-factor", "trace(c * s)", "c * trace(s)"),
        ("cyclic-trace diagonal-of-product", "trace((a @ b) @ s.T)", "einsum('ik,ik->', a, s.T.T @ b.T)"),
    ],
)
def test_traces(rules: str, left: str, right: str) -> None:
    given = f"{RENAMING} {DIAGONALS} diagonal-of-matrix-and-columns sum-of-product"
    prove(left, right, ARRAYS, rules, given)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("logdet-of-transpose", "slogdet(s.T)[1]", "slogdet(s)[1]"),
        ("determinant-of-transpose", "det(s.T)", "det(s)"),
        ("logdet-of-product", "slogdet(s @ t)[1]", "slogdet(s)[1] + slogdet(t)[1]"),
        ("determinant-of-product", "det(s @ t)", "det(s) * det(t)"),
        ("logdet-of-inverse", "slogdet(inv(s))[1]", "-slogdet(s)[1]"),
        ("determinant-of-inverse", "det(inv(s))", "1 / det(s)"),
        ("logdet-of-scaled-rows", "slogdet(v[:, None] * s)[1]", "sum(log(abs(v))) + slogdet(s)[1]"),
        (
            "logdet-of-scaled-rows logdet-of-transpose",
            "slogdet(w * s)[1]",
            "sum(log(abs(w))) + slogdet(s)[1]",
        ),
        ("determinant-of-triangular lower-part", "det(tril(s))", "prod(diagonal(tril(s)))"),
        (
            "logdet-of-triangular equal-indices diagonal-matrix diagonal-is-lower diagonal-of-diagonal",
            "slogdet(diag(v))[1]",
            "sum(log(abs(v)))",
        ),
        ("log-of-determinant", "log(abs(det(s)))", "slogdet(s)[1]"),
    ],
)
def test_determinants(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules, RENAMING)


@pytest.mark.parametrize(
    ("rule", "expression", "given"),
    [
        ("logdet-of-scaled", "slogdet(c * s)[1]", ""),
        ("logdet-of-triangular", "slogdet(tril(s))[1]", "lower-part"),
        ("logdet-of-triangular", "slogdet(triu(s))[1]", "upper-part transpose-of-upper logdet-of-transpose"),
        ("logdet-of-triangular", "slogdet(diag(v))[1]", "equal-indices diagonal-matrix diagonal-is-lower"),
        (
            "logdet-of-triangular",
            "slogdet(cholesky(q) @ cholesky(q).T)[1]",
            "logdet-of-product cholesky-factor",
        ),
        (
            "logdet-of-scaled-identity",
            "slogdet(c * eye(5))[1]",
            f"{IDENTITY} scaled-diagonal times-one",
        ),
        ("logdet-by-cholesky", "slogdet(assume(q, 'spd'))[1]", ""),
        (
            "logdet-of-renamed",
            "slogdet(solve(s, eye(5)))[1]",
            f"inverse-for-solve logdet-of-transpose {IDENTITY}",
        ),
        (
            "determinant-of-renamed",
            "det(solve(s, eye(5)))",
            f"inverse-for-solve determinant-of-transpose {IDENTITY}",
        ),
    ],
)
def test_sums_of_logarithms(rule: str, expression: str, given: str) -> None:
    assert fires(rule, expression, ARRAYS, given)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("logdet-of-product", "slogdet(s + t)[1]", "slogdet(s)[1] + slogdet(t)[1]"),
        # of a product of oblong matrices there is a determinant, but not of them
        ("logdet-of-product", "slogdet(a @ b)[1]", "slogdet(b @ a)[1]"),
        ("logdet-of-scaled", "slogdet(c * s)[1]", "log(abs(c)) + slogdet(s)[1]"),
        ("logdet-of-scaled-rows", "slogdet(v[:, None] + s)[1]", "sum(log(abs(v))) + slogdet(s)[1]"),
        ("logdet-of-triangular", "slogdet(s)[1]", "sum(log(abs(diagonal(s))))"),
        ("logdet-by-cholesky", "slogdet(q)[1]", "2 * sum(log(diagonal(cholesky(q))))"),
        ("log-of-determinant", "log(det(s))", "slogdet(s)[1]"),
        (f"{DIAGONALS} diagonal-of-product", "trace(s @ t)", "trace(s) * trace(t)"),
        (f"{DIAGONALS} cyclic-trace diagonal-of-product", "trace(s @ t @ s)", "trace(s @ s.T @ t)"),
        (f"{DIAGONALS}", "trace(s, offset=1)", "trace(s)"),
    ],
)
def test_what_is_not_true(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, f"{rules} {RENAMING}")


def test_the_trace_of_a_product_needs_no_product() -> None:
    plan = optimized("trace(a @ b)", "a: 500 20   b: 20 500", 200_000)
    assert "sum-of-diagonal-contraction" in plan.rules_fired
    assert "(500, 500)" not in plan.source


def test_a_product_of_factors_is_not_factorised_again() -> None:
    plan = optimized("slogdet(a @ b)[1]", "a: 200 200   b: 200 200", 2_000_000, "cancels")
    assert "logdet-of-product" in plan.rules_fired
