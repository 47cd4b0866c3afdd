"""Functions that take, flip, roll, pad, join and reshape what is not in memory: results as in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.streaming.sources import on_host
from tests.nightly import nightly_but
from tests.stages import normal
from tests.streaming.unplanned import planner, run_by_passes, steps_of

N = 301
FREE = 3_000
"""Bytes of the device's memory, of which the inputs take more."""

X, Y, SQUARE = normal(N, 5), normal(77, 5), normal(N, N)
ROWS = np.array([3, -1, 300, 0, -301, 17, 17, 500, -400, 299], np.int32)
MANY = np.random.default_rng(0).integers(-400, 400, 1000).astype(np.int32)
NEIGHBOURS = np.random.default_rng(1).integers(0, N, (N, 3)).astype(np.int32)
WHOLE = np.arange(N * 5, dtype=np.int32).reshape(N, 5) * 12345677


COLUMNS = np.random.default_rng(2).integers(-N, N, (3, 5)).astype(np.int32)


def along(x: Any, indices: Any, mode: str | None = None) -> Any:
    return jnp.take_along_axis(x, indices, axis=0, mode=mode)


def descent(x: Any, batches: Any) -> Any:
    return lax.scan(lambda w, rows: (w - 0.1 * jnp.mean(x[rows], 0), jnp.sum(w)), jnp.zeros(5), batches)


def nested(x: Any, batches: Any) -> Any:
    def inner(w: Any, rows: Any) -> Any:
        return lax.scan(lambda v, row: (v + x[row], None), w, rows)[0], None

    return lax.scan(inner, jnp.zeros(5), batches)[0]


def windows(x: Any, starts: Any, offsets: tuple[int, int], mode: str) -> Any:
    numbers = lax.GatherDimensionNumbers(offset_dims=offsets, collapsed_slice_dims=(), start_index_map=(0,))
    return lax.gather(x, starts[:, None], numbers, (7, 5), mode=mode)


