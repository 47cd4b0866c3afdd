"""Factors of tall matrices, and what is made of them, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from examples.comparison import in_double_precision
from tests.rules.proving import can_stream, cannot_stream

ARRAYS = "a: n l   b: n k   x: n   y: n m   v: l   z: complex64 n l   s: i p"
LEAST_SQUARES = "least-squares chunk-map rename-contraction"
SINGULAR = "singular-values-of-factor split-unrounded split-triangular-factor chunk-map"
POLAR = "polar-factor-of-product chunk-map"
BY_VECTORS = f"pseudo-inverse-by-scaled-vectors {SINGULAR}"
VECTORS = "right-singular-vectors-of-factor split-unrounded split-triangular-factor chunk-map"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("expression", "rules"),
    [
        ("qr(sin(a), mode='r')", "split-triangular-factor chunk-map"),
        ("qr(sin(z), mode='r')", "split-triangular-factor chunk-map"),
        ("qr(sin(a))[1]", "split-triangular-factor chunk-map"),
        ("(lambda q, r: solve_triangular(r, q.T @ x))(*qr(sin(a)))", LEAST_SQUARES),
        ("(lambda q, r: solve_triangular(r, q.T @ cos(y)))(*qr(sin(a)))", LEAST_SQUARES),
        (
            "(lambda q, r: solve(r, q.T @ x))(*qr(sin(a)))",
            "least-squares-by-any-solver chunk-map rename-contraction",
        ),
        ("svd(sin(a), compute_uv=False)", SINGULAR),
        ("svd(sin(a).T, compute_uv=False)", SINGULAR),
        ("svd(sin(a), full_matrices=False)[2]", VECTORS),
        ("lstsq(sin(a), x)[0]", f"pseudo-inverse {SINGULAR}"),
        ("(lambda u, s, w: (w.T / s) @ (u.T @ x))(*svd(sin(a), full_matrices=False))", BY_VECTORS),
        ("(lambda u, s, w: w.T @ (u.T @ x))(*svd(sin(a), full_matrices=False))", POLAR),
    ],
)
def test_a_factor_streams_over_rows(expression: str, rules: str) -> None:
    can_stream(expression, ARRAYS, "n", rules)


@pytest.mark.parametrize(
    "expression",
    [
        "qr(sin(b), mode='r')",  # too few rows to gain anything
        "qr(sin(a).T, mode='r')",
        "qr(sin(a))[0]",
        "(lambda q, r: q @ (r @ v))(*qr(sin(a)))",  # both have to be of one factorisation
        "(lambda u, s, w: u @ (w @ v))(*svd(sin(a), full_matrices=False))",
        "lstsq(sin(b), x)[0]",
        "(lambda u, s, w: (w.T / s) @ (u.T @ x))(*svd(sin(b), full_matrices=False))",
        "(lambda u, s, w: w.T @ (u.T @ x))(*svd(sin(b), full_matrices=False))",
    ],
)
def test_a_factor_that_is_read_beside_another_does_not_stream(expression: str) -> None:
    factors = f"{SINGULAR} {VECTORS} {LEAST_SQUARES} {BY_VECTORS} pseudo-inverse polar-factor-of-product"
    rules = f"{factors} split-contraction split-result chunk-contraction chunk-operation"
    cannot_stream(expression, ARRAYS, "n", rules)


# ------------------------------------------------------------------------------------- programs

ROWS, COLUMNS = 6007, 6
"""Chunks don't divide the rows."""


def features(x: Any, w: Any) -> Any:
    return jnp.cos(x[:, None] * w)


def lineax_like(x: Any, w: Any, y: Any) -> Any:
    """Least squares by LAPACK's raw factors, as lineax solves them."""
    reflections, scales = jnp.linalg.qr(features(x, w), mode="raw")
    turned = jax.lax.linalg.ormqr(reflections.mT, scales, y[:, None], transpose=True)[: len(w), 0]
    return jax.scipy.linalg.solve_triangular(reflections.mT[: len(w)], turned)


def by_factors(x: Any, w: Any, y: Any) -> Any:
    q, r = jnp.linalg.qr(features(x, w))
    return jax.scipy.linalg.solve_triangular(r, q.T @ y)


