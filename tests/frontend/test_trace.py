"""Functions as jaxprs: what of their results there is to compute."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from eqsat.frontend.trace import trace
from tests.stages import normal


def derivative(x: Any) -> Any:
    """With the tangents of results that are integers between those of others."""
    return jax.jvp(lambda v: (jnp.sin(v), jnp.argmax(v), jnp.cos(v)), (x,), (x,))[1]


def test_tangents_of_integers_are_left_out_of_the_jaxpr() -> None:
    x = normal(7)
    traced = trace(derivative, (x,), {})
    assert [aval.dtype for aval in traced.closed.out_avals] == [np.float32, np.float32]
    wanted, found = derivative(x), traced.unflatten(traced.call_flat(x))
    assert [part.dtype for part in found] == [np.float32, jax.dtypes.float0, np.float32]
    assert [part.shape for part in found] == [part.shape for part in wanted]


def test_tangents_of_integers_come_back() -> None:
    x = jnp.asarray(normal(7))
    found = eqsat.optimize(derivative, budget="1MB")(x)
    assert found[1].dtype == jax.dtypes.float0
    np.testing.assert_allclose(found[0], derivative(x)[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], derivative(x)[2], rtol=1e-6)
