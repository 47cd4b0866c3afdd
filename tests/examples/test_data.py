"""Data for the examples, from files as they are published and without any."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from examples.data import images, regression, word_vectors


def test_mnist_is_read_from_idx_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = {
        split: rng.integers(256, size=(n, 4, 3), dtype=np.uint8) for split, n in (("train", 5), ("t10k", 2))
    }
    for split, pictures in pixels.items():
        content = struct.pack(">IIII", 0x803, *pictures.shape) + pictures.tobytes()
        (tmp_path / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    database, queries = images(tmp_path, 4, 10)
    np.testing.assert_allclose(database, pixels["train"].reshape(5, 12)[:4] / 255, rtol=1e-6)
    assert queries.shape == (2, 12)


def test_a_regression_table_is_standardised_and_split(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(3, 2, size=(200, 4))
    table[:, 1] = 7  # a column may be constant
    with gzip.open(tmp_path / "robot.csv.gz", "wt") as stream:
        np.savetxt(stream, table, delimiter=",")
    data = regression(tmp_path, "robot", 150)
    assert (data.x.shape, data.y.shape, data.x_test.shape, data.y_test.shape) == (
        (150, 3),
        (150,),
        (20, 3),
        (20,),
    )
    assert np.all(data.x[:, 1] == 0)
    everything = np.concatenate([regression(tmp_path, "robot", 1000).y, data.y_test])
    assert everything.mean() == pytest.approx(0, abs=1e-6)
    assert everything.std() == pytest.approx(1, rel=1e-6)


def test_words_looked_for_come_after_those_kept(tmp_path: Path) -> None:
    vectors = np.arange(30, dtype=np.float16).reshape(10, 3)
    np.save(tmp_path / "word-vectors-3d.npy", vectors)
    kept, queries = word_vectors(tmp_path, 7, 2)
    np.testing.assert_array_equal(kept, vectors[:7])
    np.testing.assert_array_equal(queries, vectors[7:9])


def test_without_files_data_are_generated() -> None:
    data = regression(None, "kin40k", 90, 5)
    assert data.x.shape == (90, 5)
    assert data.x_test.shape == (10, 5)
    assert [a.shape for a in images(None, 9, 4, 16)] == [(9, 16), (4, 16)]
    assert [a.shape for a in word_vectors(None, 9, 4, 16)] == [(9, 16), (4, 16)]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no file \*train-images"):
        images(tmp_path, 1, 1)
