"""The Sinkhorn divergence of two point clouds by OTT-JAX, and its gradient with respect to one of them.

    python -m examples.sinkhorn [--data DIR] [--small]

Three matrices of costs take the memory, and the matrices that every iteration of three loops computes from
them. DIR may have kin40k.

What `python -m examples.sinkhorn` prints, on two cores shared with other work:

    Divergence, and its gradient, of 2,000 from 2,000 points in 8 dimensions
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 70 MB                   budget 7 MB                   eqsat 5.86 MB
      time    plain 4.1 s                   planning 158.6 s              eqsat 4.0 s
      error   plain 1.8e-06                 (float64, all of it)          eqsat 2.3e-06
      loops   y.0: 2000 in 10 chunks of 200, combined by rescaled_logarithm and concatenation; y.0: 2000
              in 10 chunks of 200, combined by concatenation; y.0: 2000 in 10 chunks of 200, combined by
              concatenation and rescaled_logarithm; y.0: 2000 in 10 chunks of 200, combined by
              concatenation and rescaled_logarithm; y.0: 2000 in 10 chunks of 200, combined by
              concatenation and rescaled_logarithm and sum; x.0: 2000 in 10 chunks of 200, combined by
              concatenation and rescaled_logarithm; x.0: 2000 in 10 chunks of 200, combined by
              concatenation and rescaled_logarithm; y.0: 2000 in 10 chunks of 200, combined by
              concatenation and sum
      rules   chunk-map 210, split-safe-exponentials 36, split-result 17, chunk-reduction 17,
              chunk-contraction 16, split-contraction 10, split-logsumexp 6, rename-map 6, pull-factor
              4, sum-of-addition 4, logarithm-of-reciprocal 2, split-reduction 2, product-with-negation
              2, add-negation 2, pull-divisor 1
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from ott.geometry import pointcloud
from ott.tools import sinkhorn_divergence

from examples import data
from examples.comparison import Comparison, compare, in_double_precision


def divergence(x: jax.Array, y: jax.Array) -> jax.Array:
    value, _ = sinkhorn_divergence.sinkhorn_divergence(pointcloud.PointCloud, x, y, epsilon=0.5)
    return value


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = data.parse(args, __doc__)
    n, budget = (300, "600kB") if options.small else (2_000, "7MB")
    x, y, _, _ = data.regression(options.data, "kin40k", 5 * n)
    low, high = x[y < 0][:n], x[y >= 0][:n]  # inputs with small targets, and with large ones
    # The gradient takes XLA too long to compile for a test.
    function = divergence if options.small else jax.value_and_grad(divergence)
    what = "Divergence" if options.small else "Divergence, and its gradient,"
    return [
        compare(
            f"{what} of {len(low):,} from {len(high):,} points in {x.shape[1]} dimensions",
            function, low, high,
            budget=budget,
            reference=in_double_precision(function),
        )
    ]  # fmt: skip


if __name__ == "__main__":
    main()
