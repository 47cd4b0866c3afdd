"""Factors of tall matrices, and least squares, of what is not in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.streaming.sources import on_host
from tests.nightly import nightly_but
from tests.stages import normal
from tests.streaming.test_execution import StopAfter, Stopped
from tests.streaming.unplanned import planner, run_by_passes, steps_of

ROWS = 301
A, B, TWO = normal(ROWS, 5), normal(ROWS), normal(ROWS, 2)


def by_q(a: Any, b: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return jax.scipy.linalg.solve_triangular(r, q.T @ b)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "R": (lambda a: jnp.linalg.qr(a, mode="r"), (A,), (0,)),
    "R of what is computed": (lambda a, w: jnp.linalg.qr(jnp.tanh(a @ w), mode="r"), (A, normal(5, 3)), (0,)),
    "R of what is centred": (lambda a: jnp.linalg.qr(a - a.mean(0), mode="r"), (A,), (0,)),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), (A,), (0,)),
    "a condition number": (jnp.linalg.cond, (A,), (0,)),
    "least squares": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (A, B), (0, 1)),
    "least squares of two columns": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (A, TWO), (0, 1)),
    "least squares of one file": (lambda a: jnp.linalg.lstsq(a[:, :4], a[:, 4])[0], (A,), (0,)),
    "least squares by Q": (by_q, (A, B), (0, 1)),
    "R of a batch": (lambda a: jnp.linalg.qr(a, mode="r"), (normal(3, ROWS, 4),), (0,)),
    "R of columns": (lambda a: jnp.linalg.qr(a.T, mode="r"), (normal(4, ROWS),), (0,)),
}


def passes_of(name: str) -> tuple[Any, Any, list[Any], Any]:
    fn, args, streamed = CASES[name]
    plan = planner(fn, args, streamed, "rescales")
    steps = steps_of(plan, max(args[number].nbytes for number in streamed) // 4)
    files = [on_host(arg) if number in streamed else arg for number, arg in enumerate(args)]
    return plan, steps, files, jax.tree.leaves(jax.jit(fn)(*args))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("length", [100, 7])
@pytest.mark.parametrize("name", nightly_but(["R", "least squares of two columns", "R of a batch"], CASES))
def test_results_are_those_of_the_whole_function(name: str, length: int) -> None:
    plan, steps, files, wanted = passes_of(name)
    for one, other in zip(run_by_passes(plan, steps, files, length), wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_what_is_finite_of_the_whole_is_finite_by_chunks(bad: float) -> None:
    a = normal(ROWS, 5)
    a[200, 2] = bad
    fn = lambda a: jnp.linalg.qr(a, mode="r")  # noqa: E731
    plan = planner(fn, (a,), (0,))
    (found,) = run_by_passes(plan, steps_of(plan, a.nbytes // 4), [on_host(a)], 40)
    # Below the place of a column whose length overflows, LAPACK leaves finite numbers that mean nothing.
    found, wanted = (np.asarray(one)[:3] for one in (found, jax.jit(fn)(a)))
    known = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(found), known)
    np.testing.assert_allclose(found[known], wanted[known], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stop", [2, 5])
def test_a_run_goes_on_with_the_factors_that_it_has(stop: int) -> None:
    plan, steps, files, wanted = passes_of("least squares")
    stopping = StopAfter(stop)
    with pytest.raises(Stopped):
        run_by_passes(plan, steps, files, 50, stopping)
    (found,) = run_by_passes(plan, steps, files, 50, resumed=stopping.saved)
    np.testing.assert_allclose(found, wanted[0], rtol=1e-5)


def test_a_file_is_read_once_within_the_budgets(tmp_path: Path) -> None:
    a, b = normal(40_000, 6), normal(40_000)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    files = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "ab"]
    run = eqsat.optimize(by_q, budget="300kB", accuracy="rescales")
    plan = run.plan(*files)
    assert plan.peak_bytes <= 300_000
    assert set(plan.read.values()) == {1}
    np.testing.assert_allclose(run(*files), np.linalg.lstsq(a, b, rcond=None)[0], rtol=1e-3, atol=1e-5)
