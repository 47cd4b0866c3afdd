"""Values by tiles are found in calls, too: what computes rows may be written anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.interpret import interpret
from eqsat.ir.tiled_values import tiled_values, with_tiles
from tests.stages import lowered, normal

KERNEL = normal(5)


def filtered(x: Any) -> Any:
    return jnp.convolve(x, KERNEL, mode="valid")


@jax.jit
def half(x: Any) -> Any:
    return filtered(x) / 2


@jax.custom_jvp
def known(x: Any) -> Any:
    return half(x)


known.defjvps(lambda t, _, x: half(t))


def looped(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, s: s + jnp.mean(half(x * s)), 1.0)


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (lambda x: jnp.mean(half(x)), 1),  # a mean is a call as well
        (jax.jit(lambda x: jnp.var(half(x))), 2),
        (jax.checkpoint(lambda x: jnp.mean(half(x))), 1),
        (lambda x: jnp.mean(known(x)), 1),
        (lambda x: jnp.mean(half(x)) + jnp.sum(half(-x)), 2),  # one call with two operands
    ],
)
def test_tiles_go_through_calls(fn: Callable[[Any], Any], count: int) -> None:
    x = normal(1_013)
    program, hoisted = lowered(fn, x)
    assert len(list(tiled_values(program))) == count
    (found,) = interpret(with_tiles(program), [x, *hoisted])
    np.testing.assert_allclose(found, fn(x), rtol=1e-5)


def test_tiles_in_bodies_of_loops() -> None:
    program, _ = lowered(looped, normal(1_013))
    assert any(list(tiled_values(inner)) for inner in program.inside(known=True))
