"""Groups of a convolution are an axis, where they are one of what the convolution is made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from tests.stages import lowered, normal, ops


def convolved(x: Any, w: Any, **options: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, **options)


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(convolved(x, w)) ** 2)


def passing(fn: Any, *args: Any) -> list[set[int]]:
    """The lengths of the axes that pass through each convolution of a function, whose values are checked."""
    program, constants = lowered(fn, *args)
    results = interpret(program, [*jax.tree.leaves(args), *constants])
    for result, wanted in zip(results, jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    calls = {op.call for op in ops(program, Opaque)}
    found = [{axis.size for axis in call.passing} for call in calls if "conv" in call.primitive.name]
    assert found
    return found


def test_the_examples_of_a_gradient_of_each() -> None:
    gradients = jax.vmap(jax.grad(lambda w, x: loss(w, x[None])), in_axes=(None, 0))
    assert all(7 in lengths for lengths in passing(gradients, normal(3, 3, 2, 5), normal(7, 6, 6, 2)))


def test_the_members_of_an_ensemble() -> None:
    def total(w: Any, x: Any) -> Any:
        return jnp.sum(jax.vmap(loss, in_axes=(0, None))(w, x))

    weights, images = normal(7, 3, 3, 2, 5), normal(4, 6, 6, 2)
    for gradients in (jax.grad(total), jax.vmap(jax.grad(loss), in_axes=(0, None))):
        assert all(7 in lengths for lengths in passing(gradients, weights, images))


def test_groups_of_features_that_are_one_axis_stay_so() -> None:
    def grouped(w: Any, x: Any) -> Any:
        return convolved(x, w, feature_group_count=3)

    assert passing(grouped, normal(3, 3, 2, 12), normal(4, 5, 5, 6)) == [{4}]


def test_gradients_of_each_example_are_computed_in_chunks() -> None:
    def norms(w: Any, x: Any) -> Any:
        def norm(x: Any) -> Any:
            return jnp.sum(jax.grad(loss)(w, x[None]) ** 2)

        return jax.vmap(norm)(x)

    w, x = normal(3, 3, 2, 8), normal(100, 16, 16, 2)
    budget = 4 * (x.size + 100 + w.size) + 300_000
    optimized = eqsat.optimize(norms, budget=budget)
    assert optimized.plan(w, x).peak_bytes <= budget < 4 * x.size * 8 // 2
    np.testing.assert_allclose(optimized(w, x), jax.jit(norms)(w, x), rtol=1e-4)
