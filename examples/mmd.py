"""The maximum mean discrepancy between two samples, by coreax.

    python -m examples.mmd [--data DIR] [--small]

Three arrays of the differences between all pairs of images, pixel by pixel, take the memory. DIR may have
MNIST.

What `python -m examples.mmd` prints, on two cores shared with other work:

    Discrepancy between 1,000 training and 1,000 test images of 784 pixels
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 3.24 GB                 budget 64.8 MB                eqsat 14.5 MB
      time    plain 9.2 s                   planning 6.4 s                eqsat 2.2 s
      error   plain 1.2e-07                 (float64, all of it)          eqsat 1.2e-07
      loops   x.0: 1000 in 20 chunks of 50, combined by concatenation; y.0: 1000 in 20 chunks of 50,
              combined by sum; y.0: 1000 in 20 chunks of 50, combined by concatenation; x.0: 1000 in 20
              chunks of 50, combined by sum; x.0: 1000 in 20 chunks of 50, combined by concatenation;
              y.0: 1000 in 20 chunks of 50, combined by sum
      rules   chunk-map 18, split-contraction 9, chunk-contraction 3, split-result 3
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from coreax import Data
from coreax.kernels import SquaredExponentialKernel
from coreax.metrics import MMD

from examples import data
from examples.comparison import Comparison, compare, in_double_precision


def discrepancy(x: jax.Array, y: jax.Array) -> jax.Array:
    return MMD(SquaredExponentialKernel(length_scale=5.0)).compute(Data(x), Data(y))


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = data.parse(args, __doc__)
    n = 150 if options.small else 1_000
    x, y = data.images(options.data, n, n)
    return [
        compare(
            f"Discrepancy between {len(x):,} training and {len(y):,} test images of {x.shape[1]} pixels",
            discrepancy, x, y,
            budget=0.02,
            reference=in_double_precision(discrepancy),
        )
    ]  # fmt: skip


if __name__ == "__main__":
    main()
