"""Exact Gaussian process prediction with GPJax: means and variances at many test points.

    python -m examples.gp_prediction [--data DIR] [--small]

The kernel matrix between test points and data, and the solution of a system with it, take the memory. DIR may
have kin40k.

What `python -m examples.gp_prediction` prints, on two cores shared with other work:

    Mean and variance at 33,000 points, given 3,000 in 8 dimensions
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 1.62 GB                 budget 162 MB                 eqsat 73.4 MB
      time    plain 44.4 s                  planning 18.3 s               eqsat 28.7 s
      error   plain 2.4e-06                 (float64, all of it)          eqsat 4.0e-06
      loops   x_test.0: 33000 in 50 chunks of 660, combined by concatenation
      rules   chunk-map 14, divisor-out-of-squared-distance 5, chunk-contraction 2, split-result 2,
              chunk-rename 2, chunk-reduction 1, rename-map 1, scaled-diagonal 1, named-operation 1,
              rename-across 1, chunk-call 1
"""

from __future__ import annotations

from collections.abc import Sequence

import gpjax as gpx
import jax

from examples import data
from examples.comparison import Comparison, compare, in_double_precision


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = data.parse(args, __doc__)
    training, tests = (200, 3_000) if options.small else (3_000, 33_000)
    inputs, targets, _, _ = data.regression(options.data, "kin40k", training + tests)

    def predict(x: jax.Array, y: jax.Array, x_test: jax.Array) -> tuple[jax.Array, jax.Array]:
        prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=gpx.kernels.Matern52())
        model = prior * gpx.likelihoods.Gaussian(obs_stddev=0.1)
        predictive = model.predict(x_test, gpx.Dataset(x, y[:, None]), covariance="diagonal")
        return predictive.mean, predictive.variance

    x, y, x_test = inputs[:training], targets[:training], inputs[training:]
    return [
        compare(
            f"Mean and variance at {len(x_test):,} points, given {training:,} in {x.shape[1]} dimensions",
            predict, x, y, x_test,
            budget=0.1,
            reference=in_double_precision(predict),
        )
    ]  # fmt: skip


if __name__ == "__main__":
    main()