def until(x: Any) -> Any:
    return lax.while_loop(
        lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] + x[s[0]] + x[::-1].sum(0)), (0, jnp.zeros(5))
    )


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    # Entries by indices
    "rows": (lambda x, i: x[i], (X, ROWS), (0,)),
    "rows or NaN": (lambda x, i: jnp.take(x, i, axis=0), (X, ROWS), (0,)),
    "rows, clipped": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (X, ROWS), (0,)),
    "rows, wrapped": (lambda x, i: jnp.take(x, i, axis=0, mode="wrap"), (X, ROWS), (0,)),
    "rows or a number": (lambda x, i: x.at[i].get(mode="fill", fill_value=-7.0), (X, ROWS), (0,)),
    "rows of integers": (lambda x, i: jnp.take(x, i, axis=0), (WHOLE, ROWS), (0,)),
    "rows of narrow floats": (lambda x, i: jnp.take(x, i, axis=0), (X.astype(jnp.bfloat16), ROWS), (0,)),
    "rows by a table": (lambda x, i: x[i.reshape(2, 5)] * 2, (X, ROWS), (0,)),
    "rows by bytes": (lambda x, i: x[i], (X, np.array([3, 200, 255], np.uint8)), (0,)),
    "entries": (lambda x, i: x[i, i % 5], (X, ROWS), (0,)),
    "one row": (lambda x, i: x[i[3]] + 1, (X, ROWS), (0,)),
    "a window": (lambda x, i: lax.dynamic_slice_in_dim(x, i[0] * 100 - 2, 7).sum(0), (X, ROWS), (0,)),
    "a block": (lambda x, i: lax.dynamic_slice(x, (i[5], i[0]), (7, 2)), (X, ROWS), (0,)),
    "windows": (lambda x, i: jax.vmap(lambda s: lax.dynamic_slice_in_dim(x, s, 7))(i), (X, ROWS), (0,)),
    "windows or NaN": (lambda x, i: windows(x, i, (1, 2), "fill"), (X, ROWS), (0,)),
    "windows on their side": (lambda x, i: windows(x, i, (0, 2), "clip").mean(0), (X, ROWS), (0,)),
    "many windows": (
        lambda x, i: jax.vmap(lambda s: lax.dynamic_slice_in_dim(x, s, 7))(i).sum(0),
        (normal(2000), MANY),
        (0,),
    ),
    "columns of a transpose": (lambda x, i: x.T[:, i].sum(0), (X, ROWS), (0,)),
    "rows and columns": (lambda x, i: x[:, i].T @ x[i].T, (SQUARE, ROWS), (0,)),
    "rows of a flip": (lambda x, i: x[::-1][i], (X, ROWS), (0,)),
    "rows that are computed": (lambda x, w: x[jnp.argsort(w)[:4]], (X, normal(N)), (0,)),
    "a sum of many rows": (lambda x, i: jnp.sum(jnp.tanh(x[i]), 0), (X, MANY), (0,)),
    "many rows": (lambda x, i: jnp.tanh(x[i]), (X, MANY), (0,)),
    "an order": (lambda x, i: x + x[i], (X, np.random.default_rng(1).permutation(N).astype(np.int32)), (0,)),
    "neighbours": (lambda x, i: (x[i] * x[:, None]).sum((0, 1)), (X, NEIGHBOURS), (0, 1)),
    "minibatches": (descent, (X, ROWS.reshape(5, 2)), (0,)),
    "windows in a loop": (
        lambda x: lax.fori_loop(0, 5, lambda k, w: w - lax.dynamic_slice_in_dim(x, k * 7, 7).mean(0), x[0]),
        (X,),
        (0,),
    ),
    "a flip and rows in a loop": (until, (X,), (0,)),
    "rows in a choice": (
        lambda x, i: lax.cond(i[0] > 2, lambda x: x[i], lambda x: x[:10], x),
        (X, ROWS),
        (0,),
    ),
    "rows in a loop in a loop": (nested, (X, ROWS.reshape(5, 2)), (0,)),
    "a gradient of rows": (jax.grad(lambda w, x, i: jnp.tanh(x[i] @ w).sum()), (normal(5), X, ROWS), (1,)),
    # An entry of each column by an index of its own
    "an entry of each column": (lambda x, i: along(x, i), (X, COLUMNS), (0,)),
    "an entry of each column or NaN": (lambda x, i: along(x, 2 * i, mode="fill"), (X, COLUMNS), (0,)),
    "an entry of each column, clipped": (lambda x, i: along(x, 2 * i, mode="clip"), (X, COLUMNS), (0,)),
    "an entry of each column by bytes": (
        lambda x, i: along(x, i),
        (normal(120, 300).T, np.random.default_rng(2).integers(0, 255, (2, 120)).astype(np.uint8)),
        (0,),
    ),
    "an entry of each column by narrow indices": (
        lambda x, i: along(x, i, mode="fill"),
        (normal(700, 200), np.random.default_rng(2).integers(-128, 128, (2, 200)).astype(np.int8)),
        (0,),
    ),
    "an entry of each column by unsigned indices": (
        lambda x, i: along(x, i, mode="clip"),
        (X, np.array([[0, 300, 301, 1 << 31, (1 << 32) - 1]], np.uint32)),
        (0,),
    ),
    "an entry of each column of integers": (
        lambda x, i: along(x, 2 * i, mode="fill"),
        (WHOLE, COLUMNS),
        (0,),
    ),
    "an entry of each row of a transpose": (
        lambda x, i: jnp.take_along_axis(x.T, i, axis=1),
        (X, COLUMNS.T.copy()),
        (0,),
    ),
    "the largest of each column": (lambda x: along(x, jnp.argmax(x, 0)[None]), (X,), (0,)),
    "entries of a batch": (
        lambda x, i: along(x.reshape(N, 2, 5), i[:, None] + jnp.zeros((1, 2, 1), int)),
        (normal(N, 10), COLUMNS),
        (0,),
    ),
    "an entry of each column of a product": (
        lambda x, i, w: along(jnp.tanh(x) * w[:, None] + w[:5], i),
        (X, COLUMNS, normal(N)),
        (0,),
    ),
    "an entry of each column of a sum of two": (
        lambda x, i, w: along(x + w, i),
        (X, COLUMNS, normal(N, 5)),
        (0,),
    ),
    "many entries of each column": (
        lambda x, i: jnp.tanh(along(x, i)).sum(0),
        (X, np.random.default_rng(2).integers(-400, 400, (900, 5)).astype(np.int32)),
        (0,),
    ),
    # Tiles
    "tiles": (lambda x: jnp.tile(x, (3, 1)), (X,), (0,)),
    "tiles both ways": (lambda x: jnp.tile(x, (2, 3)), (X,), (0,)),
    "tiles of all": (lambda x: jnp.tile(x.reshape(-1), 2), (X,), (0,)),
    "a mean of tiles": (lambda x: jnp.exp(-jnp.abs(jnp.tile(x, (3, 1)))).mean(0), (X,), (0,)),
    "a slice of tiles": (lambda x: jnp.tile(x, (3, 1))[200:700:3], (X,), (0,)),
    "tiles of a product": (lambda x: jnp.tile(x * jnp.arange(1.0 * N)[:, None], (3, 1)), (X,), (0,)),
    "tiles of a product both ways": (lambda x: jnp.tile(2 * x, (3, 2)), (X,), (0,)),
    "a stack of tiles": (lambda x: jnp.tile(2 * x, (3, 1, 1)), (X,), (0,)),
    # Flips, strides, rolls
    "a flip": (lambda x: x[::-1], (X,), (0,)),
    "a flip beside it": (lambda x: x[::-1] - x, (X,), (0,)),
    "a flip of integers": (lambda x: x[::-1] + x, (WHOLE,), (0,)),
    "backwards in steps": (lambda x: x[250:3:-3].sum(0), (X,), (0,)),
    "a flip of both": (jnp.flip, (X,), (0,)),
    "a quarter turn": (jnp.rot90, (X,), (0,)),
    "a roll": (lambda x: jnp.roll(x, 3, axis=0) - x, (X,), (0,)),
    "rolls": (lambda x: jnp.roll(x, -3, axis=0) * jnp.roll(x, 1, axis=1), (X,), (0,)),
    "a roll of all": (lambda x: jnp.roll(x, 7), (X,), (0,)),
    "differences": (lambda x: jnp.diff(x, axis=0), (X,), (0,)),
    "slopes": (lambda x: jnp.gradient(x, axis=0), (X,), (0,)),
    "pieces": (lambda x: [jnp.sum(piece, 0) for piece in jnp.split(x, 7)], (X,), (0,)),
    "blocks": (lambda x: x[:300].reshape(100, 3, 5).mean(1), (X,), (0,)),
    "nothing": (
        lambda x: (x[5:5], jnp.concatenate([x[3:3], x, jnp.zeros((0, 5))]), x[jnp.zeros(0, int)]),
        (X,),
        (0,),
    ),
    # Pads
    "a pad": (lambda x: jnp.pad(x, ((2, 3), (0, 0))) * 2, (X,), (0,)),
    "a pad by -0": (lambda x: 1 / jnp.pad(x, ((2, 3), (1, 0)), constant_values=-0.0), (X,), (0,)),
    "a pad by the edges": (lambda x: jnp.pad(x, ((2, 3), (0, 0)), mode="edge"), (X,), (0,)),
    "a pad by the other end": (lambda x: jnp.pad(x, ((2, 3), (0, 0)), mode="wrap"), (X,), (0,)),
    "a pad by a mirror": (lambda x: jnp.pad(x, ((2, 3), (1, 1)), mode="reflect"), (X,), (0,)),
    # Joins
    "a join": (lambda x, y: jnp.concatenate([x, y]) * 2, (X, Y), (0, 1)),
    "a mean of a join": (lambda x, y: jnp.concatenate([x, y]).mean(0), (X, Y), (0, 1)),
    "a slice of a join": (lambda x, y: jnp.concatenate([x, y, x])[250:400:3], (X, Y), (0, 1)),
    "rows of a join": (lambda x, y, i: jnp.concatenate([x, y])[i], (X, Y, ROWS), (0, 1)),
    "a join of columns": (lambda x, y: jnp.concatenate([x, y], 1).sum(1), (X, normal(N, 3)), (0, 1)),
    "a flip of a join": (lambda x, y: jnp.vstack([x, y])[::-1, ::-1], (X, Y), (0, 1)),
    "a stack": (lambda x, y: jnp.stack([x, y]).mean(1), (X, X + 1), (0, 1)),
    "rows twice": (lambda x: jnp.repeat(x, 2, axis=0), (X,), (0,)),
    "a join with little": (lambda x, y: jnp.concatenate([y[:2] * 3, x, y]).sum(0), (X, Y), (0,)),
    "a join with zeros": (lambda x: jnp.concatenate([x, jnp.zeros((3, 5))]), (X,), (0,)),
    # Of computed arrays
    "a pad by a value": (lambda x, v: jnp.pad(x, ((2, 3), (0, 0)), constant_values=v), (X, X[0, 0]), (0,)),
    "a pad of a product": (lambda x: jnp.pad(2 * x, ((2, 3), (0, 0))), (X,), (0,)),
    "a flip of a product": (lambda x: (2 * x)[::-1], (X,), (0,)),
    "a roll of a product": (lambda x, w: jnp.roll(x * w[:, None], 7, 0), (X, normal(N)), (0,)),
    "a join of sums": (lambda x, y: jnp.concatenate([2 * x, y + 1]), (X, Y), (0, 1)),
    "a roll of what is computed": (lambda x: jnp.roll(jnp.exp(x), 7, 0), (X,), (0,)),
    "differences of differences": (lambda x: jnp.diff(jnp.tanh(x), n=2, axis=0), (X,), (0,)),
    "slopes of what is computed": (lambda x: jnp.gradient(jnp.tanh(x), axis=0), (X,), (0,)),
    "crossings of the mean": (
        lambda x: jnp.sum(jnp.diff(jnp.sign(x - x.mean(0)), axis=0) != 0, 0),
        (X,),
        (0,),
    ),
    "where events begin": (
        lambda x: jnp.sum(jnp.diff((x > 2 * x.std(0)).astype(int), axis=0) == 1),
        (X,),
        (0,),
    ),
    "a roll of a roll": (lambda x: jnp.roll(jnp.roll(2 * x, 1, 0) + x, -3, 0)[::-1], (X,), (0,)),
    "differences of a product": (lambda x, w: jnp.diff(x @ w), (X, normal(5)), (0,)),
    "a flip of what counts": (lambda x: (x * jnp.arange(1.0 * N)[:, None])[::-1], (X,), (0,)),
    "rows of a product": (lambda x, i: (2 * x)[i], (X, ROWS), (0,)),
    "rows of a product or NaN": (lambda x, i: jnp.take(2 * x, i, axis=0), (X, ROWS), (0,)),
    "standardised rows": (lambda x, i: ((x - x.mean(0)) / x.std(0))[i], (X, ROWS), (0,)),
    # Merged axes
    "a slice of all": (lambda x: x.reshape(-1)[10:] * 2, (X,), (0,)),
    "differences of all": (lambda x: x.reshape(-1)[1:] - x.reshape(-1)[:-1], (X,), (0,)),
    "every fourth of all": (lambda x: x.reshape(-1)[3::4].sum(), (X,), (0,)),
    "a slice of the transpose": (lambda x: x.T.reshape(-1)[10:-3] * 2, (X,), (0,)),
}

