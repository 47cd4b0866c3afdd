"""Products are rounded before what was selected from them is subtracted."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.rounding import rounded_products
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from tests.nightly import nightly_but

ROWS, COLUMNS = 100, 1000


def softmax(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.softmax(a * b[:, None], axis=1)


def averaged(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(jax.nn.softmax(a * b[:, None], axis=1) * a, axis=1)


def of_negated_squares(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(-((a * b[:, None]) ** 2), axis=1).sum(1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("magnitude", [1e5, 1e10, 1e37, 1e17])
@pytest.mark.parametrize("budget", nightly_but(["600kB", "20MB"], ["600kB", "1MB", "1.3MB", "20MB"]))
@pytest.mark.parametrize("function", [softmax, averaged, of_negated_squares])
def test_a_softmax_of_large_products_is_what_it_is_op_by_op(
    function: Callable[..., jax.Array], budget: str, magnitude: float
) -> None:
    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.standard_normal((ROWS, COLUMNS)) * magnitude, jnp.float32)
    b = jnp.asarray(rng.standard_normal(ROWS), jnp.float32)
    optimized = eqsat.optimize(function, budget=budget)
    if budget == "600kB" and function is softmax:
        with pytest.raises(eqsat.BudgetError):
            optimized(a, b)
        return
    np.testing.assert_allclose(optimized(a, b), function(a, b), rtol=2e-6)


def names(function: Callable[..., jax.Array]) -> list[str]:
    shapes = (jax.ShapeDtypeStruct((3, 4), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.float32))
    program, _ = lower(trace(function, shapes, {}).closed)
    rounded = rounded_products(program)
    return [term.op.name for term in program.reachable() if term.number in rounded]  # type: ignore[union-attr]


def test_only_products_beside_what_was_selected_are_rounded() -> None:
    assert names(softmax) == ["mul"]
    assert names(lambda a, b: a * b[:, None] - jnp.sum(a * b[:, None], 1, keepdims=True)) == []
    assert names(lambda a, b: jax.nn.softmax(a + b[:, None], axis=1)) == []
    assert names(lambda a, b: jax.nn.softmax(0.125 * (a + b[:, None]), axis=1)) == []
    assert names(lambda a, b: jax.nn.softmax(0.3 * (a + b[:, None]), axis=1)) == ["mul"]
