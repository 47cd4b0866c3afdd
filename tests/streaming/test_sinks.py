"""Where results go: arrays, files that have their name when they are complete, and what the caller opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import zarr

from eqsat.errors import EqsatError
from eqsat.streaming.sinks import Sink, sink

DATA = np.arange(12, dtype=np.float32).reshape(6, 2)
FLOAT = np.dtype(np.float32)


def write(one: Sink) -> Any:
    one.write((slice(0, 4), slice(0, 2)), DATA[:4])
    one.write((slice(4, 6), slice(0, 2)), DATA[4:])
    return one.finished()


def test_results_are_arrays_of_numpy() -> None:
    found = write(sink(None, DATA.shape, FLOAT))
    assert type(found) is np.ndarray
    assert np.array_equal(found, DATA)


@pytest.mark.parametrize("kind", ["memmap", "h5py", "zarr"])
def test_what_the_caller_opens_is_written_to(kind: str, tmp_path: Path) -> None:
    match kind:
        case "memmap":
            out: Any = np.memmap(tmp_path / "x", np.float32, "w+", shape=DATA.shape)
        case "h5py":
            out = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", DATA.shape, np.float32)
        case _:
            out = zarr.create_array(store=tmp_path / "x", shape=DATA.shape, chunks=(3, 2), dtype="float32")
    assert write(sink(out, DATA.shape, FLOAT)) is out
    assert np.array_equal(out[:], DATA)


def test_a_file_has_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "x.npy"
    one = sink(path, DATA.shape, FLOAT)
    assert not path.exists()
    write(one)
    assert np.array_equal(np.load(path), DATA)
    assert [file.name for file in path.parent.iterdir()] == ["x.npy"]


def test_nothing_is_left_of_a_run_that_failed(tmp_path: Path) -> None:
    one = sink(tmp_path / "x.npy", DATA.shape, FLOAT)
    one.write((slice(0, 4), slice(0, 2)), DATA[:4])
    one.abandoned()
    assert list(tmp_path.iterdir()) == []


def test_what_a_checkpoint_is_of_goes_on(tmp_path: Path) -> None:
    scratch = tmp_path / "result-0.npy"
    one = sink(None, DATA.shape, FLOAT, scratch=scratch)
    one.write((slice(0, 4), slice(0, 2)), DATA[:4])
    one.flush()
    one.abandoned()
    again = sink(None, DATA.shape, FLOAT, resumed=True, scratch=scratch)
    again.write((slice(4, 6), slice(0, 2)), DATA[4:])
    found = again.finished()
    assert type(found) is np.ndarray
    assert np.array_equal(found, DATA)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EqsatError, match="can't be opened"):
        sink(None, DATA.shape, FLOAT, resumed=True, scratch=scratch)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("result.csv", r"'result.csv' is not the path of a \.npy file"),
        (3, "out is the path of a .npy file, or an array to write to, not 3"),
        (np.empty((6, 3), np.float32), r"out has the shape \(6, 3\), and the result has \(6, 2\)"),
        (np.empty((6, 2), np.float64), "out has entries of float64, and the result has entries of float32"),
        (np.broadcast_to(np.float32(1), (6, 2)), "out is an array that can't be written to"),
    ],
)
def test_other_places_are_refused(out: Any, message: str) -> None:
    with pytest.raises(EqsatError, match=message):
        sink(out, DATA.shape, FLOAT)


def test_a_failing_write_names_the_slice() -> None:
    with pytest.raises(EqsatError, match=r"the result's slice \[0:4, 0:2\] could not be written"):
        Sink(object()).write((slice(0, 4), slice(0, 2)), DATA[:4])


@pytest.mark.parametrize("kind", ["array", "file", "h5py", "zarr"])
def test_what_is_written_is_read_back(kind: str, tmp_path: Path) -> None:
    match kind:
        case "array" | "file":
            out: Any = None if kind == "array" else tmp_path / "x.npy"
        case "h5py":
            out = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", DATA.shape, np.float32)
        case _:
            out = zarr.create_array(store=tmp_path / "x", shape=DATA.shape, chunks=(3, 2), dtype="float32")
    one = sink(out, DATA.shape, FLOAT)
    one.write((slice(0, 4), slice(0, 2)), DATA[:4])
    into = np.empty((2, 3), np.float32)
    one.read((slice(1, 4), slice(0, 2)), into, np.transpose)
    assert np.array_equal(into, DATA[1:4].T)


@pytest.mark.parametrize("kind", ["array", "h5py", "zarr"])
def test_what_is_behind_the_end_goes_nowhere(kind: str, tmp_path: Path) -> None:
    """Tiles of rows may have some in excess."""
    match kind:
        case "array":
            out: Any = None
        case "h5py":
            out = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", (5, 2), np.float32)
        case _:
            out = zarr.create_array(store=tmp_path / "x", shape=(5, 2), chunks=(3, 2), dtype="float32")
    one = sink(out, (5, 2), FLOAT)
    one.write((slice(0, 4), slice(0, 2)), DATA[:4])
    one.write((slice(4, 8), slice(0, 2)), DATA[[4, 5, 5, 5]])
    one.write((slice(8, 12), slice(0, 2)), DATA[:4])
    assert np.array_equal(one.finished()[:], DATA[:5])
    into = np.full((4, 2), 7, np.float32)
    one.read((slice(3, 7), slice(0, 2)), into, np.asarray)
    assert np.array_equal(into, [*DATA[3:5], (0, 0), (0, 0)])


def test_a_failing_read_names_the_slice() -> None:
    with pytest.raises(EqsatError, match=r"the result's slice \[1:4, 0:2\] could not be read"):
        Sink(object()).read((slice(1, 4), slice(0, 2)), np.empty((3, 2), np.float32), np.asarray)


def test_a_private_mapping_keeps_what_is_written_to_it(tmp_path: Path) -> None:
    DATA.tofile(tmp_path / "x")
    out = np.memmap(tmp_path / "x", np.float32, "c", shape=DATA.shape)
    out[:] = 0
    assert np.array_equal(write(sink(out, DATA.shape, FLOAT)), DATA)


def test_entries_of_bfloat16_keep_their_dtype(tmp_path: Path) -> None:
    data = DATA.astype(ml_dtypes.bfloat16)
    for one in (
        sink(tmp_path / "x.npy", data.shape, data.dtype),
        sink(None, data.shape, data.dtype, scratch=tmp_path / "y.npy"),
    ):
        one.write((slice(0, 6), slice(0, 2)), data)
        found = one.finished()
        assert found.dtype == data.dtype
        assert np.array_equal(found, data)


def test_a_file_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.npy").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "x.npy", tmp_path / "file" / "y.npy"):
        with pytest.raises(EqsatError, match="can't be written to"):
            sink(path, DATA.shape, FLOAT)
