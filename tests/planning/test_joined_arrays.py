"""Large concatenations as choices of look-ups: the same values, by chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.ir.interpret import interpret
from eqsat.ir.program import Output
from eqsat.ir.spec import check_program
from eqsat.planning.joined_arrays import joined_axes, with_joined_arrays
from tests.stages import lowered, normal

A, B, C = normal(5, 3), normal(2, 3), normal(4, 3)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda a, b: jnp.concatenate([a, b]), (A, B)),
        (lambda a, b, c: jnp.concatenate([a, b, c, a[:1]]), (A, B, C)),
        (lambda a, b: jnp.concatenate([a.T, b.T], 1), (A, B)),
        (lambda a: jnp.concatenate([a, jnp.zeros((7, 3))]), (A,)),
        (lambda a, b: jnp.concatenate([a, b.reshape(6, 3)]), (A, normal(2, 3, 3))),
        (lambda a, b: jnp.concatenate([a > 0, b > 0]), (A, B)),
    ],
)
def test_the_choice_is_the_concatenation(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    program, constants = lowered(fn, *args)
    known = with_joined_arrays(program, 0)
    assert len(known.equalities) == len(program.equalities) + 1
    whole, choice = known.equalities[-1]
    layout = tuple(sorted(whole.axes))
    both = replace(program, outputs=(Output(whole, layout), Output(choice, layout)))
    check_program(both)
    one, other = interpret(both, [*args, *constants])
    np.testing.assert_array_equal(one, other)
    assert list(joined_axes(program))


@pytest.mark.parametrize(
    ("fn", "args", "threshold"),
    [
        (lambda a, b: jnp.concatenate([a, b]), (A, B), 1000),  # small
        (lambda a: jnp.concatenate([a] * 5), (A,), 0),  # of many
    ],
)
def test_what_stays(fn: Callable[..., Any], args: tuple[Any, ...], threshold: float) -> None:
    program, _ = lowered(fn, *args)
    assert with_joined_arrays(program, threshold) is program


@pytest.mark.nightly
def test_regularised_least_squares_by_chunks() -> None:
    """The rows of a computed matrix, above a multiple of the identity."""

    def damped(t: jax.Array, y: jax.Array) -> jax.Array:
        features = jnp.exp(-((t[:, None] - jnp.linspace(-2, 2, 12)) ** 2))
        matrix = jnp.concatenate([features, 0.3 * jnp.eye(12)])
        q, r = jnp.linalg.qr(matrix)
        return jax.scipy.linalg.solve_triangular(r, q.T @ jnp.concatenate([y, jnp.zeros(12)]))

    t, y = normal(6000), normal(6000)
    optimised = eqsat.optimize(damped, budget="260kB", accuracy="rescales")
    assert optimised.plan(t, y).original_peak_bytes > 800_000
    np.testing.assert_allclose(optimised(t, y), damped(t, y), rtol=1e-3, atol=1e-4)
