"""Gradients of statistics of a history: the backward pass runs segments of the first pass again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from eqsat.ir.history_ends import histories, scan_of
from eqsat.planning.repeated_scans import by_passes
from tests.planning.test_rematerialisation import check_equalities
from tests.planning.test_repeated_scans import STEPS, WIDTH, skewness, variance, walk
from tests.stages import lowered, normal


def of_the_mean(x: Any, xs: Any) -> Any:
    return jnp.sum(jnp.tanh(walk(x, xs)[1][0] ** 2).mean(0) ** 2)


def of_the_variance(x: Any, xs: Any) -> Any:
    return jnp.sum((variance(x, xs) - 0.5) ** 2)


def of_a_skewness(x: Any, xs: Any) -> Any:
    return jnp.sum(skewness(x, xs) ** 2)


def after_a_while(x: Any, xs: Any) -> Any:
    states, others = walk(x, xs)[1]
    return jnp.sum(jnp.var(states[5:], 0)) + jnp.sum(others[::3] ** 2) + jnp.sum(jnp.sin(states[-1]))


def of_deviations_from_rows(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    return jnp.sum((jnp.mean((states - xs) ** 3, 0) - 0.1) ** 2)


def of_products(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    return jnp.sum((states.T @ states / STEPS - jnp.eye(WIDTH)) ** 2)


def of_a_readout(x: Any, xs: Any) -> Any:
    """The derivative by what it reads with is a product with the history."""
    return jnp.mean((walk(x, xs)[1][0] @ jnp.outer(x, x[:2]) - xs[:, :2]) ** 2)


GRADIENTS = [
    of_the_mean,
    of_the_variance,
    of_a_skewness,
    after_a_while,
    of_deviations_from_rows,
    of_products,
    of_a_readout,
]


@pytest.mark.parametrize("function", GRADIENTS)
def test_gradients_of_statistics_need_no_history(function: Callable[..., Any]) -> None:
    """The backward pass reads entries of what the first pass stacks: segments of that can be run again."""
    args = normal(WIDTH), normal(40, WIDTH)
    program, constants = lowered(jax.jit(jax.grad(function, argnums=(0, 1))), *args)
    assert check_equalities(program, [*args, *constants], 100)
    program, _ = lowered(jax.jit(jax.grad(function)), *args)
    numbers = count(program.next_call())
    after = by_passes(
        program, 100, 0, lambda call, _: replace(call, id=next(numbers)), lambda: -1000 - next(numbers)
    ).program
    forward = [one for one in histories(after, wide=True) if not scan_of(one.stack).reverse and one.others]
    assert forward
    assert all(one.is_read_back() and not one.ends for one in forward)


def test_gradients_of_several_lags_mean_the_same() -> None:
    """What is read before a burn-in ends are slices, which differ only in where they begin."""

    def autocovariances(x: Any, xs: Any) -> Any:
        deviations = walk(x, xs)[1][0][9:]
        deviations = deviations - deviations.mean(0)
        return sum(jnp.sum(jnp.tanh(deviations[lag:] * deviations[:-lag])) for lag in (1, 2, 5))

    args = normal(WIDTH), normal(40, WIDTH)
    program, constants = lowered(jax.jit(jax.grad(autocovariances, argnums=(0, 1))), *args)
    assert check_equalities(program, [*args, *constants], 100)
