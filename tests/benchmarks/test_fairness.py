"""Results that differ, judged by those in double precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.fairness import are_fair, is_fair, perturbed


def test_an_error_may_be_a_few_times_that_of_the_function_as_written() -> None:
    exact = np.array([1.0, 100.0])
    assert is_fair(exact, 0.5, np.array([0.0, 100.0], np.float32))
    assert not is_fair(exact, 0.5, np.array([3.0, 100.0], np.float32))
    assert is_fair(exact, 0.0, np.array([1.005, 100.0], np.float32))
    assert not is_fair(exact, 0.0, np.array([1.1, 100.0], np.float32))
    assert not is_fair(exact, 0.5, np.array([np.nan, 100.0], np.float32))
    assert is_fair(np.array([3]), 0.0, np.array([4]))


def test_arguments_are_changed_by_their_last_digit() -> None:
    x = jnp.asarray([1.0, -2e30, 0.0, np.inf, 3e-39] * 20)
    changed = perturbed(x, 0)
    assert changed.dtype == x.dtype
    assert np.any(changed != x)
    np.testing.assert_allclose(changed, x, rtol=2.5e-7)
    np.testing.assert_array_equal(perturbed(jnp.arange(3), 0), np.arange(3))


def roundings(x: Any) -> list[Any]:
    return [1e6 * (jnp.sqrt(x) ** 2 - x), jnp.sum(x)]


def test_how_far_off_a_function_may_be_is_not_left_to_luck() -> None:
    """The root of 4 is exact, and those of its neighbours are not."""
    x, written = jnp.asarray([4.0]), jax.jit(roundings)
    assert not np.any(written(x)[0])
    assert are_fair(roundings, written, [x], [jnp.asarray([0.3]), x[0]])
    assert not are_fair(roundings, written, [x], [jnp.asarray([30.0]), x[0]])
    assert not are_fair(roundings, written, [x], [jnp.asarray([0.0]), 1.01 * x[0]])
