"""Filters, moving windows and lags of files: read by windows, in little memory, with results as in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from tests.nightly import nightly_but
from tests.stages import normal
from tests.streaming.test_rearranged import hostile, same

N = 60_013
TAPS = np.arange(9, dtype=np.float32) / 36


def filtered(x: Any, mode: str = "valid") -> Any:
    return jnp.convolve(x, TAPS, mode=mode)


def highest(x: Any, size: int = 16, step: int = 1, padding: str = "VALID") -> Any:
    rest = (1,) * (x.ndim - 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, (size, *rest), (step, *rest), padding)


def sliding(x: Any, size: int = 16) -> Any:
    return x[jnp.arange(len(x) - size + 1)[:, None] + jnp.arange(size)]


def frames(x: Any, size: int = 64, step: int = 16) -> Any:
    count = (len(x) - size) // step + 1
    return jax.vmap(lambda number: lax.dynamic_slice_in_dim(x, number * step, size))(jnp.arange(count))


CASES: dict[str, Callable[[Any], Any]] = {
    "filter": filtered,
    "filter of the same length": lambda x: filtered(x, "same"),
    "longer filter": lambda x: filtered(x, "full"),
    "filter of what is computed": lambda x: filtered(jnp.tanh(x)),
    "power after a filter": lambda x: jnp.mean(filtered(x) ** 2),
    "moving deviation": lambda x: jnp.sqrt(jnp.maximum(filtered(x * x) - filtered(x) ** 2, 0)),
    "highest of a filter": lambda x: (filtered(x), jnp.max(filtered(x))),
    "filter of a filter": lambda x: jnp.sum(jnp.abs(filtered(jax.nn.relu(filtered(x))))),
    "moving maximum": highest,
    "moving maximum of the same length": lambda x: highest(x, padding="SAME"),
    "below the moving maximum": lambda x: x - highest(x, padding="SAME"),
    "maximum in steps": lambda x: highest(x, 16, 4),
    "sliding windows": lambda x: jnp.max(sliding(x), axis=1),
    "sliding windows in a product": lambda x: sliding(x) @ jnp.arange(16.0),
    "sliding windows of what is computed": lambda x: jnp.sum(jnp.max(sliding(jnp.cos(x)), axis=1)),
    "spectra of frames": lambda x: jnp.mean(jnp.abs(jnp.fft.rfft(frames(x) * jnp.hanning(64), axis=1)), 0),
    "where a filter is highest": lambda x: jnp.argmax(filtered(x)),
    "spectra of padded frames": lambda x: jnp.mean(jnp.abs(jax.scipy.signal.stft(x, nperseg=64)[2]), 1),
    "spectra of frames of what is computed": lambda x: jnp.mean(
        jnp.abs(jax.scipy.signal.stft(jnp.tanh(x), nperseg=64)[2]), 1
    ),
    "filter of a ring": lambda x: filtered(jnp.pad(x, (4, 4), mode="wrap")),
    "filter of what is rolled": lambda x: jnp.max(filtered(jnp.roll(x, 5))),
    "windows backwards": lambda x: jnp.sum(x[jnp.arange(len(x) - 1, 99, -1)[:, None] - jnp.arange(9)], 1),
}
BY_ROWS: dict[str, Callable[[Any], Any]] = {
    "channels": lambda x: jax.vmap(filtered, in_axes=1, out_axes=1)(x),
    "channels in a sum": lambda x: jnp.sum(jax.vmap(filtered, in_axes=1, out_axes=1)(x) ** 2, 0),
    "moving maximum of rows": highest,
}


def check(fn: Callable[[Any], Any], x: Any, budget: int, out: Path) -> Any:
    names = jax.tree.map(lambda _: None, jax.eval_shape(fn, x))
    if isinstance(names, jax.ShapeDtypeStruct) or names is None:
        names = out / "result.npy"
    small = eqsat.optimize(fn, budget=budget, host_budget="8MB", out=names)
    for found, wanted in zip(
        jax.tree.leaves(small(eqsat.on_host(x))), jax.tree.leaves(jax.jit(fn)(x)), strict=True
    ):
        same(np.asarray(found), np.asarray(wanted))
    return small.plan(eqsat.on_host(x))


@pytest.mark.parametrize("name", nightly_but(sorted(CASES)[::3], CASES))
def test_windows_of_a_series(name: str, tmp_path: Path) -> None:
    plan = check(CASES[name], normal(N), 60_000, tmp_path)
    assert plan.read_bytes < 8 * N * 4


@pytest.mark.parametrize("name", BY_ROWS)
def test_windows_of_rows(name: str, tmp_path: Path) -> None:
    check(BY_ROWS[name], normal(20_011, 5), 100_000, tmp_path)


@pytest.mark.parametrize("name", ["filter", "moving maximum", "sliding windows"])
def test_windows_of_hostile_numbers(name: str, tmp_path: Path) -> None:
    """XLA for CPUs drops NaN from some windows, and either zero may be the largest: there are none."""
    x = hostile(normal(N))
    check(CASES[name], np.where(np.isnan(x) | (x == 0), np.float32(1), x), 60_000, tmp_path)


def test_a_file_is_read_once_for_overlapping_windows() -> None:
    small = eqsat.optimize(lambda x: jnp.max(sliding(x, 50) @ jnp.ones(50)), budget="60kB")
    plan = small.plan(eqsat.on_host(normal(N)))
    assert plan.read_bytes == pytest.approx(4 * N, rel=0.05)
    assert "windows of x" in str(plan)


def test_rows_in_excess_go_nowhere(tmp_path: Path) -> None:
    """What lies behind the end of an array that is written to stays as it was."""
    x = normal(N)
    place = np.memmap(tmp_path / "all", np.float32, "w+", shape=(N + 1000,))
    place[:] = 7
    eqsat.optimize(filtered, budget="60kB", out=place[: N - 8])(eqsat.on_host(x))
    same(np.asarray(place[: N - 8]), np.asarray(filtered(x)))
    assert (np.asarray(place[N - 8 :]) == 7).all()


def test_sums_of_windows_are_as_written_if_they_must_be_exact() -> None:
    exact = eqsat.optimize(lambda x: jnp.sum(filtered(x)), budget="60kB", accuracy="exact")
    with pytest.raises(eqsat.BudgetError):
        exact.plan(eqsat.on_host(normal(N)))
