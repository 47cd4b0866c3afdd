"""Kernel ridge regression by conjugate gradients, shared out among all devices that there are.

    JAX_NUM_CPU_DEVICES=8 JAX_PLATFORMS=cpu python -m examples.several_devices [--small]

plays eight devices on one processor. On a machine with several GPUs, the same line without its settings uses
them. On a cluster, start it in every process (by `srun`, say) with `--cluster`: `jax.distributed` finds the
others, and nothing else changes. Each device has the budget. The matrix of kernels is too large for one of
them, and each keeps some rows of it.

What that line prints, on two cores shared with other work:

    Weights of 6,000 points on 8 devices
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 144 MB                  budget 24 MB                  eqsat 18.3 MB
      time    plain 757 ms                  planning 4.0 s                eqsat 294 ms
      error   plain 1.5e-05                 (float64, all of it)          eqsat 9.6e-06
      loops   none
      rules   none
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from examples.comparison import Comparison, compare, in_double_precision

ITERATIONS = 10


def weights(x: jax.Array, y: jax.Array) -> jax.Array:
    """Weights of a kernel machine on points x with targets y, after some conjugate gradients."""
    kernel = jnp.exp(-0.5 * jnp.sum((x[:, None] - x[None]) ** 2, -1))

    def step(state: tuple[jax.Array, ...], _: None) -> tuple[tuple[jax.Array, ...], None]:
        solution, residual, direction = state
        image = kernel @ direction + direction
        size = residual @ residual
        length = size / (direction @ image)
        left = residual - length * image
        return (solution + length * direction, left, left + (left @ left / size) * direction), None

    (solution, _, _), _ = lax.scan(step, (jnp.zeros_like(y), y, y), None, length=ITERATIONS)
    return solution


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="at the size of a test")
    parser.add_argument("--cluster", action="store_true", help="with the devices of all processes")
    options = parser.parse_args(args)
    if options.cluster:
        jax.distributed.initialize()
    n, budget = (800, "1.6MB") if options.small else (6_000, "24MB")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 8)).astype(np.float32)
    y = np.sin(x.sum(1))
    return [
        compare(
            f"Weights of {n:,} points on {len(jax.devices())} devices",
            weights,
            x,
            y,
            budget=budget,
            reference=in_double_precision(weights),
            mesh={"data": len(jax.devices())},
            out_shardings=PartitionSpec(),
        )
    ]


if __name__ == "__main__":
    main()
