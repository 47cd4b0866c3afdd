"""Batches of small matrices: chunks of them are brought into LAPACK's order, not all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular

import eqsat
from tests.nightly import nightly_but
from tests.stages import normal

COUNT, ROWS, COLUMNS = 600, 40, 20


def by_factors(a: Any, b: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return solve_triangular(r, q.T @ b)


def gram(a: Any) -> Any:
    return a.T @ a + jnp.eye(COLUMNS)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "qr": by_factors,
    "svd": lambda a, b: jnp.linalg.svd(a, full_matrices=False)[0].T @ b,
    "least squares": lambda a, b: jnp.linalg.lstsq(a, b)[0],
    "cholesky": lambda a, b: cho_solve(cho_factor(gram(a)), b[:COLUMNS]),
    "lower": lambda a, b: solve_triangular(a[:COLUMNS], b[:COLUMNS], lower=True),
    "upper": lambda a, b: solve_triangular(a[:COLUMNS] + 9 * jnp.eye(COLUMNS), b[:COLUMNS]),
    "solve": lambda a, b: jnp.linalg.solve(a[:COLUMNS] + 9 * jnp.eye(COLUMNS), b[:COLUMNS]),
    "inverse": lambda a, b: jnp.linalg.inv(a[:COLUMNS] + 9 * jnp.eye(COLUMNS)) @ b[:COLUMNS],
    "determinant": lambda a, b: jnp.linalg.slogdet(gram(a))[1],
    "eigenvectors": lambda a, b: jnp.abs(jnp.linalg.eigh(gram(a))[1]) @ b[:COLUMNS],
    "gradient": jax.grad(lambda a, b: jnp.linalg.slogdet(gram(a))[1] + b.sum()),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", nightly_but({"qr", "solve", "lower", "gradient", "svd"}, PROGRAMS))
def test_a_batch_of_matrices_is_not_copied_as_a_whole(name: str) -> None:
    fn = jax.vmap(PROGRAMS[name])
    a, b = normal(COUNT, ROWS, COLUMNS), normal(COUNT, ROWS)
    if name == "lower":
        a[:, :COLUMNS] += 9 * np.eye(COLUMNS, dtype=np.float32)
    result = jax.eval_shape(fn, a, b)
    budget = a.nbytes + b.nbytes + 4 * result.size + a.nbytes // 4
    optimized = eqsat.optimize(fn, budget=budget)
    assert optimized.plan(a, b).peak_bytes <= budget
    wanted = jax.jit(fn)(a, b)
    np.testing.assert_allclose(optimized(a, b), wanted, rtol=1e-3, atol=1e-4 * float(jnp.abs(wanted).max()))


def test_one_triangular_matrix_is_read_as_it_lies() -> None:
    a, b = normal(300, 300) + 30 * np.eye(300, dtype=np.float32), normal(300, 4000)
    fn = lambda a, b: jnp.sum(solve_triangular(a, b, lower=True) ** 2, axis=0)  # noqa: E731
    plan = eqsat.optimize(fn, budget=a.nbytes + b.nbytes + b.nbytes // 8).plan(a, b)
    assert "columns_in_order" not in plan.source
