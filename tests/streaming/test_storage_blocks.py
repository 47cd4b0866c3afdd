"""What is touched of an array where it lies: pages of rows, or chunks of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
import tensorstore
import zarr

import eqsat
from eqsat.ir.moved_arrays import Joined, Moved, Repeated, Whole, reshaped, taken, transposed
from eqsat.ir.moved_windows import Windows
from eqsat.streaming.storage_blocks import CACHED, Block, storage_block, touched

ROWS = Block((4, 250), 4)
SHAPE = (10_000, 250)
X = Whole(0, SHAPE)


def test_rows_in_a_file() -> None:
    assert storage_block(jax.ShapeDtypeStruct(SHAPE, "f4"), SHAPE, 4) == Block((5, 250), 4)
    assert storage_block(jax.ShapeDtypeStruct((64, 300_000), "f4"), (64, 300_000), 4) == Block((1, 1024), 4)
    assert storage_block(jax.ShapeDtypeStruct((7, 3, 2), "i1"), (7, 3, 2), 1) == Block((7, 3, 2), 1)
    assert storage_block(jax.ShapeDtypeStruct((), "f4"), (), 4) == Block((), 4)
    assert storage_block(jax.ShapeDtypeStruct((0, 3), "f4"), (0, 3), 4).lengths == (1, 3)


@pytest.mark.parametrize("kind", ["h5py", "zarr", "tensorstore"])
def test_chunks_of_a_dataset(kind: str, tmp_path: Path) -> None:
    shape, chunks = (300, 256), (30, 64)
    match kind:
        case "h5py":
            array: Any = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", shape, "f4", chunks=chunks)
        case "zarr":
            array = zarr.create_array(store=tmp_path / "x", shape=shape, chunks=chunks, dtype="float32")
        case _:
            spec = {"driver": "zarr", "kvstore": {"driver": "memory"}, "metadata": {"chunks": list(chunks)}}
            array = tensorstore.open(spec, create=True, shape=shape, dtype="float32").result()
    assert storage_block(array, shape, 4) == Block(chunks, 4, True)


def test_a_dataset_in_one_piece_lies_in_rows(tmp_path: Path) -> None:
    array = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", SHAPE, "f4")
    assert storage_block(array, SHAPE, 4) == Block((5, 250), 4)


def test_arrays_of_numpy(tmp_path: Path) -> None:
    file = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, SHAPE)
    assert storage_block(file, SHAPE, 4) == Block((5, 250), 4)
    assert storage_block(file.T, SHAPE[::-1], 4) == Block((250, 5), 4)
    assert storage_block(np.zeros((100, 250), np.float32), (100, 250), 4) == Block((1, 16), 4)


@pytest.mark.parametrize(
    ("moved", "lengths", "factor"),
    [
        (X, (100, 250), 1),
        (X, (10_000, 2), 125),
        (X, (10_000, 250), 1),
        (X, (2, 250), 2.5),
        (taken(X, (range(1, 10_000), range(250))), (9_999, 2), 125),
        (taken(X, (range(0, 10_000, 10), range(250))), (500, 250), 10),
        (transposed(X, (1, 0)), (2, 10_000), 125),
        (Joined((X, X), 0), (20_000, 2), 125),
        # few rows before all of them, whose pages are few, too
        (Joined((taken(X, (range(1), range(250))), X), 0), (100, 250), 1.03),
        (Repeated(taken(X, (range(1), range(250))), (50, 250)), (50, 2), 125 * 4),
        (reshaped(X, (100, 100, 250)), (100, 100, 2), 125),
        (Windows(X, 0, 0, (1, 1), (9_901, 100), 0, 9_999), (100, 100, 2), 125),
        (Whole(1, (3, 5)), (1, 1), 1),
    ],
)
def test_what_is_touched(moved: Moved, lengths: tuple[int, ...], factor: float) -> None:
    assert touched(moved, lengths, {0: ROWS}) == pytest.approx(factor, rel=0.05)


def test_pieces_that_are_kept_cost_little() -> None:
    blocks = {0: Block((30, 64), 4, True)}
    whole = Whole(0, (300, 256))
    assert touched(whole, (3, 256), blocks) == pytest.approx(32 / 3)
    assert touched(whole, (3, 256), blocks, 30 * 256 * 4) == pytest.approx(1 + CACHED * 29 / 3)
    assert touched(whole, (3, 256), blocks, 30 * 256 * 4 - 1) == pytest.approx(32 / 3)
    assert touched(whole, (30, 256), blocks) == 1


def test_columns_of_rows_are_not_read_one_by_one() -> None:
    """Two passes over rows touch less than one over columns, of which two fit."""
    x = eqsat.on_host(jax.ShapeDtypeStruct((1_000_000, 250), "f4"))
    plan = eqsat.optimize(lambda x: x.std(0), budget="100MB").plan(x)
    assert plan.touched_bytes <= 1.1 * plan.read_bytes
    assert all(one.size == 1_000_000 for one in plan.passes)


def test_columns_are_read_if_there_is_no_other_way() -> None:
    x = eqsat.on_host(jax.ShapeDtypeStruct((100_000, 64), "f4"))
    plan = eqsat.optimize(lambda x: jax.numpy.sort(x, axis=0)[::100], budget="16MB").plan(x)
    assert plan.touched_bytes > 4 * plan.read_bytes
    assert "lie in the same pages or chunks" in str(plan)


def test_files_that_lie_otherwise_are_planned_by_themselves(tmp_path: Path) -> None:
    file = h5py.File(tmp_path / "x.h5", "w")
    shape = (200_000, 40)
    by_rows = file.create_dataset("rows", shape, "f4", chunks=(1_000, 40))
    by_columns = file.create_dataset("columns", shape, "f4", chunks=(200_000, 1))
    run = eqsat.optimize(lambda x: x.std(0), budget="10MB", host_budget="10MB")
    assert [one.size for one in run.plan(by_rows).passes] == [200_000] * 2
    assert [one.size for one in run.plan(by_columns).passes] == [40]