def principal(x: Any, w: Any, y: Any) -> Any:
    found = features(x, w)
    _, s, vt = jnp.linalg.svd(found - found.mean(axis=0), full_matrices=False)
    return s, jnp.abs(vt)  # rounding decides which sign a vector has


PROGRAMS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "triangular": (
        lambda x, w, y: jnp.linalg.qr(features(x, w), mode="r"),
        "reassociates",
        "split-triangular-factor",
    ),
    "raw factors": (lineax_like, "reassociates", "least-squares-by-reflections"),
    "components": (principal, "reassociates", "right-singular-vectors-of-factor"),
    "columns": (
        lambda x, w, y: by_factors(x, w, jnp.stack([y, y * y], 1)),
        "rescales",
        "least-squares",
    ),
    "batch": (jax.vmap(by_factors, in_axes=(None, 0, None)), "rescales", "least-squares"),
    "loop": (
        lambda x, w, y: jax.lax.scan(lambda c, _: (c + 0.01 * by_factors(x, c, y), None), w, None, 2)[0],
        "rescales",
        "least-squares",
    ),
    "lstsq": (lambda x, w, y: jnp.linalg.lstsq(features(x, w), y)[0], "rescales", "pseudo-inverse"),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in PROGRAMS), ("triangular", "float64")],
)
def test_a_program_never_stores_the_matrix(name: str, dtype: str) -> None:
    function, accuracy, rule = PROGRAMS[name]
    with jax.enable_x64(dtype == "float64"):
        rng = np.random.default_rng(0)
        w = np.linspace(0.5, 5, COLUMNS).astype(dtype)
        w = np.stack([w, w + 0.1]) if name == "batch" else w
        x = rng.uniform(-2, 2, ROWS).astype(dtype)
        args = (x, w, np.sin(x) + rng.normal(size=ROWS).astype(dtype))
        matrix = x.nbytes * w.size
        budget = 3 * x.nbytes + matrix // 2
        small = eqsat.optimize(function, budget=budget, accuracy=accuracy, max_slowdown=None)
        plan = small.plan(*args)
        assert plan.peak_bytes <= budget
        assert rule in plan.rules_fired
        exact = jax.tree.leaves(in_double_precision(function)(*args))
        for found, true in zip(jax.tree.leaves(small(*args)), exact, strict=True):
            most = 2e3 * np.finfo(dtype).eps * np.max(np.abs(true))
            np.testing.assert_allclose(found, true, rtol=0, atol=most)


GIVEN: dict[str, Callable[..., Any]] = {
    "triangular": lambda a, y: jnp.linalg.qr(a, mode="r"),
    "singular values": lambda a, y: jnp.linalg.svd(a, full_matrices=False)[1],
    "condition": lambda a, y: jnp.linalg.cond(a),
    "rank": lambda a, y: jnp.linalg.matrix_rank(a),
    "least squares": lambda a, y: jnp.linalg.lstsq(a, y)[0],
    "pseudo-inverse": lambda a, y: (lambda u, s, w: w.T @ ((u.T @ y) / s))(
        *jnp.linalg.svd(a, full_matrices=False)
    ),
}
"""Programs of a matrix that is there already: the routines of LAPACK would copy it."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", GIVEN)
def test_a_given_matrix_is_not_copied(name: str) -> None:
    rng = np.random.default_rng(0)
    args = (rng.normal(size=(ROWS, COLUMNS)).astype("float32"), rng.normal(size=ROWS).astype("float32"))
    fixed = sum(arg.nbytes for arg in args if arg.ndim == 2 or name in ("least squares", "pseudo-inverse"))
    small = eqsat.optimize(GIVEN[name], budget=fixed + args[0].nbytes // 2, accuracy="rescales")
    assert small.plan(*args).peak_bytes <= fixed + args[0].nbytes // 2
    exact = np.asarray(in_double_precision(GIVEN[name])(*args))
    np.testing.assert_allclose(small(*args), exact, rtol=0, atol=1e-4 * np.max(np.abs(exact)))
