"""Entries that indices pick of arrays that are not in memory: those that JAX has, and no others are read."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.errors import EqsatError
from eqsat.ir.moved_arrays import Joined, Whole
from eqsat.ir.picked_entries import Pick
from eqsat.streaming.picking import read_picked
from eqsat.streaming.sources import MovedSource, Source, on_host

ROWS = np.arange(40 * 3 * 4, dtype=np.float32).reshape(40, 3, 4)
DTYPES = ["float32", "bfloat16", "int8", "uint16", "bool", "complex64"]
INDICES = [0, 39, 39, 5, 4, 3, -1, 40, -41, 1 << 30, 5]


class Sliced:
    """An array that is no array of NumPy, and counts what is read of it."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.shape, self.dtype, self.count = array, array.shape, array.dtype, 0

    def __getitem__(self, where: Any) -> Any:
        found = self.array[where]
        self.count += found.size
        return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("dtype", "mode", "sliced"),
    [
        *itertools.product(DTYPES, ["fill"], [False]),
        *itertools.product(["float32"], ["fill", "clip", "promise_in_bounds"], [False, True]),
    ],
)
@pytest.mark.parametrize("dimensions", [(0,), (0, 1), (1, 2), (2, 0), (0, 1, 2)])
def test_picked_entries_are_those_of_gather(
    dimensions: tuple[int, ...], dtype: str, mode: str, sliced: bool
) -> None:
    table = jnp.asarray(ROWS).astype(dtype)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(2, 5 - len(dimensions))),
        collapsed_slice_dims=tuple(sorted(dimensions)),
        start_index_map=dimensions,
    )
    random = np.random.default_rng(0)
    indices = random.choice(np.array(INDICES, np.int32), (6, 5, len(dimensions)))
    sizes = tuple(1 if number in dimensions else length for number, length in enumerate(table.shape))
    wanted = lax.gather(table, indices, numbers, sizes, mode=mode)
    array = np.asarray(table)
    source = Source(on_host(Sliced(array) if sliced else array), "x")
    outside = {"b": True, "i": np.iinfo(np.int8).min, "u": np.iinfo(np.uint16).max}.get(
        array.dtype.kind, np.nan
    )
    pick = Pick(dimensions, sizes, frozenset(dimensions), mode == "fill", outside)
    into = np.empty(wanted.shape, array.dtype)
    read_picked(source, pick, indices, tuple(slice(0, length) for length in table.shape), into)
    for one, other in ((into.real, wanted.real), (into.imag, wanted.imag)):
        np.testing.assert_array_equal(one.astype(np.float64), np.asarray(other).astype(np.float64))


def test_only_the_rows_are_read_and_each_once() -> None:
    array = Sliced(ROWS)
    source = Source(array, "x")
    pick = Pick((0,), (1, 3, 4), frozenset({0}), False, None)
    into = np.empty((6, 3, 4), np.float32)
    read_picked(
        source,
        pick,
        np.array([[7], [3], [7], [4], [39], [99]]),
        tuple(map(slice, (0,) * 3, ROWS.shape)),
        into,
    )
    np.testing.assert_array_equal(into, ROWS[[7, 3, 7, 4, 39, 39]])
    assert array.count == 4 * 12


def test_rows_of_joined_arrays() -> None:
    arrays = {0: Source(ROWS, "x"), 1: Source(Sliced(-ROWS), "y")}
    moved = MovedSource(Joined((Whole(0, ROWS.shape), Whole(1, ROWS.shape)), 0), arrays)
    pick = Pick((0,), (1, 3, 4), frozenset({0}), False, None)
    into = np.empty((5, 3, 4), np.float32)
    around = tuple(slice(0, length) for length in moved.shape)
    read_picked(moved, pick, np.array([[79], [39], [40], [0], [41]]), around, into)
    np.testing.assert_array_equal(into, np.concatenate([ROWS, -ROWS])[[79, 39, 40, 0, 41]])


X = np.random.default_rng(0).standard_normal((100_000, 4)).astype(np.float32)


def test_a_minibatch_is_read_within_a_small_budget() -> None:
    def descent(w: Any, x: Any, batches: Any) -> Any:
        def step(w: Any, batch: Any) -> Any:
            loss, slope = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x[batch] @ w) ** 2))(w)
            return w - 0.1 * slope, loss

        return lax.scan(step, w, batches)

    batches = np.random.default_rng(1).integers(-100_000, 100_000, (7, 32)).astype(np.int32)
    run = eqsat.optimize(descent, budget="100kB", host_budget="100kB")
    array = Sliced(X)
    got = run(jnp.ones(4), array, batches)
    assert array.count == 4 * sum(len(np.unique(batch % 100_000)) for batch in batches)
    for one, other in zip(jax.tree.leaves(got), jax.jit(descent)(jnp.ones(4), X, batches), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    plan: Any = run.plan(jnp.ones(4), array, batches)
    assert plan.picked == {"x": 7 * 32 * 16}
    assert plan.read_bytes == 7 * 32 * 16
    assert "of x, by indices" in str(plan)


def test_more_rows_than_memory_are_read_by_chunks(tmp_path: Any) -> None:
    order = np.random.default_rng(1).permutation(100_000).astype(np.int32)
    run = eqsat.optimize(
        lambda x, order: x[order] * 2, budget="700kB", host_budget="700kB", out=tmp_path / "y.npy"
    )
    got = run(on_host(X), order)
    np.testing.assert_array_equal(got, X[order] * 2)


def test_infinities_are_found_where_they_are() -> None:
    x = X.copy()
    x[77, 2] = np.inf
    for array in (x, Sliced(x)):
        run = eqsat.optimize(lambda x, i: x[i], budget="100kB")
        np.testing.assert_array_equal(run(on_host(array, finite=True), np.arange(5)), X[:5])
        with pytest.raises(EqsatError, match=r"its entry at \[77, 2\]"):
            run(on_host(array, finite=True), np.arange(75, 80))


@pytest.mark.parametrize("kind", ["h5py", "zarr"])
def test_rows_and_flips_of_other_libraries(kind: str, tmp_path: Any) -> None:
    if kind == "h5py":
        h5py = pytest.importorskip("h5py")
        file: Any = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", data=X[:5000])
    else:
        zarr = pytest.importorskip("zarr")
        file = zarr.create_array(str(tmp_path / "x.zarr"), shape=(5000, 4), chunks=(999, 4), dtype="f4")
        file[:] = X[:5000]
    rows = np.array([4999, 7, 7, -1, 8, 9999, 3000], np.int32)
    run = eqsat.optimize(lambda x, i: (x[i], jnp.take(x, i, axis=0), x[::-3].sum(0)), budget="30kB")
    wanted = jax.jit(lambda x, i: (x[i], jnp.take(x, i, axis=0), x[::-3].sum(0)))(X[:5000], rows)
    for one, other in zip(run(file, rows), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
