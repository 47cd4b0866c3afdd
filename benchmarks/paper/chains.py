"""Chains of matrices, wide networks, and conjugate gradients whose preconditioner is given as a product.

    python -m benchmarks.paper.chains [--data DIR] [--quick]

- Chains of 4 to 72 matrices of random sizes, written from left to right. They are compared with plain JAX,
  and with JAX in the order that opt_einsum finds by dynamic programming.
- The loss and the gradient of a network with up to 1,000,000 hidden units, on 1,000 points (of kin40k, if DIR
  has it).
- 20 steps of conjugate gradients on a kernel matrix of n points. The preconditioner is written as a product
  of three matrices, and the kernel matrix as an expression over all pairs of points.

Writes `benchmarks/results/paper-chains-<cpu>` as `.json`, `.md` and `.png`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opt_einsum
from jax.scipy.sparse.linalg import cg

from benchmarks.paper.sweeps import Row, figure, row, text
from benchmarks.records import RESULTS, write
from examples.data import regression
from examples.programs import squared_distances
from examples.wide_mlp import initial, loss

Array = Any

COLUMNS = {"Matrix chain": "matrices", "Wide network": "hidden units", "Preconditioned CG": "points"}


def chain(*matrices: Array) -> Array:
    return functools.reduce(jnp.matmul, matrices)


def ordered_chain(*matrices: Array) -> Array:
    """Returns the product of a chain of matrices, in the order that opt_einsum finds."""
    operands = [item for place, matrix in enumerate(matrices) for item in (matrix, (place, place + 1))]
    return opt_einsum.contract(*operands, (0, len(matrices)), optimize="dp", backend="jax")


def matrices(count: int, longest: int, seed: int = 0) -> list[Array]:
    """Draws a chain of matrices of random sizes, the first of which has `longest` rows.

    They are scaled so that products neither grow nor vanish.
    """
    rng = np.random.default_rng(seed + count)
    sizes = [longest, *(int(size) for size in rng.integers(longest // 50 + 1, longest, size=count))]
    return [
        (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        for rows, columns in itertools.pairwise(sizes)
    ]


def solve(x: Array, y: Array, root: Array, core: Array) -> Array:
    """Solves kernel ridge regression by preconditioned conjugate gradients.

    The shapes are x [n, d], y [n], root [n, r], core [r, r] and weights [n].
    """
    noise = 0.1
    kernel = jnp.exp(-0.5 * squared_distances(x, x)) + noise * jnp.eye(len(x), dtype=x.dtype)
    preconditioner = (jnp.eye(len(x), dtype=x.dtype) - root @ core @ root.T) / noise
    return cg(lambda v: kernel @ v, y, M=lambda v: preconditioner @ v, tol=0.0, maxiter=20)[0]


def nystrom(x: Array, rank: int, noise: float = 0.1) -> tuple[Array, Array]:
    """Computes the root and the core of a preconditioner, in double precision.

    It is the inverse of a Nyström approximation by the first `rank` points.
    """
    x = x.astype(np.float64)
    cross = np.exp(-0.5 * np.sum((x[:, None] - x[None, :rank]) ** 2, axis=-1))
    factor = np.linalg.cholesky(cross[:rank] + 1e-6 * np.eye(rank))
    root = np.linalg.solve(factor, cross.T).T
    core = np.linalg.inv(noise * np.eye(rank) + root.T @ root)
    return root.astype(np.float32), core.astype(np.float32)


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.chains", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with kin40k (examples/data.py)")
    parser.add_argument("--quick", action="store_true", help="at the size of a test")
    options = parser.parse_args(args)
    quick = options.quick
    rows = []
    for count in (4, 8) if quick else (4, 8, 16, 36, 72):
        factors = matrices(count, 60 if quick else 2_000)
        others = {"opt_einsum": jax.jit(ordered_chain)}
        rows.append(row("Matrix chain", count, chain, factors, "2GB", others))
    gradient = jax.value_and_grad(loss)
    for hidden in (200, 2_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        data = regression(options.data, "kin40k", 100 if quick else 1_000)
        arguments = (initial(data.x.shape[1], hidden), data.x, data.y)
        rows.append(row("Wide network", hidden, gradient, arguments, "1MB" if quick else "200MB"))
    for n in (100, 400) if quick else (1_000, 4_000, 16_000):
        data = regression(options.data, "kin40k", n)
        rank = 20 if quick else 200
        arguments = (data.x, data.y, *nystrom(data.x, rank))
        rows.append(row("Preconditioned CG", n, solve, arguments, "500kB" if quick else "100MB"))
    print(text(rows, COLUMNS))
    write("paper-chains", rows, text(rows, COLUMNS), figure(rows, COLUMNS), folder)
    return rows


if __name__ == "__main__":
    main()
