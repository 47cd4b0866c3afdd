"""Values that lose a dimension and get it back are the same with it, by tiles too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.frontend.test_tiles import check, conv
from tests.stages import normal


def single_image(x: Any, bias: Any) -> Any:
    """One image, as in flax: convolutions get a batch of it, and biases are added without one."""
    hidden = jax.nn.relu(conv(x[None], 4)[0] + bias.reshape(1, 1, -1))
    return conv(hidden[None], 2)[0]


def centred(x: Any, bias: Any) -> Any:
    hidden = conv(x[None], 4)[0]
    hidden = hidden * bias - hidden.mean((0, 1), keepdims=True)
    return conv(jax.nn.relu(hidden)[None] + bias[None, None, None, :], 2)[0]


def scaled_by_rows(x: Any, bias: Any) -> Any:
    hidden = conv(x[None], 4)[0] * jnp.cumsum(x[:, :, :1], 0) + bias.reshape(1, 1, -1)
    return conv(hidden[None], 2)[0]


@pytest.mark.parametrize("fn", [single_image, centred, scaled_by_rows])
def test_one_image_is_computed_by_tiles(fn: Any) -> None:
    assert check(fn, normal(96, 8, 3), normal(4))


def test_a_single_image_is_planned() -> None:
    x, bias = normal(512, 64, 3), normal(4)

    def energy(x: Any, bias: Any) -> Any:
        return jnp.square(single_image(x, bias)).sum()

    optimized = eqsat.optimize(energy, budget="1MB")
    assert optimized.plan(x, bias).peak_bytes <= 1_000_000
    np.testing.assert_allclose(optimized(x, bias), jax.jit(energy)(x, bias), rtol=1e-5)
