"""A run that goes on writes to the place that it began with: samples of what it wrote say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eqsat
from eqsat.errors import EqsatError
from eqsat.streaming import checkpoints
from eqsat.streaming.written_samples import ENTRIES, MOST, WrittenSamples
from tests.streaming.test_checkpoints import Failing, X


def opened(kind: str, path: Path) -> Any:
    """An array in a file, of zeros if there is none yet."""
    match kind:
        case "memmap":
            mode: Any = "r+" if path.exists() else "w+"
            return np.lib.format.open_memmap(path, mode, *(() if path.exists() else (X.dtype, X.shape)))
        case "zarr":
            zarr = pytest.importorskip("zarr")
            if path.exists():
                return zarr.open_array(str(path))
            return zarr.create_array(str(path), shape=X.shape, chunks=(999, 8), dtype=X.dtype)
        case _:
            h5py = pytest.importorskip("h5py")
            return h5py.File(path, "a").require_dataset("x", X.shape, X.dtype)


def run(folder: Path, out: Any) -> Any:
    function = lambda x: (jnp.tanh(x).mean(), x * 2)  # noqa: E731
    return eqsat.optimize(function, budget="100kB", checkpoint=folder / "c", out=(None, out))


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["memmap", "zarr", "h5py"])
def test_another_array_is_refused(kind: str, tmp_path: Path) -> None:
    first, other = opened(kind, tmp_path / "first"), opened(kind, tmp_path / "other")
    with pytest.raises(EqsatError, match="gone"):
        run(tmp_path, first)(Failing(90))
    with pytest.raises(EqsatError, match=r"out is not where .* began to write: its slice \[0:"):
        run(tmp_path, other)(eqsat.on_host(X))
    found = run(tmp_path, first)(eqsat.on_host(X))
    np.testing.assert_array_equal(np.asarray(found[1]), X * 2)


def test_a_copy_is_the_same_place(tmp_path: Path) -> None:
    first = opened("memmap", tmp_path / "first.npy")
    with pytest.raises(EqsatError, match="gone"):
        run(tmp_path, first)(Failing(90))
    first.flush()
    (tmp_path / "copy.npy").write_bytes((tmp_path / "first.npy").read_bytes())
    found = run(tmp_path, opened("memmap", tmp_path / "copy.npy"))(eqsat.on_host(X))
    np.testing.assert_array_equal(found[1], X * 2)


def test_a_place_to_which_nothing_was_written_may_be_another(tmp_path: Path) -> None:
    function = lambda x: (x - x.mean(0)) * 2  # noqa: E731
    for out, fails in (("first.npy", True), ("other.npy", False)):
        place = opened("memmap", tmp_path / out)
        centred = eqsat.optimize(function, budget="100kB", checkpoint=tmp_path / "c", out=place)
        if fails:
            with pytest.raises(EqsatError, match="gone"):
                centred(Failing(70))
            assert not place.any()
        else:
            np.testing.assert_allclose(centred(eqsat.on_host(X)), (X - X.mean(0)) * 2, rtol=1e-4, atol=1e-4)


HOSTILE = np.array([0.0, -0.0, np.inf, np.nan], np.float32)


@given(st.integers(1, 700), st.integers(1, 9), st.data())
def test_samples_tell_any_place_that_lacks_a_stretch(rows: int, length: int, data: Any) -> None:
    array = np.random.default_rng(rows).choice(HOSTILE, (rows, 3))
    samples = WrittenSamples()
    for begin in range(0, rows, length):
        slices = (slice(begin, min(begin + length, rows)), slice(0, 3))
        samples.note(slices, array[slices])
    assert len(samples.kept) <= 2 * MOST + 1
    again = WrittenSamples.of(json.loads(json.dumps(samples.data)))
    assert again.differing(array) is None
    where, _ = data.draw(st.sampled_from(again.kept))
    other = array.copy()
    other[where[0][0], where[1][0]] = 7
    assert again.differing(other) is not None


def test_a_sample_is_short() -> None:
    samples = WrittenSamples()
    samples.note((slice(0, 10), slice(0, 100_000)), np.zeros((10, 100_000), np.int8))
    samples.note((slice(0, 100_000),), np.zeros(100_000, np.int8))
    (first, _), (second, _) = samples.kept
    assert first == ((0, 1), (0, ENTRIES))
    assert second == ((0, ENTRIES),)
