"""Kernel ridge regression by lineax's conjugate gradients, with the kernel matrix written out in full.

    python -m examples.kernel_ridge [--data DIR] [--small]

The kernel matrix takes the memory. If it does not fit, every iteration of the solver recomputes it by chunks.
This takes longer than keeping it, but any number of points fits. DIR may have kin40k.

What `python -m examples.kernel_ridge` prints, on two cores shared with other work:

    Weights of kernel ridge regression on 10,000 points in 8 dimensions
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 401 MB                  budget 40.1 MB                eqsat 8.92 MB
      time    plain 7.1 s                   planning 12.5 s               eqsat 20.0 s
      error   plain 2.0e-06                 (float64, all of it)          eqsat 2.0e-06
      loops   x.0: 10000 in 50 chunks of 200, combined by concatenation; x.0: 10000 in 50 chunks of 200,
              combined by concatenation; x.0: 10000 in 50 chunks of 200, combined by concatenation
      rules   chunk-map 20, chunk-reduction 4, any-of-not 4, split-result 3, rematerialised-in-loop 3,
              chunk-delta 2, chunk-contraction 2, split-contraction 1, matrix-plus-diagonal-times 1
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import lineax as lx

from examples import data
from examples.comparison import Comparison, compare, in_double_precision


def weights(x: jax.Array, y: jax.Array) -> jax.Array:
    """Solves (K + I) w = y for the squared-exponential kernel matrix K of the rows of x."""
    squares = jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1)
    matrix = jnp.exp(-0.5 * squares) + jnp.eye(len(x), dtype=x.dtype)
    operator = lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag)
    return lx.linear_solve(operator, y, lx.CG(rtol=1e-5, atol=1e-5)).value


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = data.parse(args, __doc__)
    x, y, _, _ = data.regression(options.data, "kin40k", 1_000 if options.small else 10_000)
    return [
        compare(
            f"Weights of kernel ridge regression on {len(x):,} points in {x.shape[1]} dimensions",
            weights, x, y,
            budget=0.1,
            reference=in_double_precision(weights),
            max_slowdown=None,  # each of the solver's steps recomputes the matrix
        )
    ]  # fmt: skip


if __name__ == "__main__":
    main()
