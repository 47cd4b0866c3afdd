"""Functions of lists of pairs, with indices that are known beforehand: as JAX's, in a tenth of the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.certificate import certify

N = 397
"""Of the pairs there are 78,606, which chunks hardly divide."""

PAIRS = N * (N - 1) // 2
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((N, 3))
TARGETS = RNG.random(PAIRS)
FIRST, SECOND = np.triu_indices(N, 1)
SOURCES, ENDS = np.sort(RNG.integers(0, N, 60_000)), RNG.integers(-N, N, 60_000)
WHOLE = jnp.asarray(RNG.integers(-(2**31), 2**31, N), jnp.int32)


def stress(x: Any, wanted: Any, i: Any, j: Any) -> Any:
    steps = x[i] - x[j]
    return jnp.sum((jnp.sqrt(jnp.sum(steps * steps, -1) + 1e-3) - wanted) ** 2) / PAIRS


def scaling_by_captured(x: Any, wanted: Any) -> Any:
    return jax.value_and_grad(lambda x: stress(x, wanted, FIRST, SECOND))(x)


def descent(x: Any, wanted: Any) -> Any:
    i, j = jnp.tril_indices(N, -1)

    def step(x: Any, _: Any) -> Any:
        value, gradient = jax.value_and_grad(stress)(x, wanted, i, j)
        return x - gradient, value

    return jax.lax.scan(step, x, None, length=2)


def forces_of_several(xs: Any, _: Any) -> Any:
    def energy(x: Any) -> Any:
        i, j = jnp.triu_indices(N, 1)
        steps = x[i] - x[j]
        inverse = 1 / (jnp.sum(steps * steps, -1) + 0.5) ** 3
        return jnp.sum(inverse * inverse - inverse) / N

    return jax.vmap(jax.grad(energy))(jnp.stack([xs, 2 * xs]))


def messages(x: Any, _: Any) -> Any:
    def energy(x: Any) -> Any:
        sent = jnp.tanh(x[SOURCES] - x[ENDS])
        return jnp.sum(jax.ops.segment_sum(sent, SOURCES, num_segments=N) ** 2) / N

    return jax.value_and_grad(energy)(x)


def peak(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[int, int]:
    """What a function of arrays needs as written, and of that, what arguments and results take."""
    avals = [jax.ShapeDtypeStruct(arg.shape, arg.dtype) for arg in args]
    found = certify(lambda *leaves: jax.tree.leaves(fn(*leaves)), avals)
    return found.peak, found.fixed


def assert_smaller_and_equal(
    fn: Callable[..., Any], args: tuple[Any, ...], tolerance: float, kept: int = 0, **options: Any
) -> None:
    whole, fixed = peak(fn, args)
    optimised = eqsat.optimize(fn, budget=fixed + kept + (whole - fixed) // 10, **options)
    found, wanted = optimised(*args), jax.jit(fn)(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("fn", "dtype", "tolerance"),
    [
        (descent, "float32", 1e-5),
        (forces_of_several, "bfloat16", 0.05),
    ],
)
def test_pairs(fn: Callable[..., Any], dtype: str, tolerance: float) -> None:
    assert_smaller_and_equal(fn, (jnp.asarray(POINTS, dtype), jnp.asarray(TARGETS, dtype)), tolerance)


def test_edges_without_order() -> None:
    """The ends of edges, of which chunks are read, are kept; where the edges begin is, too."""
    args = (jnp.asarray(POINTS, jnp.float32), jnp.zeros(1))
    assert_smaller_and_equal(messages, args, 1e-5, kept=2 * 4 * len(ENDS))


def test_integers_that_wrap() -> None:
    """At "exact", where sums of integers are split, too."""

    def overlaps(x: Any) -> Any:
        i, j = jnp.triu_indices(N, 1)
        return jnp.sum(x[i] * x[j]), jnp.zeros_like(x).at[i].add(x[j] ^ x[i])

    assert_smaller_and_equal(overlaps, (WHOLE,), 0, accuracy="exact")


def test_budgets_below_what_is_captured() -> None:
    """Captured indices that arithmetic replaces do not count."""
    x, wanted = jnp.asarray(POINTS, jnp.float32), jnp.asarray(TARGETS, jnp.float32)
    assert_smaller_and_equal(scaling_by_captured, (x, wanted), 1e-5)
