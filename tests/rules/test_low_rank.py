"""Diagonal matrices plus products of few columns and rows."""

from __future__ import annotations

import pytest

from eqsat.rulesets.selection import rules_for
from tests.rules.proving import cannot_prove, fires, optimized, prove

ARRAYS = "a: i l   b: l p   m: l l   v: i   w: p   c:   u: i k   t: i p"
RENAMING = (
    "rename-map rename-reduction rename-contraction rename-iota rename-delta rename-operation rename-twice"
    " rename-back rename-contracted rename-past-rename"
)
DIAGONAL = "equal-indices diagonal-along-rows"
IDENTITY = "equal-indices identity-is-diagonal scaled-diagonal times-one"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rule", "expression", "given"),
    [
        # with a diagonal, with one number, with the same factor twice, with a matrix in the middle
        ("woodbury", "solve(diag(v) + a @ b, v)", DIAGONAL),
        ("woodbury", "solve(a @ b + diag(v), u)", DIAGONAL),
        ("woodbury", "solve((diag(v) + a @ b).T, w)", DIAGONAL),
        ("woodbury", "solve(c * eye(5) + a @ a.T, v)", IDENTITY),
        ("woodbury", "solve(diag(v) + a @ m @ b, v)", DIAGONAL),
        ("woodbury", "solve(diag(v) + a @ m @ a.T, v)", DIAGONAL),
        ("woodbury", "solve(diag(v) - a @ b, v)", f"{DIAGONAL} solve-with-difference"),
        ("woodbury", "inv(diag(v) + a @ b) @ v", f"{DIAGONAL} solve-for-inverse"),
        ("woodbury-inverse", "inv(diag(v) + a @ b)", DIAGONAL),
        ("woodbury-inverse", "inv(c * eye(5) + a @ b)", IDENTITY),
        (
            "woodbury-inverse",
            "inv(diag(v) - a @ b)",
            f"{DIAGONAL} inverse-of-difference",
        ),
        ("woodbury-of-any-matrix", "solve(t + a @ b, v)", ""),
        ("woodbury-of-any-matrix", "solve(t + a @ a.T, v)", ""),
        ("woodbury-of-any-matrix", "solve(t + a @ m @ a.T, v)", ""),
        ("woodbury-inverse-of-any-matrix", "inv(t + a @ a.T)", ""),
        ("woodbury-inverse-of-any-matrix", "inv(t + a @ m @ a.T)", ""),
        ("sherman-morrison", "solve(diag(v) + outer(v, w), v)", DIAGONAL),
        ("sherman-morrison", "solve(diag(v) + v[:, None] * v, u)", DIAGONAL),
        ("determinant-lemma", "slogdet(diag(v) + a @ b)[1]", DIAGONAL),
        ("determinant-lemma", "slogdet(a @ b + diag(v))[1]", DIAGONAL),
        (
            "determinant-lemma",
            "slogdet(diag(v) - a @ b)[1]",
            f"{DIAGONAL} logdet-of-difference",
        ),
        ("determinant-lemma-identity", "slogdet(c * eye(5) + a @ a.T)[1]", IDENTITY),
        ("determinant-lemma-identity", "slogdet(eye(5) + a @ b)[1]", IDENTITY),
        ("determinant-lemma-rank-one", "slogdet(diag(v) + outer(v, w))[1]", DIAGONAL),
        ("push-through", "b @ solve(c * eye(5) + a @ b, v)", IDENTITY),
        ("push-through", "a.T @ solve(c * eye(5) + a @ a.T, u)", IDENTITY),
        ("push-through", "a.T @ inv(c * eye(5) + a @ a.T) @ v", f"{IDENTITY} solve-for-inverse reassociate"),
        ("push-through-diagonal", "b @ solve(diag(v) + a @ b, v)", DIAGONAL),
        ("push-through-diagonal", "a.T @ solve(diag(v) + a @ a.T, u)", DIAGONAL),
    ],
)
def test_what_is_of_low_rank(rule: str, expression: str, given: str) -> None:
    assert fires(rule, expression, ARRAYS, f"{given} {RENAMING}")


