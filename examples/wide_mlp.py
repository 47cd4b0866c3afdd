"""The loss and gradient of a network with one very wide hidden layer, on all data at once.

    python -m examples.wide_mlp [--data DIR] [--small]

The activations, points by hidden units, take the memory. DIR may have kin40k.

What `python -m examples.wide_mlp --data DIR` prints, on two cores shared with other work:

    Wide network, loss: 50,000 hidden units, 10,000 points
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 2 GB                    budget 50 MB                  eqsat 10.4 MB
      time    plain 4.4 s                   planning 5.3 s                eqsat 2.0 s
      error   plain 4.6e-08                 (float64, all of it)          eqsat 4.6e-08
      loops   parameters_bias.0: 50000 in 250 chunks of 200, combined by sum
      rules   chunk-map 9, split-contraction 3, chunk-contraction 2, contraction-order 1

    Wide network, loss and gradient: 50,000 hidden units, 10,000 points
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 6.14 GB                 budget 50 MB                  eqsat 44.6 MB
      time    plain 45.0 s                  planning 5.1 s                eqsat 32.9 s
      error   plain 3.4e-06                 (float64, all of it)          eqsat 2.8e-06
      loops   x.0: 10000 in 250 chunks of 40, combined by concatenation and sum
      rules   chunk-map 29, split-contraction 5, chunk-contraction 2, split-reduction 2, split-result 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.comparison import Comparison, compare, in_double_precision
from examples.data import parse, regression

Array = Any


def initial(inputs: int, hidden: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "in": rng.normal(size=(inputs, hidden)).astype(np.float32) / np.sqrt(np.float32(inputs)),
        "bias": rng.normal(size=hidden).astype(np.float32),
        "out": rng.normal(size=hidden).astype(np.float32) / np.sqrt(np.float32(hidden)),
    }


def loss(parameters: dict[str, Array], x: Array, y: Array) -> Array:
    """Returns the mean squared error of the network's predictions, for x [n, d] and y [n]."""
    hidden = jax.nn.gelu(x @ parameters["in"] + parameters["bias"])
    return jnp.mean((hidden @ parameters["out"] - y) ** 2)


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = parse(args, __doc__)
    points, hidden = (400, 500) if options.small else (10_000, 50_000)
    data = regression(options.data, "kin40k", points)
    parameters = initial(data.x.shape[1], hidden)
    return [
        compare(
            f"Wide network, {name}: {hidden:,} hidden units, {len(data.x):,} points",
            function,
            parameters,
            data.x,
            data.y,
            budget=0.2 if options.small else "50MB",
            reference=in_double_precision(function),
        )
        for name, function in {"loss": loss, "loss and gradient": jax.value_and_grad(loss)}.items()
    ]


if __name__ == "__main__":
    main()
