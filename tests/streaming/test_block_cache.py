"""Pieces of a dataset that were read last: the same slices, and none is read twice in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.streaming.block_cache import BlockCache
from tests.nightly import THOROUGH

ARRAY = np.arange(50 * 30 * 7, dtype=np.int32).reshape(50, 30, 7)


class Counted:
    """An array that counts the bytes that are read of it."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.bytes = array, 0

    def read(self, slices: tuple[slice, ...]) -> np.ndarray[Any, Any]:
        found = self.array[slices]
        self.bytes += found.nbytes
        return found


@settings(max_examples=300 if THOROUGH else 40)
@given(
    st.tuples(st.integers(1, 50), st.integers(1, 30), st.integers(1, 7)),
    st.sampled_from([0, 4_000, 1_000_000]),
    st.data(),
)
def test_slices(block: tuple[int, ...], capacity: int, data: st.DataObject) -> None:
    cache, counted = BlockCache(ARRAY.shape, block, 4, capacity), Counted(ARRAY)
    for _ in range(4):
        starts = [data.draw(st.integers(0, size - 1)) for size in ARRAY.shape]
        ends = zip(starts, ARRAY.shape, strict=True)
        slices = tuple(slice(start, data.draw(st.integers(start + 1, size))) for start, size in ends)
        np.testing.assert_array_equal(cache.read(slices, counted.read), ARRAY[slices])
        assert sum(one.nbytes for one in cache._pieces.values()) <= capacity


def test_nothing_is_read_twice_in_a_row() -> None:
    cache, counted = BlockCache(ARRAY.shape, (10, 8, 7), 4, 10 * 30 * 7 * 4), Counted(ARRAY)
    for start in range(0, 50, 2):
        cache.read((slice(start, start + 2), slice(0, 30), slice(0, 7)), counted.read)
    assert counted.bytes == ARRAY.nbytes


def test_what_would_not_fit_is_read_as_it_is() -> None:
    cache, counted = BlockCache(ARRAY.shape, (10, 8, 7), 4, 100), Counted(ARRAY)
    cache.read((slice(0, 2), slice(0, 30), slice(0, 7)), counted.read)
    assert counted.bytes == 2 * 30 * 7 * 4


def test_chunks_of_a_dataset_are_decompressed_once(tmp_path: Path) -> None:
    data = np.random.default_rng(0).random((3_000, 100), np.float32)
    file = h5py.File(tmp_path / "x.h5", "w")
    x = file.create_dataset("x", data=data, chunks=(1_000, 100), compression="gzip")
    read = []

    class Seen:
        shape, dtype, chunks = x.shape, x.dtype, x.chunks

        def __getitem__(self, where: Any) -> Any:
            read.append(x[where].nbytes)
            return x[where]

    run = eqsat.optimize(lambda x: jnp.tanh(x).sum(0), budget="100kB", host_budget="4MB")
    np.testing.assert_allclose(run(Seen()), np.tanh(data).sum(0), rtol=1e-4)
    assert len(run.plan(x).passes) == 1
    assert sum(read) <= 1.4 * data.nbytes  # and a sample, whose time is measured