@pytest.mark.parametrize(
    ("rule", "expression", "given"),
    [
        # more columns than half the rows; a dense matrix; a product of entries
        ("woodbury", "solve(diag(v) + u @ u.T, v)", DIAGONAL),
        ("woodbury", "solve(t + a @ b, v)", DIAGONAL),
        ("woodbury", "solve(diag(v) * (a @ b), v)", DIAGONAL),
        ("woodbury", "solve(tril(t) + a @ b, v)", DIAGONAL),
        ("woodbury-inverse", "inv(diag(v) + u @ u.T)", DIAGONAL),
        ("woodbury-of-any-matrix", "solve(t + u @ u.T, v)", ""),
        ("woodbury-inverse-of-any-matrix", "inv(t + u @ u.T)", ""),
        ("sherman-morrison", "solve(diag(v) + t * w, v)", DIAGONAL),
        ("determinant-lemma", "slogdet(diag(v) + u @ u.T)[1]", DIAGONAL),
        # one number is for the lemma of its own, and several are not
        ("determinant-lemma", "slogdet(c * eye(5) + a @ b)[1]", IDENTITY),
        ("determinant-lemma-identity", "slogdet(diag(v) + a @ b)[1]", DIAGONAL),
        ("push-through", "b @ solve(diag(v) + a @ b, v)", DIAGONAL),
        # the matrix before the solution is not that in it
        ("push-through", "m @ b @ solve(c * eye(5) + a @ b, v)", IDENTITY),
        ("push-through", "a.T @ solve(c * eye(5) + a @ b, v)", IDENTITY),
    ],
)
def test_what_is_not(rule: str, expression: str, given: str) -> None:
    assert not fires(rule, expression, ARRAYS, f"{given} {RENAMING}")


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("solve-with-difference", "solve(diag(v) - a @ b, v)", "solve(diag(v) + (-a) @ b, v)"),
        ("inverse-of-difference", "inv(diag(v) - a @ b)", "inv(diag(v) + (-a) @ b)"),
        ("logdet-of-difference", "slogdet(diag(v) - a @ b)[1]", "slogdet(diag(v) + (-a) @ b)[1]"),
    ],
)
def test_differences(rule: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rule, f"equal-indices {RENAMING}")
    cannot_prove(left, right.replace("(-a)", "a"), ARRAYS, f"{rule} equal-indices {RENAMING}")


def test_a_product_with_a_vector_needs_no_matrix() -> None:
    assert fires("reassociate", "(diag(v) + a @ b) @ w", ARRAYS, f"matrix-plus-diagonal-times {DIAGONAL}")
    plan = optimized("(diag(v) + a @ b) @ v", "a: 600 5   b: 5 600   v: 600", 200_000)
    assert "(600, 600)" not in plan.source


LARGE = "a: 400 6   b: 6 400   v: 400   c:   s: 400 3"


@pytest.mark.parametrize(
    ("expression", "rule", "accuracy"),
    [
        pytest.param(
            "solve(diag(5 + v ** 2) + a @ a.T, v)", "woodbury", "amplifies", marks=pytest.mark.nightly
        ),
        pytest.param(
            "solve(diag(5 + v ** 2) + outer(v, v / 400), v)",
            "sherman-morrison",
            "amplifies",
            marks=pytest.mark.nightly,
        ),
        ("slogdet((5 + c ** 2) * eye(400) + a @ a.T)[1]", "determinant-lemma-identity", "cancels"),
        pytest.param(
            "a.T @ inv((5 + c ** 2) * eye(400) + a @ a.T) @ s",
            "push-through",
            "cancels",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_no_large_system_is_solved(expression: str, rule: str, accuracy: str) -> None:
    plan = optimized(expression, LARGE, 120_000, accuracy)
    assert {rule, f"{rule}-of-any-matrix"} & set(plan.rules_fired)  # a diagonal one is any matrix, too
    assert "(400, 400)" not in plan.source


def test_what_amplifies_errors_is_asked_for() -> None:
    careful = {compiled.name for compiled in rules_for((), "cancels")}
    assert "determinant-lemma-identity" in careful
    assert not {"woodbury", "woodbury-inverse", "sherman-morrison"} & careful
