"""The Sinkhorn divergence of two point clouds by OTT-JAX, and its gradient with respect to one of them.

    python -m examples.sinkhorn [--data DIR] [--small]

On generated data:

    Divergence, and its gradient, of 2,000 from 1,958 points in 8 dimensions
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 70 MB                   budget 7 MB                   eqsat 3.22 MB
      time    plain 1.8 s                   planning 95.7 s               eqsat 2.4 s
      error   plain 1.1e-06                 (float64, all of it)          eqsat 6.2e-06
      loops   y.0: 1958 in 22 chunks of 89, combined by rescaled_logarithm and concatenation; y.0: 1958
              in 22 chunks of 89, combined by concatenation; y.0: 1958 in 22 chunks of 89, combined by
              concatenation and rescaled_logarithm; y.0: 1958 in 22 chunks of 89, combined by
              concatenation and rescaled_logarithm; y.0: 1958 in 22 chunks of 89, combined by
              concatenation and max and sum; x.0: 2000 in 25 chunks of 80, combined by concatenation and
              rescaled_logarithm; x.0: 2000 in 25 chunks of 80, combined by concatenation and
              rescaled_logarithm; x.0: 2000 in 25 chunks of 80, combined by max; x.0: 2000 in 25 chunks
              of 80, combined by sum; y.0: 1958 in 22 chunks of 89, combined by sum; x.0: 2000 in 25
              chunks of 80, combined by sum and concatenation
      rules   chunk-map 182, split-safe-exponentials 32, split-result 17, chunk-contraction 17,
              chunk-reduction 12, split-reduction 11, split-contraction 8, contraction-order 7,
              split-logsumexp 5, logarithm-of-reciprocal 4, pull-factor 4, sum-of-addition 4,
              quotient-of-negation 2, pull-factor-from-dot 2, chunk-operation 1, product-with-negation
              1, pull-divisor-from-dot 1
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