ALIKE = {
    *("a pad", "a mean of a join", "a slice of all", "rows", "minibatches", "a roll", "many rows", "tiles"),
    *("an entry of each column", "an entry of each column of a product", "tiles of a product"),
}

VALUES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 1.0]


def hostile(array: Any) -> Any:
    random = np.random.default_rng(0)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    values = random.choice(np.array(VALUES), array.shape)
    return np.where(random.random(array.shape) < 0.3, values.astype(array.dtype), array)


def same(one: Any, other: Any) -> None:
    """Check that two arrays are the same up to rounding, and of the same shape and dtype; zeros by sign."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    zeros = (one == 0) & (other == 0)
    np.testing.assert_array_equal(np.signbit(one[zeros]), np.signbit(other[zeros]))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", nightly_but(sorted(set(CASES) - ALIKE)[::3], CASES))
def test_results_are_those_of_the_whole_function(name: str) -> None:
    fn, given, streamed = CASES[name]
    args = tuple(hostile(arg) if number in streamed else arg for number, arg in enumerate(given))
    plan = planner(fn, args, streamed)
    steps = steps_of(plan, max(FREE, max(args[number].nbytes for number in streamed) // 4))
    files = [on_host(arg) if number in streamed else arg for number, arg in enumerate(args)]
    got = run_by_passes(plan, steps, files, 100)
    for one, other in zip(got, jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        same(one, other)
