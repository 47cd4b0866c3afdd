"""Programs jump where floats decide between values, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from eqsat.ir.discontinuities import is_discontinuous
from tests.stages import lowered, normal

X = normal(5, 7)
N = jax.numpy.arange(5)

JUMPS: dict[str, Callable[[Any], Any]] = {
    "floors": jnp.floor,
    "remainders": lambda x: x % 1,
    "signs": lambda x: x * jnp.sign(x),
    "comparisons": lambda x: jnp.where(x > 0.5, x, 0.0),
    "rounding to integers": lambda x: x.astype(jnp.int32),
    "places of the largest": lambda x: jnp.argmax(x, 1),
    "orders": lambda x: lax.sort((x, x * 2), num_keys=1)[1],
    "bins": lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]),
    "inside of a loop": lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.round(x) * 0.3, x),
}

SMOOTH: dict[str, Callable[[Any], Any]] = {
    "functions": lambda x: jnp.tanh(x @ x.T) + jnp.exp(x).sum(),
    "the largest": lambda x: jnp.maximum(x, 0.0) + jax.nn.logsumexp(x),
    "values in order": lambda x: jnp.sort(x),
    "whether a number is one": lambda x: jnp.where(jnp.isnan(x), 0.0, x),
    "comparisons of integers": lambda x: jnp.where(N[:, None] > 2, x, 0.0),
    "loops": lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x), x),
}


@pytest.mark.parametrize("name", JUMPS)
def test_where_floats_decide_is_a_jump(name: str) -> None:
    assert is_discontinuous(lowered(jax.jit(JUMPS[name]), X)[0])


@pytest.mark.parametrize("name", SMOOTH)
def test_elsewhere_is_none(name: str) -> None:
    assert not is_discontinuous(lowered(jax.jit(SMOOTH[name]), X)[0])
