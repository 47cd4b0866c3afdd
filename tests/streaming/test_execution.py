"""Functions by passes over arguments that are not in memory: the results are those of the whole function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.streaming.checkpoints import on_disk
from eqsat.streaming.execution import Execution
from eqsat.streaming.planner import StreamPlanner
from eqsat.streaming.sources import on_host
from eqsat.streaming.steps import Streaming
from tests.nightly import nightly_but
from tests.stages import normal
from tests.streaming.unplanned import new_sinks, planner, run_by_passes, steps_of

N, M = 301, 20
FREE = 3_000
"""Bytes of the device's memory, of which the inputs take more."""


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-0.5 * jnp.sum((x[:, None] - y[None]) ** 2, axis=-1)) @ v


def lloyd(x: Any, centres: Any) -> Any:
    """One iteration of k-means."""
    labels = jnp.argmin(jnp.sum((x[:, None] - centres[None]) ** 2, axis=-1), axis=1)
    count = len(centres)
    sums = jax.ops.segment_sum(x, labels, count)
    return sums / jnp.maximum(jax.ops.segment_sum(jnp.ones(len(x)), labels, count), 1)[:, None]


def logistic(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean(jnp.logaddexp(0.0, -y * (x @ w)))


X, Y, W = normal(N, 5), normal(M, 5), normal(5)
LONG = normal(5 * N)

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "mean and variance": (lambda x: (jnp.mean(x, 0), jnp.var(x, 0)), (X,), (0,)),
    "softmax": (jax.nn.softmax, (LONG,), (0,)),
    "rows of a kernel": (kernel, (X, Y, normal(M)), (0,)),
    "columns of a kernel": (lambda x, y, v: kernel(y, x, v), (X, Y, normal(N)), (0, 2)),
    "two files": (kernel, (X, normal(N + 7, 5), normal(N + 7)), (0, 1, 2)),
    "a file with itself": (lambda x, v: kernel(x, x, v), (X, normal(N)), (0, 1)),
    "nearest": (lambda x, c: jnp.argmin(jnp.sum((x[:, None] - c[None]) ** 2, -1), 1), (X, Y), (0,)),
    "nearest to each": (lambda x, c: jnp.argmax(x @ c.T, 0), (X, Y), (0,)),
    "top entries": (lambda x, q: lax.top_k(q @ x.T, 5), (X, Y), (0,)),
    "k-means": (lloyd, (X, Y), (0,)),
    "iterations of k-means": (lambda x, c: lax.fori_loop(0, 3, lambda _, c: lloyd(x, c), c), (X, Y), (0,)),
    "gradient": (jax.value_and_grad(logistic), (W, X, normal(N)), (1, 2)),
    "covariance": (lambda x: (x - x.mean(0)).T @ (x - x.mean(0)) / len(x), (X,), (0,)),
    "histogram": (lambda x: jnp.histogram(x, bins=7, range=(-2.0, 2.0))[0], (LONG,), (0,)),
    "median": (jnp.median, (normal(20_000),), (0,)),
    "all pairs": (lambda x, y: jnp.exp(x[:, None] * y[None]), (normal(N), normal(N + 2)), (0, 1)),
    "standardised": (lambda x: (x - x.mean(0)) / x.std(0), (X,), (0,)),
    "what is read": (lambda x: (x, 2 * x, x.T, x.reshape(-1)), (X,), (0,)),
    "indices": (lambda x: jnp.sum(jnp.where(jnp.arange(len(x)) % 3 == 0, x, -x)), (LONG,), (0,)),
    "narrow floats": (lambda x: x.astype(jnp.bfloat16).sum(0), (X,), (0,)),
    "until it is small": (
        lambda x: lax.while_loop(lambda w: jnp.sum((x @ w) ** 2) > 50, lambda w: 0.9 * w, jnp.ones(5)),
        (X,),
        (0,),
    ),
    "a scan around it": (
        lambda x: lax.scan(lambda c, q: (c + jnp.sum(x * q), jnp.max(x * q)), 0.0, jnp.linspace(0, 1, 4)),
        (LONG,),
        (0,),
    ),
    "a choice": (lambda p, x: lax.cond(p > 0, jnp.sum, jnp.max, x), (np.float32(1), LONG), (1,)),
    "booleans": (lambda x: (jnp.any(x > 2), jnp.all(x > -9), jnp.prod(1 + x / 99)), (LONG,), (0,)),
    "columns of a file": (lambda x: jnp.sum(jnp.exp(x), axis=1), (X.T.copy(),), (0,)),
    "differences": (lambda x: jnp.sum(jnp.abs(x[1:] - x[:-1]), 0), (X,), (0,)),
    "rows of a transposed file": (lambda x: jnp.sum(jnp.abs(x.T[1:] - x.T[:-1]), 0), (X.T.copy(),), (0,)),
    "part of a transposed square": (lambda x: (x.T[1:, :99] * 2, x.T[1:3, :2]), (normal(N, N),), (0,)),
    "some rows": (lambda x: (x[10:-5] * 2, x[::3].sum(0), x[7], x[-1]), (X,), (0,)),
    "a batch of loops": (
        lambda x: jax.vmap(lambda r: lax.while_loop(lambda s: s > 1, lambda s: s / 2, jnp.abs(r[0]) * 9))(x),
        (X,),
        (0,),
    ),
}


