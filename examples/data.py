"""Data for the examples and benchmarks: generated, or real data from the folder that `--data DIR` names.

The folder may have these files, each as it is published (docs/ says where):

- `kin40k.csv.gz`, `protein.csv.gz`, `keggundirected.csv.gz`, …: numbers separated by commas, with a row per
  point, the target in the last column, and no header.
- `*train-images*idx3-ubyte.gz` and `*t10k-images*idx3-ubyte.gz`: MNIST or Fashion-MNIST.
- `word-vectors*.npy`: a word vector per row.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Regression(NamedTuple):
    """Inputs [n, d] and targets [n] for training and testing, whose columns have mean 0 and variance 1."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array


def parse(args: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Parses the options that all examples have: `data`, a folder or None, and `small`."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with real data (examples/data.py)")
    parser.add_argument("--small", action="store_true", help="at the size of a test")
    return parser.parse_args(args)


def regression(
    folder: Path | None, name: str, n: int, dimensions: int = 8, seed: int = 0, dtype: type = np.float32
) -> Regression:
    """Returns a regression data set: a tenth of the points is for testing, and at most `n` are for training.

    **Arguments:**

    - `folder`: the folder with `name.csv.gz`, or None for generated data with `n` points for training.
    """
    rng = np.random.default_rng(seed)
    if folder is None:
        table = _generated_table(rng, n + n // 9, dimensions)
    else:
        with gzip.open(_only_file(folder, f"{name}.csv.gz")) as stream:
            table = np.loadtxt(stream, delimiter=",")
        table = table[rng.permutation(len(table))]
    deviations = table.std(axis=0)
    table = (table - table.mean(axis=0)) / np.where(deviations > 0, deviations, 1)
    tests = len(table) // 10
    x, y = table[:, :-1].astype(dtype), table[:, -1].astype(dtype)
    return Regression(x[tests : tests + n], y[tests : tests + n], x[:tests], y[:tests])


def _generated_table(rng: np.random.Generator, n: int, dimensions: int) -> Array:
    x = rng.normal(size=(n, dimensions))
    waves = np.sin(x @ rng.normal(size=(dimensions, 6)) + rng.uniform(0, 6, size=6))
    y = waves @ rng.normal(size=6) + 0.2 * rng.normal(size=n)
    return np.concatenate([x, y[:, None]], axis=1)


def images(
    folder: Path | None, n: int, queries: int, dimensions: int = 784, seed: int = 0
) -> tuple[Array, Array]:
    """Returns images [n, dimensions] and others as queries [queries, dimensions], as rows of float32.

    With a folder, they are MNIST's training and test images, in [0, 1]. Without one, they are generated in
    clusters.
    """
    if folder is not None:
        return _idx_images(folder, "train")[:n], _idx_images(folder, "t10k")[:queries]
    rng = np.random.default_rng(seed)
    centres = rng.random((50, dimensions), np.float32)
    both = centres[rng.integers(50, size=n + queries)]
    both += 0.3 * rng.standard_normal((n + queries, dimensions), np.float32)
    return both[:n].copy(), both[n:].copy()


def word_vectors(
    folder: Path | None, n: int, queries: int, dimensions: int = 100, seed: int = 0
) -> tuple[Array, Array]:
    """Returns word vectors [n, dimensions] and others as queries [queries, dimensions], in float32."""
    rng = np.random.default_rng(seed)
    if folder is None:
        frequent = rng.normal(size=dimensions)  # word vectors share a large common part
        both = rng.standard_normal((n + queries, dimensions), np.float32) + frequent.astype(np.float32)
    else:
        both = np.load(_only_file(folder, "word-vectors*.npy"), mmap_mode="r")
        queries = min(queries, len(both) // 2)
        n = min(n, len(both) - queries)
        both = np.asarray(both[: n + queries], np.float32)
    return both[:n].copy(), both[n:].copy()


def _idx_images(folder: Path, split: str) -> Array:
    with gzip.open(_only_file(folder, f"*{split}-images*idx3-ubyte.gz")) as stream:
        data = stream.read()
    shape = np.frombuffer(data, ">i4", 3, offset=4)
    pixels = np.frombuffer(data, np.uint8, offset=16).reshape(shape[0], -1)
    return pixels.astype(np.float32) / 255


def _only_file(folder: Path, pattern: str) -> Path:
    files = sorted(folder.glob(pattern))
    if not files:
        raise SystemExit(f"no file {pattern} in {folder}; examples/data.py says what is expected there")
    return files[0]
