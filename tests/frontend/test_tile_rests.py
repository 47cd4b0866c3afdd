"""Sums over rows that no length of tiles divides: the derivatives of convolutions by their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.frontend.tiles import tilings
from eqsat.ir.tiled_values import tiled_values
from tests.frontend.test_tiles import SPECIALS, check
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

PRIME = 1_009

KERNELS = [normal(3, 2, 4) / 2, normal(5, 4, 4) / 3, normal(3, 4, 1) / 3]


def layer(x: Any, kernel: Any, **options: Any) -> Any:
    """A convolution of series (N, W, C)."""
    given = {"window_strides": (1,), "padding": "SAME", "dimension_numbers": ("NWC", "WIO", "NWC"), **options}
    return lax.conv_general_dilated(x, kernel, **given)


BETWEEN: dict[str, Callable[[Any], Any]] = {
    "same length": jnp.tanh,
    "shorter": lambda x: jnp.tanh(x[:, 3:-2]),
    "longer": lambda x: jnp.pad(x, ((0, 0), (4, 1), (0, 0)), constant_values=0.5),
    "every other": lambda x: x[:, ::2],
    "summed": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 1), (1, 1, 1), "VALID"),
    "repeated": lambda x: jnp.repeat(x, 2, axis=1),
    "joined": lambda x: jnp.concatenate([x[..., :2], jnp.sin(x[..., 2:])], -1),
    "dilated": lambda x: layer(x, KERNELS[1], rhs_dilation=(4,), padding=[(16, 0)]),
    "with a stride": lambda x: layer(x, KERNELS[1], window_strides=(2,), padding="VALID"),
    "in groups": lambda x: layer(x, jnp.asarray(normal(3, 1, 4)), feature_group_count=4),
}


def loss(between: Callable[[Any], Any], kernels: Any, x: Any) -> Any:
    y = layer(x, kernels[0], padding=[(2, 0)])
    return jnp.mean(layer(between(layer(jnp.tanh(y), kernels[1])), kernels[2], padding="VALID") ** 2)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BETWEEN)
def test_derivatives_by_kernels(name: str) -> None:
    """The loss and the derivatives are of all rows: nothing is joined."""

    def step(kernels: Any, x: Any) -> Any:
        return jax.value_and_grad(lambda kernels, x: loss(BETWEEN[name], kernels, x))(kernels, x)

    x = normal(1, PRIME, 2)
    assert check(step, KERNELS, x) >= 4
    results = [one for tiling in tilings(jax.make_jaxpr(step)(KERNELS, x).jaxpr) for one in tiling.results]
    assert all(result.dimension is None for result in results)
    program, _ = lowered(step, KERNELS, x)
    assert len(list(tiled_values(program))) == len(results), "all are left out of exact programs"


@settings(max_examples=60 if THOROUGH else 3)
@given(st.sampled_from(sorted(BETWEEN)), st.integers(80, 400), st.integers(0, 1000))
def test_derivatives_of_hostile_series(name: str, rows: int, seed: int) -> None:
    """An infinity in the last rows meets no zero of rows that there are not."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(1, rows, 2)).astype(np.float32)
    x[:, -random.integers(1, 4) :] = random.choice(SPECIALS)
    check(jax.grad(lambda kernels, x: loss(BETWEEN[name], kernels, x)), KERNELS, x)


def test_sums_of_narrow_floats_have_no_rest() -> None:
    """They would be rounded for each part."""

    def step(kernels: Any, x: Any) -> Any:
        def summed(kernels: Any) -> tuple[Any, Any]:
            y = layer(jnp.tanh(layer(x, kernels[0])), kernels[1])
            return jnp.mean(y**2), jnp.sum(jnp.abs(y).astype(jnp.bfloat16))

        return jax.value_and_grad(summed, has_aux=True)(kernels)

    found = tilings(jax.make_jaxpr(step)(KERNELS, normal(1, PRIME, 2)).jaxpr)
    assert found
    assert all(result.variable.var.aval.dtype == np.float32 for one in found for result in one.results)


def test_the_gradient_of_a_network_on_a_series_of_a_prime_length_in_a_quarter() -> None:
    x = jnp.asarray(normal(1, 30_011, 2))

    def step(kernels: Any, x: Any) -> Any:
        return jax.value_and_grad(lambda kernels: loss(BETWEEN["dilated"], kernels, x))(kernels)

    plain = eqsat.optimize(step, budget="1GB").plan(KERNELS, x)
    fixed = x.nbytes + 2 * sum(kernel.nbytes for kernel in KERNELS)
    optimized = eqsat.optimize(step, budget=fixed + (plain.peak_bytes - fixed) // 4)
    assert optimized.plan(KERNELS, x).loops
    wanted = jax.tree.leaves(jax.jit(step)(KERNELS, x))
    for found, other in zip(jax.tree.leaves(optimized(KERNELS, x)), wanted, strict=True):
        np.testing.assert_allclose(found, other, atol=2e-5 * float(abs(other).max()))


def test_sums_over_few_rows_beside_sums_over_many_are_left_or_planned() -> None:
    """Pixels in a row, of which a loop makes an image: a tile of one would have no whole row of the other."""
    rows, columns = 45, 53
    pixels = jnp.asarray(normal(rows * columns, 16))

    def loss(weights: Any, kernel: Any) -> Any:
        def step(flow: Any, _: Any) -> Any:
            image = (jnp.tanh(pixels * flow.reshape(-1, 2)[:, :1]) @ weights).reshape(1, rows, columns, 2)
            options = {"window_strides": (1, 1), "padding": "SAME"}
            found = lax.conv_general_dilated(
                image, kernel, **options, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )[0]
            return flow + found, jnp.mean(found**2)

        return lax.scan(step, jnp.ones((rows, columns, 2)), None, length=3)[1].sum()

    step = jax.value_and_grad(loss, argnums=(0, 1))
    args = jnp.asarray(normal(16, 2)), jnp.asarray(normal(3, 3, 2, 2))
    plain = eqsat.optimize(step, budget="1GB").plan(*args).peak_bytes
    optimized = eqsat.optimize(step, budget=int(0.8 * plain))
    for found, other in zip(
        jax.tree.leaves(optimized(*args)), jax.tree.leaves(jax.jit(step)(*args)), strict=True
    ):
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-5 * float(abs(other).max()))
