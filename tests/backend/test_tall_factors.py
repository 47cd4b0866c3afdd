"""Factors of tall matrices by chunks of rows, beside those of the whole matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.backend import column_order
from eqsat.ir.numpy_linalg import norm, qr
from eqsat.ir.row_factors import FUNCTIONS, MOST_LEVELS

WRITTEN: dict[str, object] = {"jnp": jnp, "lax": lax}
exec(column_order.FUNCTION + FUNCTIONS, WRITTEN)
ADD_ROWS, FACTORS = jax.jit(WRITTEN["add_rows"]), jax.jit(WRITTEN["factors"])

COLUMNS = 5


def by_chunks(parts: list[np.ndarray], length: int) -> list[np.ndarray]:
    """Returns R of the first part, and Q^T of the others, by chunks of that length."""
    rows, columns = parts[0].shape[-2:]
    first, factors = (
        [jnp.zeros((*lead, *p.shape[:-2], columns, p.shape[-1]), p.dtype) for p in parts]
        for lead in ((), (MOST_LEVELS,))
    )
    lost = [jnp.zeros((*p.shape[:-2], p.shape[-1]), bool) for p in parts]
    state = first, factors, lost, jnp.full(parts[0].shape[:-2], columns)
    for count, start in enumerate(range(0, rows, length)):
        chunk = [part[..., start : start + length, :] for part in parts]
        state = ADD_ROWS(state, chunk, start, count)
    return [np.asarray(found) for found in FACTORS(state)]


def drawn(kind: str, rows: int, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(rows)
    a = rng.normal(size=(rows, COLUMNS))
    if kind == "scales":
        a *= 10.0 ** np.arange(-2, 3)
    if kind == "zero column":
        a[:, 2] = 0
    if kind == "triangular":
        a[COLUMNS:] = 0
        a = np.triu(a)
    if kind == "zeros below":
        a[1:, 0] = 0
    if kind == "zero":
        a *= -0.0
    if "complex" in dtype:
        a = a + 1j * rng.normal(size=a.shape)
    return a.astype(dtype)


@pytest.mark.parametrize("kind", ["scales", "zero column", "triangular", "zeros below", "zero"])
@pytest.mark.parametrize(("rows", "length"), [(83, 7), (84, 2)])
def test_the_factor_has_the_signs_of_that_of_the_whole(kind: str, rows: int, length: int) -> None:
    a = drawn(kind, rows)
    (found,) = by_chunks([a], length)
    whole = np.asarray(jnp.linalg.qr(a, mode="r"))
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-5 * np.max(np.abs(whole), initial=0))
    np.testing.assert_array_equal(np.sign(np.diag(found)), np.sign(np.diag(whole)))


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_the_factor_has_the_dtype_of_the_matrix(dtype: str) -> None:
    with jax.enable_x64(True):
        a = drawn("scales", 83, dtype)
        (found,) = by_chunks([a], 9)
        whole = np.asarray(jnp.linalg.qr(a, mode="r"))
        assert found.dtype == dtype
        most = 100 * np.finfo(dtype).eps * np.max(np.abs(whole))
        np.testing.assert_allclose(found, whole, rtol=0, atol=most)


def test_a_factor_of_dependent_columns_still_makes_the_matrix() -> None:
    a = drawn("scales", 203)
    a[:, 3] = a[:, 1] - a[:, 0]
    b = np.cos(np.arange(203, dtype=np.float32))[:, None]
    r, turned = by_chunks([a, b], 11)
    np.testing.assert_allclose(r.T @ r, a.T @ a, rtol=0, atol=1e-5 * np.max(a.T @ a))
    np.testing.assert_allclose(r.T @ turned, a.T @ b, rtol=0, atol=1e-5 * np.max(np.abs(a.T @ b)))


def test_a_batch_is_factorised_matrix_by_matrix() -> None:
    a = np.stack([drawn("scales", 83), drawn("zero column", 83)])
    b = np.ones((2, 83, 3), np.float32)
    r, turned = by_chunks([a, b], 9)
    q, whole = jnp.linalg.qr(a)
    np.testing.assert_allclose(r, whole, rtol=0, atol=1e-5 * np.max(np.abs(whole)))
    np.testing.assert_allclose(turned, jnp.swapaxes(q, -1, -2) @ b, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("bad", "column"), [(np.nan, 0), (np.nan, 4), (np.inf, 2), (3e38, 2)])
def test_what_is_finite_of_the_whole_is_finite_by_chunks(bad: float, column: int) -> None:
    """If a column is not finite, the rows from its place on are not.

    Below the place of one whose length overflows, LAPACK leaves finite numbers that mean nothing.
    """
    a = drawn("scales", 83)
    a[30:50:7, column] = bad
    a[60, 3] = np.nan if bad != 3e38 else 0
    b = np.ones((83, 2), np.float32)
    b[1, 1] = np.inf
    found, turned = by_chunks([a, b], 9)
    q, whole = (np.asarray(factor) for factor in jnp.linalg.qr(a))
    rows = column + 1 if bad == 3e38 else COLUMNS
    found, turned, whole, q = found[:rows], turned[:rows], whole[:rows], q[:, :rows]
    fine = np.isfinite(whole)
    np.testing.assert_array_equal(np.isfinite(found), fine)
    np.testing.assert_allclose(found[fine], whole[fine], rtol=1e-4, atol=1e-4)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isfinite(turned), np.isfinite(q.T @ b))


def test_many_chunks_round_little_more_than_few() -> None:
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(4000, COLUMNS)) + 3).astype(np.float32)
    true = np.linalg.qr(a.astype(np.float64), mode="r")
    (found,) = by_chunks([a], 4)
    signs = np.sign(np.diag(found) * np.diag(true))[:, None]
    assert np.max(np.abs(found - signs * true)) < 2e-5 * np.max(np.abs(true))


def test_inputs_are_not_copied_as_a_whole() -> None:
    a = np.ones((20_000, 8), np.float32)
    plan = eqsat.optimize(lambda a: jnp.linalg.qr(jnp.sin(a), mode="r"), budget=a.nbytes + 300_000).plan(a)
    assert plan.peak_bytes <= a.nbytes + 300_000


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (2, 4, 4), (1, 3), (5, 1)])
def test_the_reference_factorises_as_lapack_does(shape: tuple[int, ...], dtype: str) -> None:
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        a = rng.normal(size=shape).astype(dtype)
        a[..., 1:, 0] = 0
        for found, expected in zip(qr(a), jnp.linalg.qr(a), strict=True):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, rtol=0, atol=30 * np.finfo(dtype).eps)


def test_lengths_overflow_only_themselves() -> None:
    huge = np.full((2, 4), 1e38, np.float32)
    huge[1] = 3e38
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(norm(huge), [2e38, np.inf])
    np.testing.assert_array_equal(norm(np.zeros((1, 3), np.float32)), [0])
