"""Sines of all differences of angles, by sines of the angles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.rules.proving import fires
from tests.stages import normal

ARRAYS = "a: i k   b: j k   s: i k   w: k   d: i   e: j   f: i   q: l i k   r: l j k   p: i j k"


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ("cosine-of-difference", "cos(d[:, None] - e)"),
        ("cosine-of-difference", "cos(a[:, None] - b)"),
        ("cosine-of-sum", "cos(d[:, None] + e)"),
        ("cosine-of-sum", "cos(e + 2 * d[:, None])"),
        ("sine-of-difference", "sin(d[:, None] - e)"),
        ("sine-of-difference", "sum(sin(d - d[:, None]), 1)"),
        ("sine-of-sum", "sin(d[:, None] + e)"),
        ("periodic-distance", "sum(sin(a[:, None] - b) ** 2, -1)"),
        ("periodic-distance", "sum(sin(q[:, :, None] - r[:, None]) ** 2, -1)"),
        ("weighted-periodic-distance", "sum(w * sin(a[:, None] - b) ** 2, -1)"),
        ("divided-squares-of-sines", "sum(sin(a[:, None] - b) ** 2 / w, -1)"),
    ],
)
def test_it_is_about(rule: str, expression: str) -> None:
    assert fires(rule, expression, ARRAYS)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        # number by number, which takes as many sines; of one set alone
        ("cosine-of-difference", "cos(d - f)"),
        ("cosine-of-difference", "cos(a - w)"),
        ("cosine-of-difference", "cos(d[:, None] + e)"),
        ("cosine-of-sum", "cos(a + s)"),
        ("cosine-of-sum", "cos(d[:, None] - e)"),
        ("sine-of-difference", "sin(a - d[:, None])"),
        ("sine-of-difference", "sin(d[:, None] * e)"),
        ("sine-of-sum", "sin(a + 1)"),
        ("sine-of-sum", "tan(d[:, None] + e)"),
        # not squares, not differences, not between points of two sets
        ("periodic-distance", "sum(sin(a[:, None] - b) ** 3, -1)"),
        ("periodic-distance", "sum(sin(a[:, None] * b) ** 2, -1)"),
        ("periodic-distance", "sum(cos(a[:, None] - b) ** 2, -1)"),
        ("periodic-distance", "sum(sin(a - s) ** 2, -1)"),
        # weights of pairs, of points
        ("weighted-periodic-distance", "sum(p * sin(a[:, None] - b) ** 2, -1)"),
        ("weighted-periodic-distance", "sum(d[:, None, None] * sin(a[:, None] - b) ** 2, -1)"),
        ("divided-squares-of-sines", "sum(sin(a - s) ** 2 / w, -1)"),
        ("divided-squares-of-sines", "sum(sin(a[:, None] - b) ** 2 / p, -1)"),
    ],
)
def test_it_is_not_about(rule: str, expression: str) -> None:
    assert not fires(rule, expression, ARRAYS)


def test_coupled_oscillators_take_no_sine_per_pair() -> None:
    """Kuramoto's model: sum_j sin(t_j - t_i) = cos(t_i) sum_j sin(t_j) - sin(t_i) sum_j cos(t_j)."""

    def pull(angles: jax.Array) -> jax.Array:
        return jnp.mean(jnp.sin(angles[None, :] - angles[:, None]), axis=1)

    angles = normal(700)
    found = eqsat.optimize(pull, budget="100kB", accuracy="cancels")
    assert "lax.scan" not in found.plan(angles).source, "no array of pairs, so no loop over chunks of one"
    np.testing.assert_allclose(found(angles), pull(angles), atol=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_periodic_kernel_of_all_pairs(sign: float) -> None:
    """Weights below 0 make distances negative."""

    def kernel(a: jax.Array, b: jax.Array, scales: jax.Array, periods: jax.Array) -> jax.Array:
        differences = jnp.pi * (a[:, None] - b) / periods
        return jnp.exp(-2 * jnp.sum(jnp.sin(differences) ** 2 / scales, axis=-1)) @ b

    arguments = (normal(900, 3), normal(700, 3, seed=1), sign * np.float32([1, 2, 3]), np.float32([3, 2, 1]))
    found = eqsat.optimize(kernel, accuracy="cancels")
    assert "weighted-periodic-distance" in found.plan(*arguments).source
    with jax.enable_x64(True):
        expected = np.asarray(kernel(*(np.asarray(each, np.float64) for each in arguments)))
    assert np.max(np.abs(found(*arguments) - expected)) < 3e-6 * np.max(np.abs(expected))


def test_small_differences_of_large_angles_keep_their_digits() -> None:
    """Products of sines and cosines alone would be off by 3e-4 of the largest here."""
    a, b = (np.float32(2.1) + normal(200, 2, seed=seed) / 300 for seed in (0, 1))

    def squares(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(a[:, None] - b) ** 2, axis=-1)

    found = eqsat.optimize(squares, accuracy="cancels")
    assert "periodic-distance" in found.plan(a, b).source
    expected = np.sum(np.sin(np.float64(a)[:, None] - np.float64(b)) ** 2, axis=-1)
    assert np.max(np.abs(found(a, b) - expected)) < 2e-6 * np.max(expected)


def test_by_default_no_digits_are_lost() -> None:
    found = eqsat.optimize(lambda a, b: jnp.sum(jnp.sin(a[:, None] - b), 1), budget="1MB")
    assert "sine-of" not in found.plan(normal(300), normal(300, seed=1)).source
