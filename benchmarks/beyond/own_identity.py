"""A rule that the user adds: a sum over pairs that is a product of two sums.

    python -m benchmarks.beyond.own_identity [--quick] [--runs N]

The program written by hand applies the rule in `cosines.rules` directly.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.beyond.table import Case, main

Array = Any
RULES = (Path(__file__).parent / "cosines.rules",)


def field(x: Array, y: Array, weights: Array) -> Array:
    """Returns the sum of the waves from all y at every x."""
    return jnp.cos(x[:, None] - y[None, :]) @ weights


def by_hand(x: Array, y: Array, weights: Array) -> Array:
    return jnp.cos(x) * (jnp.cos(y) @ weights) + jnp.sin(x) * (jnp.sin(y) @ weights)


def data(count: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 2 * np.pi, (2, count))
    return tuple(array.astype(np.float32) for array in (x, y, rng.normal(size=count)))


def case(count: int) -> Case:
    hand = {"two sums by hand": by_hand}
    title = f"waves from {count:,} points"
    return Case(title, field, partial(data, count), ("1MB",), hand, rules=RULES, accuracy="rescales")


CASES = (case(5_000), case(10_000))
QUICK = (case(500),)

if __name__ == "__main__":
    main("own_identity", __doc__.splitlines()[0], CASES, QUICK)
