"""What is there while a loop runs: what was computed for it, and what it stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from eqsat.planning.memory_around import memory_around
from tests.stages import lowered, normal

ALL = 200 * 300 * 4


def given(x: Any, v: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.sin(c + row), None), v, x)[0]


def computed(x: Any, v: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.sin(c + row), None), v, jnp.exp(x))[0]


def carried(x: Any, v: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.sin(c + row), None), jnp.exp(v), x)[0]


def stacked(x: Any, v: Any) -> Any:
    rows = lax.scan(lambda c, row: (jnp.sin(c + row), c), v, x)[1]
    return jnp.sort(rows, axis=0)[0]


def returned(x: Any, v: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.sin(c + row), c), v, x)[1]


def renamed(x: Any, v: Any) -> Any:
    products = jnp.exp(x @ x.T)
    return lax.scan(lambda c, row: (jnp.sin(c + row @ products), None), v, products)[0]


@pytest.mark.parametrize(
    ("fn", "wanted"), [(given, 0), (computed, ALL), (carried, 0), (stacked, ALL), (returned, 0)]
)
def test_operands_and_stacks_count_if_they_are_no_arguments_or_results(
    fn: Callable[..., Any], wanted: int
) -> None:
    program, _ = lowered(fn, normal(200, 300), normal(300))
    assert list(memory_around(program).values()) == [wanted]


def test_an_array_under_two_names_counts_once() -> None:
    program, _ = lowered(renamed, normal(200, 300), normal(200))
    (size,) = memory_around(program).values()
    assert size == 200 * 200 * 4
