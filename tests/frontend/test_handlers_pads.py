"""Pads of what is only broadcast along the padded dimensions are choices by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.ops import Opaque
from tests.stages import check_meaning, normal, ops

X = normal(4)


def pads(function: Callable[..., Any], *args: Any) -> int:
    """The number of pads in a function's program, after a check of what that means."""
    program = check_meaning(function, *args)
    return sum(op.call.primitive.name == "pad" for op in ops(program, Opaque))


CHOICES: dict[str, Callable[[Any], Any]] = {
    "of a number": lambda x: lax.pad(jnp.full((2, 3), x[0]), x[1], ((1, 2, 0), (0, 3, 0))),
    "of rows": lambda x: lax.pad(jnp.broadcast_to(x, (3, 4)), np.float32(7), ((2, 1, 0), (0, 0, 0))),
    "of a column": lambda x: lax.pad(x[:, None], np.float32(-0.0), ((0, 0, 0), (1, 2, 0))),
    "of one entry, with gaps": lambda x: lax.pad(x[:, None], x[0], ((0, 0, 0), (1, 2, 5))),
    "of truth values": lambda x: lax.pad(jnp.broadcast_to(x > 0, (3, 4)), True, ((2, 1, 0), (0, 0, 0))),
    "of nothing": lambda x: lax.pad(x[:0], x[1], ((1, 2, 0),)),
    "of nothing finite": lambda x: lax.pad(jnp.full((2,), jnp.inf), np.float32(np.nan), ((1, 1, 0),)) * x,
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_broadcast_along_what_is_padded_is_chosen(name: str) -> None:
    assert pads(CHOICES[name], X) == 0


CALLS: dict[str, Callable[[Any], Any]] = {
    "of what varies": lambda x: lax.pad(x, np.float32(0), ((1, 2, 0),)),
    "with gaps": lambda x: lax.pad(jnp.full((3,), x[0]), x[1], ((1, 2, 1),)),
    "that cuts": lambda x: lax.pad(jnp.full((3,), x[0]), x[1], ((-1, 2, 0),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_pads_are_calls(name: str) -> None:
    assert pads(CALLS[name], X) == 1


def test_the_gradient_of_means_of_blocks_makes_no_matrix() -> None:
    """Of three kernels' sums, as in PyTorch code for a two-sample statistic: 200 MB of pads as written."""

    def statistic(x: Any, y: Any) -> Any:
        z = jnp.concatenate([x, y])
        d = jnp.sum((z[:, None] - z[None]) ** 2, -1)
        k, n = sum(jnp.exp(-d / s) for s in (1.0, 4.0)), len(x)
        return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()

    x, y = normal(800, 3), normal(700, 3)
    optimized = eqsat.optimize(jax.value_and_grad(statistic), budget="3MB")
    assert optimized.plan(x, y).peak_bytes <= 3_000_000 < 4 * 1500 * 1500
    for one, other in zip(optimized(x, y), jax.jit(jax.value_and_grad(statistic))(x, y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
