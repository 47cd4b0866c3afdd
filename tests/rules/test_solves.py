"""Inverses, linear systems, and what is known of their solutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.rules.proving import cannot_prove, fires, optimized, prove

ARRAYS = (
    "a: i k   b: k p   s: i p   t: p p   v: i   w: p   c:   q: spd i p   y: k   h: n i p   g: n i"
    "   z: complex64 i p   u: i m   r: n m"
)
RENAMING = (
    "rename-map rename-reduction rename-contraction rename-iota rename-delta rename-operation rename-twice"
    " rename-back rename-contracted rename-reduced inverse-of-renamed-rows inverse-of-renamed-columns"
    " rename-past-rename solve-renamed-rows solve-renamed-columns cholesky-of-renamed-rows"
    " cholesky-of-renamed-columns"
)
IDENTITY = "equal-indices identity-is-diagonal"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("inverse-of-transpose", "inv(s.T)", "inv(s).T"),
        ("inverse-of-inverse", "inv(inv(s))", "s"),
        ("solve-for-inverse", "inv(s) @ v", "solve(s, v)"),
        ("solve-for-inverse", "inv(s) @ u", "solve(s, u)"),
        ("solve-for-inverse inverse-of-transpose", "w @ inv(s)", "solve(s.T, w)"),
        ("solve-for-inverse inverse-of-transpose", "inv(s).T @ w", "solve(s.T, w)"),
        ("solve-for-inverse reassociate", "inv(s) @ inv(t) @ w", "solve(s, inv(t) @ w)"),
        ("solve-for-inverse reassociate", "inv(s) @ inv(t) @ u", "solve(s, solve(t, u))"),
        (f"inverse-for-solve solve-for-inverse {IDENTITY}", "solve(s, eye(5)) @ v", "solve(s, v)"),
        ("inverse-of-diagonal diagonal-along-rows equal-indices", "inv(diag(v))", "diag(1 / v)"),
        # known solutions
        ("product-with-solution", "s @ solve(s, u)", "u"),
        ("solution-for-product", "solve(s, s @ w)", "w"),
        (f"solution-for-the-matrix {IDENTITY}", "solve(s, s)", "eye(5)"),
        (f"solution-for-the-renamed-matrix solve-for-inverse {IDENTITY}", "inv(s) @ s", "eye(5)"),
        (
            "product-with-triangular-solution lower-part",
            "tril(s) @ solve_triangular(tril(s), u, lower=True)",
            "u",
        ),
        ("product-of-cholesky-factors", "cholesky(assume(q, 'spd')) @ cholesky(q).T", "q"),
        # simpler systems
        ("solve-diagonal equal-indices", "solve(diag(v), u)", "u / v[:, None]"),
        (f"solve-diagonal scaled-diagonal times-one {IDENTITY}", "solve(c * eye(5), v)", "v / c"),
        ("solve-triangular lower-part", "solve(tril(s), u)", "solve_triangular(tril(s), u, lower=True)"),
        ("solve-upper-triangular upper-part", "solve(triu(s), u)", "solve_triangular(triu(s), u)"),
        (
            "solve-upper-triangular lower-part transpose-of-lower",
            "solve(tril(s).T, w)",
            "solve_triangular(tril(s), w, lower=True, trans=1)",
        ),
        (
            "solve-by-cholesky",
            "solve(assume(q, 'spd'), u)",
            "jax.scipy.linalg.cho_solve((cholesky(q), True), u)",
        ),
        ("solve-orthogonal orthonormal-factor", "solve(qr(s)[0], u)", "qr(s)[0].T @ u"),
        (f"orthonormal-columns orthonormal-factor {IDENTITY}", "qr(a)[0].T @ qr(a)[0]", "eye(3)"),
        ("solve-product", "solve(s @ t, u)", "solve(t, solve(s, u))"),
        ("solve-scaled", "solve(c * s, u)", "solve(s, u) / c"),
        (
            "solve-lower-part",
            "solve_triangular(tril(s), u, lower=True)",
            "solve_triangular(s, u, lower=True)",
        ),
        ("solve-upper-part", "solve_triangular(triu(s), u)", "solve_triangular(s, u)"),
        # fewer right-hand sides
        ("solve-for-fewer", "solve(s, a) @ y", "solve(s, a @ y)"),
        ("solve-for-factor", "solve(s, a @ b)", "solve(s, a) @ b"),
        (
            "pull-out-lower-solve",
            "solve_triangular(s, a, lower=True) @ y",
            "solve_triangular(s, a @ y, lower=True)",
        ),
        ("pull-out-upper-solve", "solve_triangular(s, a) @ y", "solve_triangular(s, a @ y)"),
        (
            "push-in-lower-solve",
            "solve_triangular(s, a @ b, lower=True)",
            "solve_triangular(s, a, lower=True) @ b",
        ),
        ("push-in-upper-solve", "solve_triangular(s, a @ b)", "solve_triangular(s, a) @ b"),
    ],
)
def test_solves(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules, RENAMING)


@pytest.mark.parametrize(
    ("rule", "expression", "given"),
    [
        ("quadratic-form", "v @ solve(assume(q, 'spd'), v)", "solve-by-cholesky"),
        ("quadratic-form", "sum(u * solve(assume(q, 'spd'), u), 0)", "solve-by-cholesky sum-of-product"),
        ("quadratic-form", "v @ jax.scipy.linalg.cho_solve((cholesky(q), True), v)", ""),
        ("quadratic-form-of-renamed-columns", "a.T @ solve(assume(q, 'spd'), a)", "solve-by-cholesky"),
        (
            "quadratic-form-of-renamed-columns",
            "a.T @ inv(assume(q, 'spd')) @ a",
            "solve-by-cholesky solve-for-inverse reassociate",
        ),
        ("pull-out-solve", "solve(s, g.T) @ r", ""),
        ("pull-out-solve-beside-rows", "solve(s, g.T) @ g", ""),
        ("pull-out-lower-solve", "solve_triangular(s, g.T, lower=True) @ r", ""),
        ("pull-out-lower-solve-beside-rows", "solve_triangular(s, g.T, lower=True) @ g", ""),
        ("pull-out-upper-solve", "solve_triangular(s, g.T) @ r", ""),
        ("pull-out-both-solves", "(lambda x: x @ x.T)(solve_triangular(s, g.T, lower=True))", ""),
        # what has a batch of its own
        ("solve-for-inverse", "einsum('nij,nj->ni', inv(h), g)", ""),
        ("solve-by-cholesky", "solve(assume(h @ h.swapaxes(1, 2) + eye(5), 'spd'), g[..., None])", ""),
    ],
)
def test_what_is_found_in_solves(rule: str, expression: str, given: str) -> None:
    assert fires(rule, expression, ARRAYS, f"{given} {RENAMING}")


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("solve-for-inverse inverse-of-transpose", "w @ inv(s)", "solve(s, w)"),
        ("solve-for-inverse", "inv(s) * v", "solve(s, diag(v))"),
        ("inverse-of-inverse", "inv(s.T)", "s"),
        ("product-with-solution", "s.T @ solve(s, u)", "u"),
        ("product-with-solution", "t @ solve(s, u)", "u"),
        ("solution-for-product", "solve(s, s.T @ w)", "w"),
        # only one triangle of the matrix was solved with
        ("product-with-triangular-solution", "s @ solve_triangular(s, u, lower=True)", "u"),
        ("solve-triangular", "solve(s, u)", "solve_triangular(s, u, lower=True)"),
        ("solve-triangular upper-part", "solve(triu(s), u)", "solve_triangular(triu(s), u, lower=True)"),
        (
            "solve-lower-part",
            "solve_triangular(triu(s), u, lower=True)",
            "solve_triangular(s, u, lower=True)",
        ),
        ("solve-by-cholesky", "solve(q, u)", "jax.scipy.linalg.cho_solve((cholesky(q), True), u)"),
        ("solve-orthogonal orthonormal-factor", "solve(qr(s)[1], u)", "qr(s)[1].T @ u"),
        (f"orthonormal-columns orthonormal-factor {IDENTITY}", "qr(a)[0] @ qr(a)[0].T", "eye(5)"),
        ("product-of-cholesky-factors", "cholesky(q) @ cholesky(q)", "q"),
        ("solve-product", "solve(s + t, u)", "solve(t, solve(s, u))"),
        ("solve-scaled", "solve(v[:, None] * s, u)", "solve(s, u) / v[:, None]"),
        ("quadratic-form", "v @ jax.scipy.linalg.cho_solve((q, True), w)", "v @ w"),
        # more columns after than before
        ("solve-for-fewer", "solve(s, a) @ b", "solve(s, a @ b)"),
        ("solve-for-factor", "solve(s, u @ u.T @ ones((5, 2)))", "solve(s, u) @ (u.T @ ones((5, 2)))"),
    ],
)
def test_what_is_not_solved(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, f"{rules} {RENAMING}")


def test_of_several_matrices_the_axis_stays() -> None:
    """Solving gives an axis that the right-hand side may lack."""
    assert not fires("product-with-solution", "einsum('nij,njk->nik', h, solve(h, u))", ARRAYS)
    assert fires("product-with-solution", "einsum('nij,nj->ni', h, solve(h, g[..., None])[..., 0])", ARRAYS)
    assert not fires("solution-for-the-matrix", "solve(h, h)", ARRAYS)


def test_no_inverse_is_made() -> None:
    plan = optimized("inv(s) @ v", "s: 300 300   v: 300", 4_000_000)
    assert "solve-for-inverse" in plan.rules_fired
    assert "linalg.inv" not in plan.source


def test_a_positive_definite_system_takes_a_cholesky_factorisation() -> None:
    plan = optimized("solve(assume(q, 'spd'), v)", "q: spd 400 400   v: 400", 6_000_000)
    assert "solve-by-cholesky" in plan.rules_fired


def test_a_solve_stays_inside_an_accumulated_product() -> None:
    """Outside, its condition number would count twice; whoever allows that, saves most of the work."""

    def gram(factor: jax.Array, b: jax.Array) -> jax.Array:
        half = jax.scipy.linalg.solve_triangular(factor, b, lower=True)
        return half @ half.T

    factor = np.tril(np.random.default_rng(0).normal(size=(40, 40))).astype(np.float32) + 9 * np.eye(
        40, dtype="f4"
    )
    b = np.ones((40, 6000), np.float32)
    careful = eqsat.optimize(gram, budget=1_200_000).plan(factor, b)
    assert not any(rule.startswith("pull-out") for rule in careful.rules_fired)
    bold = eqsat.optimize(gram, budget=1_200_000, accuracy="amplifies")
    assert any(rule.startswith("pull-out") for rule in bold.plan(factor, b).rules_fired)
    np.testing.assert_allclose(bold(factor, b), jnp.asarray(gram(factor, b)), rtol=1e-4)
