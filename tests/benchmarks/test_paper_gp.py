"""The benchmarks of kernel matrices and sparse GPs at a tiny size: within budget, right, and written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paper import kernel_matvec

# GPJax advises against single precision; its own dependencies may be late to follow JAX.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*float64"
)


def rows_of(benchmark: Callable[..., Any], folder: Path, *suffixes: str) -> Any:
    """What a benchmark finds, which has to keep to its budgets where plain JAX doesn't, and to be written."""
    rows = benchmark(["--quick"], folder)
    assert all(row.peak <= row.budget for row in rows)
    assert any(row.plain_peak > row.budget for row in rows)
    assert sorted(path.suffix for path in folder.iterdir()) == sorted(suffixes)
    return rows


@pytest.mark.nightly
def test_a_kernel_matrix_times_a_vector_is_plain_jaxs(tmp_path: Path) -> None:
    rows = rows_of(kernel_matvec.main, tmp_path, ".json", ".md", ".png")
    assert all(row.apart < 1e-12 for row in rows)


@pytest.mark.nightly
def test_more_inducing_points_pay(tmp_path: Path) -> None:
    pytest.importorskip("gpjax", reason="it takes no jax from 0.11 on")
    from benchmarks.paper import sparse_gp

    fewer, more = rows_of(sparse_gp.main, tmp_path, ".json", ".md", ".png")
    assert more.inducing > fewer.inducing
    assert more.bound > fewer.bound
    assert more.rmse < fewer.rmse < 1
    assert more.nlpd < fewer.nlpd


@pytest.mark.nightly
def test_training_takes_the_steps_of_plain_jax(tmp_path: Path) -> None:
    pytest.importorskip("gpjax", reason="it takes no jax from 0.11 on")
    from benchmarks.paper import sparse_gp_step

    (row,) = rows_of(sparse_gp_step.main, tmp_path, ".json", ".md")
    assert row.apart < 1e-5
    assert row.bounds == sorted(row.bounds)
