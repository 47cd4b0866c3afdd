"""What can be read by chunks, what reading it says when it fails, and what memory it leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr

import eqsat
from eqsat.errors import EqsatError
from eqsat.streaming.sources import Source, is_stream, on_host

DATA = np.arange(60, dtype=np.float32).reshape(20, 3)
PART = (slice(5, 9), slice(0, 3))


def memmap(folder: Path, mode: Any = "r") -> Any:
    np.save(folder / "x.npy", DATA)
    return np.load(folder / "x.npy", mmap_mode=mode)


def dataset(folder: Path) -> Any:
    file = h5py.File(folder / "x.h5", "w")
    file["x"] = DATA
    return file["x"]


def array_of_zarr(folder: Path) -> Any:
    array = zarr.create_array(store=folder / "x.zarr", shape=DATA.shape, chunks=(7, 3), dtype="float32")
    array[:] = DATA
    return array


class Slow:
    """Anything with shape, dtype and slicing."""

    shape, dtype = DATA.shape, DATA.dtype

    def __getitem__(self, where: Any) -> Any:
        return DATA[where].tolist()


@pytest.mark.parametrize("kind", [memmap, dataset, array_of_zarr, lambda _: Slow(), lambda _: on_host(DATA)])
def test_slices_are_read(kind: Any, tmp_path: Path) -> None:
    given = kind(tmp_path)
    assert is_stream(given)
    source = Source(given, "x")
    assert (source.shape, source.dtype) == ((20, 3), np.float32)
    into = np.empty((4, 3), np.float32)
    source.read(PART, into)
    assert np.array_equal(into, DATA[PART])


@pytest.mark.parametrize("value", [DATA, jnp.ones(3), 1.0, np.float32(2), jax.ShapeDtypeStruct((3,), "f4")])
def test_plain_arrays_are_moved_whole(value: Any) -> None:
    assert not is_stream(value)


def test_dtypes_are_those_of_jax(tmp_path: Path) -> None:
    big = DATA.astype(">f8")
    source = Source(on_host(big), "x")
    assert source.dtype == np.float32  # 64 bits are not enabled
    into = np.empty((4, 3), source.dtype)
    source.read(PART, into)
    assert np.array_equal(into, DATA[PART])
    with pytest.raises(EqsatError, match="names has entries of <U3, which JAX has no arrays of"):
        Source(on_host(np.array(["one", "two"])), "names")


def test_a_failing_reader_names_array_and_slice() -> None:
    class Broken(Slow):
        def __getitem__(self, where: Any) -> Any:
            raise OSError("the mount has gone")

    class Truncated(Slow):
        def __getitem__(self, where: Any) -> Any:
            return DATA[where][:2]

    into = np.empty((4, 3), np.float32)
    with pytest.raises(EqsatError, match=r"x\[5:9, 0:3\] could not be read: the mount has gone"):
        Source(Broken(), "x").read(PART, into)
    with pytest.raises(EqsatError, match=r"x\[5:9, 0:3\] could not be read: it has shape \(2, 3\)"):
        Source(Truncated(), "x").read(PART, into)


def test_what_has_to_be_finite_is_looked_at() -> None:
    bad = DATA.copy()
    bad[7, 1] = np.nan
    into = np.empty((4, 3), np.float32)
    Source(on_host(bad), "x").read(PART, into)
    with pytest.raises(EqsatError, match=r"x\[5:9, 0:3\] is not finite: its entry at \[7, 1\]"):
        Source(on_host(bad, finite=True), "x").read(PART, into)


def test_what_is_written_to_a_private_mapping_is_read(tmp_path: Path) -> None:
    mapped = memmap(tmp_path, "c")
    mapped[6] = 9
    for _ in range(2):
        into = np.empty((4, 3), np.float32)
        Source(mapped, "x").read(PART, into)
        assert into[1].tolist() == [9, 9, 9]


def test_fingerprints_tell_data_apart() -> None:
    other = DATA.copy()
    other[13, 2] += 1
    prints = {Source(on_host(a), "x").fingerprint() for a in (DATA, other, DATA[:19], DATA.astype(int))}
    assert len(prints) == 4
    assert Source(on_host(DATA.copy()), "y").fingerprint() in prints


def test_on_host_takes_arrays() -> None:
    with pytest.raises(TypeError, match="on_host takes an array with shape, dtype and slicing"):
        eqsat.on_host([1.0, 2.0])


def test_an_array_without_a_shape_is_an_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        empty = file.create_dataset("empty", data=h5py.Empty("f4"))
        closed = file.create_dataset("x", data=[1.0])
        with pytest.raises(EqsatError, match="x has no shape"):
            Source(empty, "x")
    with pytest.raises(EqsatError, match="x has no shape"):
        Source(closed, "x")