def check(name: str, args: tuple[Any, ...], length: int, rtol: float = 1e-5) -> None:
    """Compare with the whole function, in chunks of about that length."""
    fn, _, streamed = CASES[name]
    plan, steps = planned(name)
    files = [on_host(arg) if number in streamed else arg for number, arg in enumerate(args)]
    got = run_by_passes(plan, steps, files, length)
    for one, other in zip(got, jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=rtol, atol=rtol
        )


@functools.cache
def planned(name: str) -> tuple[StreamPlanner, Streaming]:
    fn, args, streamed = CASES[name]
    plan = planner(fn, args, streamed)
    steps = steps_of(plan, free_for(args, streamed))
    assert steps.passes
    return plan, steps


def free_for(args: tuple[Any, ...], streamed: tuple[int, ...]) -> int:
    """Bytes, of which what is read takes several times more."""
    return max(FREE, max(args[number].nbytes for number in streamed) // 4)


SIMILAR = {
    "a choice",
    "columns of a file",
    "covariance",
    "indices",
    "k-means",
    "nearest",
    "softmax",
    "standardised",
    "a scan around it",
}
"""Cases of which others are like them."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", nightly_but(set(CASES) - SIMILAR, CASES))
def test_results_are_those_of_the_whole_function(name: str) -> None:
    _, args, streamed = CASES[name]
    check(name, args, max(args[streamed[0]].shape) // 3 + 1)


class Stopped(Exception):
    """The run was stopped after a chunk."""


@dataclass
class StopAfter:
    """Stops a run after so many chunks, and saves how far it has come."""

    left: int
    saved: tuple[Any, Any] = ((), {})

    def __call__(self, run: Execution) -> None:
        self.left -= 1
        if self.left == 0:
            self.saved = tuple(run.path), on_disk(run.arrays)
            raise Stopped


@pytest.mark.parametrize(
    "name",
    nightly_but(
        {"two files", "top entries", "iterations of k-means"},
        ["softmax", "two files", "top entries", "iterations of k-means", "a scan around it", "all pairs"],
    ),
)
def test_a_run_goes_on_after_any_chunk(name: str) -> None:
    _, args, streamed = CASES[name]
    plan, steps = planned(name)
    files = [on_host(arg) if number in streamed else arg for number, arg in enumerate(args)]
    length = max(args[streamed[0]].shape) // 3 + 1
    count = 0

    def counting(_: Execution) -> None:
        nonlocal count
        count += 1

    wanted = run_by_passes(plan, steps, files, length, counting)
    assert count > 2
    for last in range(1, count + 1):
        sinks = new_sinks(plan, steps)
        stop = StopAfter(last)
        with pytest.raises(Stopped):
            run_by_passes(plan, steps, files, length, stop, sinks=sinks)
        got = run_by_passes(plan, steps, files, length, resumed=stop.saved, sinks=sinks)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_nothing_is_dropped_while_a_computation_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of what is still read is not free when it is dropped, and that is not certified."""

    def slow(x: Any) -> Any:
        rows = lax.fori_loop(0, 3_000, lambda _, rows: jnp.sin(rows), x)
        return (rows - jnp.mean(x, 0)).sum()

    x = normal(6_000, 5)
    plan = planner(slow, (x,), (0,))
    steps = steps_of(plan, x.nbytes // 4)
    ready, keep = [], Execution._keep

    def watched(run: Execution, needed: frozenset[Any]) -> None:
        ready.extend(array.is_ready() for array in run.arrays.values() if isinstance(array, jax.Array))
        keep(run, needed)

    monkeypatch.setattr(Execution, "_keep", watched)
    got = run_by_passes(plan, steps, [on_host(x)], 2_000)
    assert len(ready) > 3
    assert all(ready)
    np.testing.assert_allclose(got[0], jax.jit(slow)(x), rtol=1e-4)


HOSTILE = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38, 1.0, -1.0, 2.0]


@pytest.mark.parametrize(
    "name",
    nightly_but(
        {"nearest to each", "top entries", "booleans"},
        ["nearest to each", "top entries", "booleans", "histogram", "what is read", "softmax", "indices"],
    ),
)
def test_hostile_values_come_through(name: str) -> None:
    _, args, streamed = CASES[name]
    for seed in range(3):
        random = np.random.default_rng(seed)
        hostile = list(args)
        for number in streamed:
            where = random.random(args[number].shape) < (0.5, 0.02, 0.002)[seed]
            hostile[number] = np.where(where, random.choice(HOSTILE, args[number].shape), args[number])
            hostile[number] = hostile[number].astype(np.float32)
        check(name, tuple(hostile), max(args[streamed[0]].shape) // 3 + 1)
