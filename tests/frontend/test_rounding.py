"""The function with rounded products is the function, and rounds only what has to be."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.frontend.rounding import rounding


@jax.custom_jvp
def scaled(a: jax.Array, b: jax.Array) -> jax.Array:
    return a * b[:, None]


scaled.defjvps(None, None)


def in_calls(a: jax.Array, b: jax.Array) -> jax.Array:
    """Of a product in one call, the maximum in another."""
    products = scaled(a, b)
    return products - jax.jit(lambda t: jnp.max(t, axis=1, keepdims=True))(products)


def beside_itself(a: jax.Array, b: jax.Array) -> jax.Array:
    products = a * b[:, None]
    return products - products[:, :1]


def beside_its_neighbours(a: jax.Array, b: jax.Array) -> jax.Array:
    products = a * b[:, None]
    return products - jnp.roll(products, 1, 1) + jnp.pad(products[1:], ((0, 1), (0, 0)))


def beside_a_sum(a: jax.Array, b: jax.Array) -> jax.Array:
    products = a * b[:, None]
    return products - jnp.sum(jnp.exp(products - jnp.sum(products)), axis=1, keepdims=True)


def in_a_loop(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda carry, row: (carry + row.sum(), row * 0.3), 0.0, a)[1] * b[:, None]


A = jnp.asarray(np.random.default_rng(0).standard_normal((5, 7)), jnp.float32)
B = jnp.linspace(-2.1, -0.3, 5)


@pytest.mark.parametrize(
    ("function", "rounded"),
    [(in_calls, 1), (beside_itself, 2), (beside_its_neighbours, 0), (beside_a_sum, 0), (in_a_loop, 0)],
)
def test_products_are_rounded_where_entries_of_them_are_subtracted(
    function: Callable[..., jax.Array], rounded: int
) -> None:
    closed = jax.make_jaxpr(function)(A, B)
    (result,) = rounding(closed)(A, B)
    np.testing.assert_array_equal(result, function(A, B))
    assert str(jax.make_jaxpr(rounding(closed))(A, B)).count(" ne ") == rounded
