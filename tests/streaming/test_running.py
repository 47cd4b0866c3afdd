"""Cumulative sums, and scans over rows, of what is not in memory: a state goes from chunk to chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.errors import BudgetError
from eqsat.streaming.sources import on_host
from tests.nightly import nightly_but
from tests.stages import normal
from tests.streaming.test_execution import StopAfter, Stopped
from tests.streaming.test_rearranged import hostile, same
from tests.streaming.unplanned import new_sinks, planner, run_by_passes, steps_of

N = 301
X, Y, W = normal(N, 5), normal(77, 5), normal(5)
BYTES = np.arange(N * 25, dtype=np.int32).reshape(N, 25).astype(np.int8)
WHOLE = np.arange(N * 5, dtype=np.int32).reshape(N, 5) * 12345677
ZERO = jnp.zeros(5)


def decayed(carry: Any, row: Any) -> Any:
    return 0.9 * carry + row, carry.sum()


def pairs(x: Any) -> Any:
    return jnp.tanh(jnp.cumsum(x[:, 0])[:, None] - jnp.cumsum(x[:, 1])[None]).sum(0)


def two_states(x: Any, y: Any) -> Any:
    def step(state: Any, rows: Any) -> Any:
        count, total = state
        return (count + 1, 0.5 * total + rows[0] * rows[1].sum()), total

    return lax.scan(step, (0, ZERO), (x, y))


def flags(x: Any) -> Any:
    return lax.scan(lambda c, r: ((c[0] | (r[0] > 2), c[1] * 3 + 1), c[1]), (False, jnp.int32(1)), x)


def epochs(x: Any) -> Any:
    def epoch(_: Any, w: Any) -> Any:
        return lax.scan(lambda w, row: (w - 0.01 * (row @ w) * row, None), w, x)[0]

    return lax.fori_loop(0, 3, epoch, jnp.ones(5))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "sums": (lambda x: jnp.cumsum(x, 0), (X,), (0,)),
    "sums of integers": (lambda x: jnp.cumsum(x, 0), (WHOLE,), (0,)),
    "sums of bytes": (lambda x: jnp.cumsum(x, 0, dtype=jnp.int8), (BYTES,), (0,)),
    "sums of complex numbers": (lambda x: jnp.abs(jnp.cumsum(x * (1 + 1j), 0)), (X,), (0,)),
    "sums from the end": (lambda x: lax.cumsum(x, 0, reverse=True), (X,), (0,)),
    "sums of columns": (lambda x: jnp.cumsum(x, 1), (X.T.copy(),), (0,)),
    "sums of sums": (lambda x: jnp.cumsum(jnp.cumsum(x, 0), 0), (X,), (0,)),
    "sums of a slice": (lambda x: jnp.cumsum(x[10:-7], 0), (X,), (0,)),
    "sums of a join": (lambda x, y: jnp.cumsum(jnp.concatenate([x, y]), 0), (X, Y), (0, 1)),
    "sums of what is computed": (lambda x, w: jnp.cumsum(jnp.tanh(x @ w)), (X, W), (0,)),
    "sums of rows": (
        lambda x, i: jnp.cumsum(x[i], 0),
        (X, np.random.default_rng(0).integers(-400, 400, 1000).astype(np.int32)),
        (0,),
    ),
    "a mean of sums": (lambda x: (jnp.cumsum(x, 0) ** 2).mean(0), (X,), (0,)),
    "where sums are largest": (lambda x: jnp.argmax(jnp.cumsum(x, 0), 0), (X,), (0,)),
    "sums less their means": (lambda x: jnp.cumsum(x - jnp.cumsum(x, 0).mean(0), 0), (X,), (0,)),
    "softmax of sums": (lambda x: jax.nn.softmax(jnp.cumsum(x, 0) / 100, 0), (X,), (0,)),
    "pairs of sums": (pairs, (X / 99,), (0,)),
    "sums in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda _, w: w + jnp.max(jnp.cumsum(x * w, 0), 0), jnp.ones(5)),
        (X / 99,),
        (0,),
    ),
    "the last sum": (lambda x: jnp.cumsum(x, 0)[-1], (X,), (0,)),
    "shares of the last sum": (lambda x: jnp.cumsum(x, 0) / jnp.cumsum(x, 0)[-1], (X,), (0,)),
    "the first of sums from the end": (lambda x: lax.cumsum(x, 0, reverse=True)[0], (X,), (0,)),
    "a sum of integers": (lambda x: jnp.cumsum(x, 0)[77], (WHOLE,), (0,)),
    "the last of computed sums": (lambda x: jnp.exp(-jnp.cumsum(x * x, 0) / 99)[-1], (X,), (0,)),
    "running maxima by a ufunc": (lambda x: jnp.maximum.accumulate(x), (X,), (0,)),
    "entries in a loop": (
        lambda x: lax.fori_loop(1, len(x), lambda i, s: 0.9 * s + x[i] - x[i - 1], x[0]),
        (X,),
        (0,),
    ),
    "entries from the end in a loop": (
        lambda x: lax.fori_loop(0, len(x), lambda i, s: 0.9 * s + x[len(x) - 1 - i], x[0]),
        (X,),
        (0,),
    ),
    "products": (lambda x: jnp.cumprod(x, 0), (1 + X / 100,), (0,)),
    "maxima": (lambda x: lax.cummax(x, 0), (X,), (0,)),
    "minima from the end": (lambda x: lax.cummin(x, 0, reverse=True), (X,), (0,)),
    "minima of bytes": (lambda x: lax.cummin(x, 0), (BYTES.astype(np.uint8),), (0,)),
    "log-sums of exponentials": (lambda x: lax.cumlogsumexp(x, 0), (X,), (0,)),
    "log-sums of exponentials from the end": (lambda x: lax.cumlogsumexp(x, 0, reverse=True), (X,), (0,)),
    "log-sums of what is computed": (lambda x, w: lax.cumlogsumexp(jnp.tanh(x @ w)).max(), (X, W), (0,)),
    "sums from both ends": (lambda x: jnp.cumsum(x, 0) * lax.cumsum(x, 0, reverse=True), (X,), (0,)),
    "sums of integers from both ends": (
        lambda x: (jnp.cumsum(x, 0) - lax.cumsum(x, 0, reverse=True), jnp.cumsum(x, 0)),
        (WHOLE,),
        (0,),
    ),
    "extremes from both ends": (lambda x: lax.cummax(x, 0) - lax.cummin(x, 0, reverse=True), (X,), (0,)),
    "sums from the end of sums": (lambda x: lax.cumsum(jnp.cumsum(x, 0), 0, reverse=True), (WHOLE,), (0,)),
    "sums of sums from the end": (lambda x: jnp.cumsum(lax.cumsum(x, 0, reverse=True), 0), (WHOLE,), (0,)),
    "there and back, and there again": (
        lambda x: jnp.cumsum(lax.cumsum(jnp.cumsum(x, 0), 0, reverse=True) + x, 0),
        (WHOLE,),
        (0,),
    ),
    "where maxima from the end are least": (
        lambda x: (jnp.argmin(lax.cummax(x, 0, reverse=True), 0), lax.cummax(x, 0, reverse=True)[:7].sum(0)),
        (WHOLE,),
        (0,),
    ),
    "scans from both ends": (
        lambda x: lax.scan(decayed, ZERO, x)[1] * lax.scan(decayed, ZERO, x, reverse=True)[1],
        (X,),
        (0,),
    ),
    "a scan from the end of a scan": (
        lambda x: lax.scan(decayed, 0.0, lax.scan(decayed, ZERO, x)[1], reverse=True),
        (X,),
        (0,),
    ),
    "sums of two files from both ends": (
        lambda x, y: (jnp.cumsum(x, 0) + lax.cumsum(y, 0, reverse=True)).max(0),
        (WHOLE, WHOLE[::-1].copy()),
        (0, 1),
    ),
    "sums from both ends in a loop": (
        lambda x: lax.fori_loop(
            0, 3, lambda k, w: w + (jnp.cumsum(x * w, 0) ^ lax.cumsum(x, 0, reverse=True)).max(0), x[0]
        ),
        (WHOLE,),
        (0,),
    ),
    "a map": (lambda x: lax.map(lambda row: jnp.tanh(row).sum(), x), (X,), (0,)),
    "a map by batches": (lambda x: lax.map(lambda row: jnp.tanh(row).sum(), x, batch_size=16), (X,), (0,)),
    "a scan": (lambda x: lax.scan(decayed, ZERO, x), (X,), (0,)),
    "a scan from the end": (lambda x: lax.scan(decayed, ZERO, x, reverse=True), (X,), (0,)),
    "the last state": (lambda x: lax.scan(decayed, ZERO, x)[0], (X,), (0,)),
    "a last state of -0": (
        lambda x: 1 / lax.scan(lambda c, r: (r * 0 - 0.0, None), ZERO, jnp.minimum(x, -1))[0],
        (X,),
        (0,),
    ),
    "two states and two files": (two_states, (X, normal(N, 3)), (0, 1)),
    "states of flags and integers": (flags, (X,), (0,)),
    "a scan from the first row": (lambda x: lax.scan(decayed, x[0], x), (X,), (0,)),
    "a scan of all but a row": (lambda x: lax.scan(decayed, x[0], x[1:]), (X,), (0,)),
    "a scan from the end of some rows": (lambda x: lax.scan(decayed, ZERO, x[3:], reverse=True), (X,), (0,)),
    "a scan of what is computed": (lambda x: lax.scan(decayed, ZERO, x - x.mean(0))[1], (X,), (0,)),
    "a scan beside what it is of": (lambda x: (lax.scan(decayed, ZERO, x)[1] * x[:, 0]).sum(), (X,), (0,)),
    "a scan and an array in memory": (
        lambda x, w: lax.scan(lambda c, r: (c + r[0] * r[1], c.sum()), ZERO, (x, w)),
        (X, normal(N)),
        (0,),
    ),
    "a scan of a scan": (lambda x: lax.scan(decayed, 0.0, lax.scan(decayed, ZERO, x)[1]), (X,), (0,)),
    "a scan with a loop inside": (
        lambda x: lax.scan(lambda c, r: (lax.fori_loop(0, 3, lambda _, c: 0.5 * c + r, c), c.sum()), ZERO, x),
        (X,),
        (0,),
    ),
    "a batch of scans": (
        lambda x: jax.vmap(lambda c: lax.scan(decayed, c, x)[0], in_axes=1)(jnp.ones((5, 3))),
        (X,),
        (0,),
    ),
    "epochs": (epochs, (X,), (0,)),
}

ALIKE = {"sums", "sums from the end", "a scan", "the last state", "epochs", "sums in a loop", "pairs of sums"}
BOTH = ["sums of integers from both ends", "there and back, and there again", "a scan from the end of a scan"]
ALIKE |= {*BOTH, "extremes from both ends", "sums from both ends in a loop"}
MILD = {"epochs", "sums in a loop", "products", "sums of sums", "sums less their means", "softmax of sums"}
"""Cases whose rounding errors grow with hostile values."""


def prepared(name: str, mild: bool) -> Any:
    fn, given, streamed = CASES[name]
    args = given if mild else tuple(hostile(a) if n in streamed else a for n, a in enumerate(given))
    plan = planner(fn, args, streamed)
    steps = steps_of(plan, max(3_000, max(args[number].nbytes for number in streamed) // 4))
    assert steps.passes
    return plan, steps, args, [on_host(a) if n in streamed else a for n, a in enumerate(args)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", nightly_but(sorted(set(CASES) - ALIKE)[::2], CASES))
@pytest.mark.parametrize("length", nightly_but([37], [100, 37]))
def test_results_are_those_of_the_whole_function(name: str, length: int) -> None:
    plan, steps, args, files = prepared(name, name in MILD)
    got = run_by_passes(plan, steps, files, length)
    for one, other in zip(got, jax.tree.leaves(jax.jit(CASES[name][0])(*args)), strict=True):
        if name in MILD:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        else:
            same(np.asarray(one), np.asarray(other))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["sums", "sums from the end", "a scan", "epochs", *BOTH])
def test_a_run_goes_on_after_any_chunk(name: str) -> None:
    plan, steps, _, files = prepared(name, True)
    wanted = run_by_passes(plan, steps, files, 100)
    for last in range(1, 7):
        sinks = new_sinks(plan, steps)
        stop = StopAfter(last)
        try:
            run_by_passes(plan, steps, files, 100, stop, sinks=sinks)
        except Stopped:
            got = run_by_passes(plan, steps, files, 100, resumed=stop.saved, sinks=sinks)
        else:
            assert last > 3
            break
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


LONG = normal(100_000, 4)


def test_sums_of_a_file_go_to_a_file(tmp_path: Any) -> None:
    run = eqsat.optimize(
        lambda x: jnp.cumsum(x, axis=0), budget="300kB", host_budget="500kB", out=tmp_path / "sums.npy"
    )
    got = run(on_host(LONG))
    assert isinstance(got, np.memmap)
    np.testing.assert_allclose(got, np.cumsum(LONG.astype(np.float64), 0), rtol=1e-3, atol=1e-2)
    assert run.plan(on_host(LONG)).read == {"x": 1}


@pytest.mark.parametrize(
    "function",
    [
        # Each iteration begins anew, so no loop over chunks can be outside of all of them.
        lambda x: lax.fori_loop(0, 3, lambda _, y: jnp.cumsum(y, 0) * 0.1 + x, x).sum(0),
        lambda x: jnp.sort(jnp.cumsum(x, 0), 0),
    ],
)
def test_what_chunks_in_one_order_can_not_give_is_refused(function: Any, tmp_path: Any) -> None:
    with pytest.raises(BudgetError, match="no program was found"):
        eqsat.optimize(function, budget="300kB", out=None)(on_host(LONG))


def test_sums_are_not_rounded_otherwise_if_they_must_not_be() -> None:
    with pytest.raises(BudgetError):
        eqsat.optimize(lambda x: jnp.cumsum(x, 0).max(0), budget="300kB", accuracy="exact")(on_host(LONG))
    exact = eqsat.optimize(lambda x: lax.cummax(x, 0).min(0), budget="300kB", accuracy="exact")
    np.testing.assert_array_equal(exact(on_host(LONG)), lax.cummax(LONG, 0).min(0))


@pytest.mark.parametrize(
    "fn",
    [
        jnp.cumsum,
        lambda x: lax.cumsum(x, reverse=True),
        lambda x: lax.scan(lambda c, row: (c, 2 * row), jnp.float32(0), x)[1].sum(),
    ],
)
def test_long_running_sums_lose_nothing(fn: Callable[[Any], Any]) -> None:
    """Entry by entry, 3 million times 0.1 come to 290,775 in single precision."""
    x = np.full(3_000_000, 0.1, np.float32)
    optimized = eqsat.optimize(fn, budget="400kB")
    found = np.asarray(optimized(on_host(x)), np.float64)
    total = 3_000_000 * np.float64(np.float32(0.1))
    assert abs(found.max() / total - (2 if found.ndim == 0 else 1)) < 3e-7
    if fn is jnp.cumsum:
        np.testing.assert_allclose(found, np.cumsum(x, dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("what", [np.inf, -np.inf, np.nan])
def test_running_sums_go_through_infinity_as_in_memory(what: float) -> None:
    x = np.linspace(-1, 1, 100_000, dtype=np.float32)
    x[40_000], x[70_000] = what, np.inf
    found = eqsat.optimize(jnp.cumsum, budget="100kB")(on_host(x))
    wanted = np.asarray(jnp.cumsum(x))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(found[np.isinf(wanted)], wanted[np.isinf(wanted)])
    np.testing.assert_allclose(found[:40_000], wanted[:40_000], rtol=1e-3, atol=1e-3)


def test_a_loop_over_minibatches_compiles_as_much_for_many_as_for_few(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program for every iteration took a hundred times as long, and memory that nobody gave back."""
    x = normal(30_000, 4)

    def compiled(count: int) -> int:
        def descent(w: Any, x: Any) -> Any:
            def step(w: Any, k: Any) -> Any:
                return w + lax.dynamic_slice_in_dim(x, k * 100, 100).mean(0), None

            return lax.scan(step, w, jnp.arange(count))[0]

        optimized = eqsat.optimize(descent, budget="100kB")
        optimized.plan(X[0, :4], on_host(x))
        caplog.clear()
        with jax.log_compiles():
            optimized(X[0, :4], on_host(x))
        return sum("Compiling" in record.getMessage() for record in caplog.records)

    assert 0 < compiled(41) <= compiled(7)
