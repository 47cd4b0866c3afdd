"""A jaxpr as one list of equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.frontend.flat import FlatJaxpr
from tests.flat_values import evaluated


@jax.jit
def scaled(x: Any, factor: Any) -> Any:
    return jax.nn.relu(x) * factor


def test_calls_are_seen_through() -> None:
    def function(x: Any) -> Any:
        return scaled(scaled(x, 2.0), x.sum()), jnp.float32(3.0)

    x = np.array([1.0, -2.0, 3.0], np.float32)
    closed = jax.make_jaxpr(function)(x)
    flat = FlatJaxpr(closed.jaxpr)
    assert {"jit", "pjit", "custom_jvp_call"}.isdisjoint(one.name for one in flat.equations)
    for found, wanted in zip(evaluated(flat, closed, flat.results, x), function(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_values_know_which_variables_they_are() -> None:
    closed = jax.make_jaxpr(lambda x: scaled(scaled(x, x.max()), x.sum()))(np.ones(3, np.float32))
    flat = FlatJaxpr(closed.jaxpr)
    assert len(set(flat.variables)) == len(flat.variables) == len(flat.avals)
    assert all(one.var.aval == aval for one, aval in zip(flat.variables, flat.avals, strict=True))
    first, second = (one for one in closed.jaxpr.eqns if one.params.get("name") == "scaled")
    paths = {one.path[:1] for one in flat.variables}
    assert paths == {(), (id(first),), (id(second),)}
    # One jaxpr is called twice: its variables are told apart by the calls.
    assert first.params["jaxpr"] is second.params["jaxpr"]


def test_a_split_is_slices() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(2, 6)
    closed = jax.make_jaxpr(lambda x: jnp.split(x, [1, 4], axis=1))(x)
    flat = FlatJaxpr(closed.jaxpr)
    assert [one.name for one in flat.equations] == ["slice"] * 3
    for found, wanted in zip(
        evaluated(flat, closed, flat.results, x), np.split(x, [1, 4], axis=1), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_loops_stay_as_they_are() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(x), x))(1.0).jaxpr
    assert [one.name for one in FlatJaxpr(jaxpr).equations] in (["scan"], ["while"])
