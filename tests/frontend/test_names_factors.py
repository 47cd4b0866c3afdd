"""The names of factors: which are read alone, which beside others, and what LAPACK's raw ones are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.frontend.named import names
from tests.stages import normal

A, BATCH, B = normal(6, 4), normal(5, 6, 4), normal(6, 3)


@pytest.mark.parametrize("a", [normal(4, 4), A, BATCH])
def test_factors_that_are_both_read(a: Any) -> None:
    rows, columns = a.shape[-2:]
    wanted = {f"qr_q[{rows} {columns}](0)", f"qr_r_beside_q[{rows} {columns} {columns}](0)"}
    assert set(names(jnp.linalg.qr, a)) == wanted


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda a: jnp.linalg.qr(a, mode="r"), "qr_r[6 4 4](0)"),
        (lambda a: jnp.linalg.qr(a)[1], "qr_r[6 4 4](0)"),
        (lambda a: jnp.linalg.svd(a, compute_uv=False), "svd_s[6 4 4](0)"),
        (lambda a: jnp.linalg.svd(a.T, compute_uv=False), "svd_s[6 4 4](0)"),
        (lambda a: jnp.linalg.svd(a, full_matrices=False)[2], "svd_v[6 4 4](0)"),
        (lambda a: jnp.linalg.svd(a, full_matrices=False)[0], "svd_u[6 4 4](0)"),
    ],
)
def test_a_factor_that_is_read_alone(fn: Callable[..., Any], wanted: str) -> None:
    assert wanted in names(fn, A)


def test_a_factor_beside_another_is_not_named_as_if_it_were_alone() -> None:
    both = names(lambda a: jnp.linalg.svd(a, full_matrices=False), A)
    assert "svd_v_beside_u[6 4 4](0)" in both
    assert not any(name.startswith("svd_v[") for name in both)
    assert not any(name.startswith("qr_r[") for name in names(jnp.linalg.qr, A))


def test_factors_that_have_no_name() -> None:
    assert names(jnp.linalg.qr, normal(3, 5)) == []
    assert names(jnp.linalg.qr, normal(4, 4) + 1j) == []
    assert names(lambda a: jnp.linalg.qr(a, mode="complete"), A) == []
    assert names(lambda a: jnp.linalg.svd(a)[0], A) == []
    assert names(lambda a: jnp.linalg.svd(a, compute_uv=False), A + 1j) == []


def solved(a: Any, b: Any, rows: int = 4, lower: bool = False, transpose: bool = True) -> Any:
    """Least squares by LAPACK's raw factors; with other arguments, something else."""
    reflections, scales = jnp.linalg.qr(a, mode="raw")
    factors = jnp.swapaxes(reflections, -1, -2)
    turned = lax.linalg.ormqr(factors, scales, b, transpose=transpose)[..., :rows, :]
    return jax.scipy.linalg.solve_triangular(factors[..., :rows, :rows], turned, lower=lower)


@pytest.mark.parametrize(("a", "b"), [(A, B), (BATCH, normal(5, 6, 2))])
def test_least_squares_by_raw_factors(a: Any, b: Any) -> None:
    found = names(solved, a, b)
    assert "qr_qt[6 4 4](0, 1)" in found
    assert any(name.startswith("solve_upper[4 4](qr_r_beside_q[6 4 4](0)") for name in found)


def test_raw_factors_that_are_used_otherwise_have_no_names() -> None:
    def factors(**options: Any) -> set[str]:
        found = " ".join(names(lambda a, b: solved(a, b, **options), A, B))
        return {name for name in ("qr_qt", "qr_r_beside_q") if name in found}

    assert factors() == {"qr_qt", "qr_r_beside_q"}
    assert factors(lower=True) == {"qr_qt"}  # what is below the factor are reflections
    assert factors(transpose=False) == {"qr_r_beside_q"}
    assert factors(rows=3) == set()
