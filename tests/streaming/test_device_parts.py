"""Chunks on several devices: each receives its part, and the results are those of one device.

This file runs by itself with four devices; with one, all that runs is that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.streaming.after_chunks import AfterChunks
from eqsat.streaming.execution import Execution
from eqsat.streaming.sources import Source
from tests.nightly import nightly_but
from tests.processes import check_processes
from tests.stages import normal

COUNT = 4
several = pytest.mark.skipif(len(jax.devices()) != COUNT, reason="it needs four devices")
MESH, SQUARE = {"data": 4}, {"data": 2, "model": 2}
BUDGET = 60_000

X, Y, Q = normal(4001, 8), normal(50, 8), normal(3, 8)


def kernel(x: Any, y: Any) -> Any:
    return jnp.exp(-0.5 * jnp.sum((x[:, None] - y[None]) ** 2, -1)) @ y


def lloyd(x: Any, centres: Any) -> Any:
    labels = jnp.argmin(jnp.sum((x[:, None] - centres[None]) ** 2, -1), 1)
    counts = jax.ops.segment_sum(jnp.ones(len(x)), labels, len(centres))
    return jax.ops.segment_sum(x, labels, len(centres)) / jnp.maximum(counts, 1)[:, None]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "mean and variance": (lambda x: (x.mean(0), x.var(0)), (X,), (0,)),
    "standardised": (lambda x: (x - x.mean(0)) / x.std(0), (X,), (0,)),
    "rows of a kernel": (kernel, (X, Y), (0,)),
    "two files": (kernel, (X, normal(1501, 8)), (0, 1)),
    "iterations of k-means": (lambda x, c: lax.fori_loop(0, 3, lambda _, c: lloyd(x, c), c), (X, Q), (0,)),
    "nearest": (lambda x, q: lax.top_k(q @ x.T, 5), (X, Q), (0,)),
    "gradient": (jax.grad(lambda w, x: jnp.mean(jnp.logaddexp(0.0, x @ w))), (X[0], X), (1,)),
    "a cumulative sum": (lambda x: jnp.cumsum(x, 0), (X,), (0,)),
    "sums from both ends": (lambda x: jnp.cumsum(x, 0) + lax.cumsum(x, 0, reverse=True), (X,), (0,)),
    "a scan over rows": (
        lambda x: lax.scan(lambda c, r: (0.5 * c + r, jnp.tanh(c)), jnp.zeros(8), x),
        (X,),
        (0,),
    ),
    "a flip": (lambda x: x[::-1] * 2, (X,), (0,)),
    "rows by indices": (lambda x, i: x[i], (X, np.arange(3000)[::-1] % 777), (0,)),
    "columns": (lambda x: jnp.sum(jnp.exp(x), 1), (X.T.copy(),), (0,)),
    "what is read": (lambda x: (x, x.T, x.reshape(-1)), (X,), (0,)),
    "a factor": (lambda x: jnp.linalg.qr(x, mode="r"), (X,), (0,)),
    "a median": (lambda x: jnp.median(x[:, 0]), (X,), (0,)),
}

QUICK = [
    *((name, MESH) for name in ("standardised", "what is read")),
    ("sums from both ends", MESH),
    ("a factor", MESH),
    ("iterations of k-means", SQUARE),
]


@several
@pytest.mark.parametrize(
    ("name", "mesh"), nightly_but(QUICK, [(n, m) for n in CASES for m in (MESH, SQUARE)])
)
def test_results_are_those_of_the_whole_function(name: str, mesh: Mapping[str, int]) -> None:
    fn, args, streamed = CASES[name]
    run = eqsat.optimize(fn, budget=BUDGET, mesh=mesh, stream_argnums=streamed)
    got, wanted = jax.tree.leaves(run(*args)), jax.tree.leaves(jax.jit(fn)(*args))
    for one, other in zip(got, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-4)


@several
def test_each_device_receives_only_its_part_which_is_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    before = Source.read

    def counted(self: Source, slices: tuple[slice, ...], into: np.ndarray[Any, Any]) -> None:
        read.append(slices[0].stop - slices[0].start)
        before(self, slices, into)

    run = eqsat.optimize(lambda x: x.sum(0), budget=BUDGET, mesh=MESH)
    x = eqsat.on_host(normal(4000, 8))
    (each,) = run.plan(x).passes
    monkeypatch.setattr(Source, "read", counted)
    run(x)
    assert each.share * COUNT == each.length
    assert f"{each.share:,} for each device" in str(run.plan(x))
    assert sum(read) == 4000
    assert max(read) == each.share


@several
@pytest.mark.parametrize(
    "name", nightly_but(["two files"], ["standardised", "two files", "a cumulative sum"])
)
def test_no_device_holds_more_than_its_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    before, old = AfterChunks.__call__, {id(array) for array in jax.live_arrays()}

    def counted(self: AfterChunks, run: Execution) -> None:
        held: Counter[jax.Device] = Counter()
        for array in jax.live_arrays():
            if id(array) not in old:
                for shard in array.addressable_shards:
                    held[shard.device] += shard.data.nbytes
        most.append(max(held.values(), default=0))
        before(self, run)

    monkeypatch.setattr(AfterChunks, "__call__", counted)
    fn, args, streamed = CASES[name]
    run = eqsat.optimize(fn, budget=BUDGET, mesh=MESH, stream_argnums=streamed)
    run(*args)
    marked = [eqsat.on_host(arg) if number in streamed else arg for number, arg in enumerate(args)]
    assert 0 < max(most) <= run.plan(*marked).peak_bytes <= BUDGET


HOSTILE = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3.5, 3.4e38], np.float32)


def hostile(x: Any, n: Any) -> Any:
    """Results that depend on no order: of the entries, and of sums of integers that wrap."""
    rows = (2 * x, jnp.roll(x, 1, axis=0), jnp.where(x > 0, x, -x))
    y = jnp.where(jnp.isnan(x), 0, x)  # XLA's extremes lose NaN of some lengths
    return *rows, y.max(0), jnp.argmin(y, 0), n.sum(0), jnp.cumsum(n, 0), jnp.isnan(x).sum()


@several
@pytest.mark.parametrize("count", nightly_but([1003], [1000, 1001, 1003]))
def test_hostile_entries_are_as_in_memory_at_lengths_that_devices_do_not_divide(count: int) -> None:
    random = np.random.default_rng(count)
    x = HOSTILE[random.integers(0, len(HOSTILE), (count, 5))]
    n = random.integers(-(2**31), 2**31, (count, 3), dtype=np.int32)
    run = eqsat.optimize(hostile, budget=8_000, mesh=MESH, stream_argnums=(0, 1))
    for one, other in zip(run(x, n), jax.jit(hostile)(x, n), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        got, wanted = np.asarray(one), np.asarray(other)
        np.testing.assert_array_equal(got, wanted)
        if got.dtype.kind == "f":
            numbers = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))


@pytest.mark.nightly
@pytest.mark.skipif(len(jax.devices()) > 1, reason="each process has devices of its own")
@pytest.mark.parametrize("count", [2, 4])
def test_each_process_reads_and_writes_its_own_rows(count: int, tmp_path: Path) -> None:
    rows = normal(16_003, 8)
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "opened.npy", np.zeros_like(rows))
    check_processes("tests.streaming.several_readers", count, str(tmp_path))


def test_it_runs_on_four_devices() -> None:
    if len(jax.devices()) == COUNT:
        return
    flags = f"--xla_force_host_platform_device_count={COUNT}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", __file__],
        env={**os.environ, "XLA_FLAGS": flags},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]
