"""Sparse Gaussian process regression with GPJax: the bound and its gradient under a budget, and a training.

    python -m examples.sparse_gp [--data DIR] [--small]

The kernel matrix between inducing points and data takes the memory, with the values that the forward and the
backward pass compute from it. DIR may have kin40k. The losses of the training are minus the bound, per point.

What `python -m examples.sparse_gp` prints, on two cores shared with other work:

    The bound and its gradient: 36,000 points in 8 dimensions, 500 inducing ones
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 1.3 GB                  budget 100 MB                 eqsat 91.5 MB
      time    plain 27.7 s                  planning 66.3 s               eqsat 13.2 s
      error   plain 6.0e-06                 (float64, all of it)          eqsat 1.8e-06
      loops   x.0: 36000 in 15 chunks of 2400, combined by sum and concatenation; x.0: 36000 in 120
              chunks of 300, combined by sum and concatenation
      rules   contraction-order 76, chunk-map 25, split-contraction 21, rename-map 16, add-negation 9,
              chunk-rename 8, split-reduction 8, pull-factor 6, chunk-contraction 6, rename-across 6,
              sum-of-addition 4, chunk-call 3, product-with-negation 3, named-operation 2, rename-twice
              2, rename-past-rename 2, split-result 2, pull-negation 2, pull-factor-from-dot 2,
              chunk-reduction 1, divisor-out-of-squares 1, quotient-of-negation 1

      eqsat loss  1.635354  1.591924  1.555893  1.526878  1.503729  1.485026  1.469388
      plain loss  1.635354  1.591924  1.555893  1.526878  1.503729  1.485025  1.469388
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import optax

from examples import data
from examples.comparison import Comparison, compare, in_double_precision


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = data.parse(args, __doc__)
    n, inducing, budget, steps = (3_000, 50, "2MB", 3) if options.small else (36_000, 500, "100MB", 6)
    x, y, _, _ = data.regression(options.data, "kin40k", n)

    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Constant(), kernel=gpx.kernels.RBF())
    model = gpx.variational_families.CollapsedVariationalGaussian(
        model=prior * gpx.likelihoods.Gaussian(), inducing_inputs=x[:inducing]
    )
    # All arrays of the model are trained: hyperparameters and inducing inputs.
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf, x.dtype), parameters)

    def loss(parameters: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        dataset = gpx.Dataset(x, y[:, None])
        return -gpx.objectives.collapsed_elbo(eqx.combine(parameters, static), dataset) / len(x)

    value_and_gradient = jax.value_and_grad(loss)
    comparison = compare(
        f"The bound and its gradient: {len(x):,} points in {x.shape[1]} dimensions, {inducing} inducing ones",
        value_and_gradient, parameters, x, y,
        budget=budget,
        reference=in_double_precision(value_and_gradient),
    )  # fmt: skip
    for name, function in comparison.functions.items():
        losses = train(lambda parameters, f=function: f(parameters, x, y), parameters, steps)
        print(f"  {name} loss".ljust(14) + "  ".join(f"{loss:.6f}" for loss in losses))
    return [comparison]


def train(
    value_and_gradient: Callable[[Any], tuple[jax.Array, Any]], parameters: Any, steps: int
) -> list[float]:
    """Returns the losses before each step of Adam and after the last one: minus the bound, per point."""
    optimizer = optax.adam(0.03)
    state = optimizer.init(parameters)
    losses = []
    for _ in range(steps):
        value, gradient = value_and_gradient(parameters)
        updates, state = optimizer.update(gradient, state)
        parameters = optax.apply_updates(parameters, updates)
        losses.append(float(value))
    return [*losses, float(value_and_gradient(parameters)[0])]


if __name__ == "__main__":
    main()
