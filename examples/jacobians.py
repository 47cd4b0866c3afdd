"""Functions of a network's per-example Jacobians: their norms, and the diagonal of the Gauss-Newton matrix.

    python -m examples.jacobians [--data DIR] [--small]

All Jacobians together, from `jax.vmap(jax.jacrev(…))`, are an array of examples by classes by parameters.

What `python -m examples.jacobians --data DIR` prints, on two cores shared with other work:

    Norms of Jacobians: 300 examples, 118,282 parameters
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 1.25 GB                 budget 50 MB                  eqsat 14.6 MB
      time    plain 3.2 s                   planning 9.9 s                eqsat 967 ms
      error   plain 9.5e-08                 (float64, all of it)          eqsat 9.5e-08
      loops   x.0: 300 in 150 chunks of 2, combined by concatenation
      rules   chunk-map 14, split-result 5, chunk-call 3, chunk-reduction 3, equal-indices 1,
              chunk-contraction 1

    Diagonal of the Gauss-Newton matrix: 300 examples, 118,282 parameters
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 1.33 GB                 budget 50 MB                  eqsat 21.9 MB
      time    plain 15.7 s                  planning 24.3 s               eqsat 6.4 s
      error   plain 5.1e-07                 (float64, all of it)          eqsat 2.4e-07
      loops   x.0: 300 in 25 chunks of 12, combined by concatenation and sum; …params_Dense_0_kernel.0:
              784 in 14 chunks of 56, combined by concatenation; x.0: 300 in 12 chunks of 25, combined
              by sum
      rules   chunk-map 16, split-contraction 8, split-reduction 6, split-result 4, chunk-call 3,
              chunk-contraction 3, equal-indices 1, chunk-rename 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from examples.comparison import Comparison, compare, in_double_precision
from examples.data import images, parse

Array = Any


class Classifier(nn.Module):
    hidden: int
    classes: int = 10

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.tanh(nn.Dense(self.hidden)(x))
        x = nn.tanh(nn.Dense(self.hidden)(x))
        return nn.Dense(self.classes)(x)


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = parse(args, __doc__)
    n, inputs, hidden = (100, 40, 24) if options.small else (300, 784, 128)
    network = Classifier(hidden)
    x, _ = images(options.data, n, 0, inputs)
    parameters = network.init(jax.random.key(0), x[0])

    def jacobians(parameters: Any, x: Array) -> Any:
        """Returns the Jacobians of the logits in each parameter, for each example: [n, classes, ...]."""
        return jax.vmap(jax.jacrev(network.apply), (None, 0))(parameters, x)

    def norms(parameters: Any, x: Array) -> Array:
        """Returns the Frobenius norm of every example's Jacobian, [n]."""
        squares = [
            jnp.sum(j.reshape(len(x), -1) ** 2, axis=1) for j in jax.tree.leaves(jacobians(parameters, x))
        ]
        return jnp.sqrt(sum(squares))

    def diagonal(parameters: Any, x: Array) -> Any:
        """Returns the diagonal of the cross entropy's Gauss-Newton matrix, as in a Laplace approximation."""
        p = jax.nn.softmax(network.apply(parameters, x))
        return jax.tree.map(
            lambda j: (
                jnp.einsum("nc...,nc->...", j**2, p)
                - jnp.sum(jnp.einsum("nc...,nc->n...", j, p) ** 2, axis=0)
            ),
            jacobians(parameters, x),
        )

    return [
        compare(
            f"{title}: {n:,} examples, {sum(p.size for p in jax.tree.leaves(parameters)):,} parameters",
            function,
            parameters,
            x,
            budget=0.4 if options.small else "50MB",
            reference=in_double_precision(function),
        )
        for title, function in {
            "Norms of Jacobians": norms,
            "Diagonal of the Gauss-Newton matrix": diagonal,
        }.items()
    ]


if __name__ == "__main__":
    main()
