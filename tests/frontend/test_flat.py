"""A jaxpr as one list of equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.frontend.flat import FlatJaxpr


def evaluated(flat: FlatJaxpr, jaxpr: Any, *args: Any) -> list[Any]:
    """The results of a jaxpr by its list of equations."""
    known: dict[int, Any] = dict(zip((flat.numbers[var] for var in jaxpr.invars), args, strict=True))
    read = lambda value: known[value] if isinstance(value, int) else value.val  # noqa: E731
    for one in flat.equations:
        results = one.bind([read(value) for value in one.inputs])
        known.update(zip(one.outputs, results if one.primitive.multiple_results else [results], strict=True))
    return [read(value) for value in flat.results]


@jax.jit
def scaled(x: Any, factor: Any) -> Any:
    return jax.nn.relu(x) * factor


def test_calls_are_seen_through() -> None:
    def function(x: Any) -> Any:
        return scaled(scaled(x, 2.0), x.sum()), jnp.float32(3.0)

    x = np.array([1.0, -2.0, 3.0], np.float32)
    jaxpr = jax.make_jaxpr(function)(x).jaxpr
    flat = FlatJaxpr(jaxpr)
    assert {"jit", "pjit", "custom_jvp_call"}.isdisjoint(one.name for one in flat.equations)
    for found, wanted in zip(evaluated(flat, jaxpr, x), function(x), strict=True):
        np.testing.assert_array_equal(found, wanted)
    # What a call gives is a variable of the jaxpr, and what is inside is none.
    assert flat.variables[flat.results[0]] is jaxpr.outvars[0]  # type: ignore[index]
    assert len(flat.variables) < len(flat.avals)


def test_a_split_is_slices() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(2, 6)
    jaxpr = jax.make_jaxpr(lambda x: jnp.split(x, [1, 4], axis=1))(x).jaxpr
    flat = FlatJaxpr(jaxpr)
    assert [one.name for one in flat.equations] == ["slice"] * 3
    for found, wanted in zip(evaluated(flat, jaxpr, x), np.split(x, [1, 4], axis=1), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_loops_stay_as_they_are() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(x), x))(1.0).jaxpr
    assert [one.name for one in FlatJaxpr(jaxpr).equations] in (["scan"], ["while"])
