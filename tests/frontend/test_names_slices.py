"""A slice of a computed array is also computed from slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Operation
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from tests.stages import lowered, normal


def forms(program: Program) -> list[tuple[Any, Any]]:
    """Slices, each with the form of it that is computed from slices."""
    return [pair for pair in program.equalities if not isinstance(pair[1].op, Operation)]


def kernel(x: Any, y: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "the first": lambda x, y: kernel(x, y)[:7, :9],
    "the last": lambda x, y: kernel(x, y)[9:, 7:],
    "between": lambda x, y: kernel(x, y)[3:12],
    "every third": lambda x, y: kernel(x, y)[1::3, 2:11:2],
    "of a product": lambda x, y: jnp.tanh(x @ y.T)[2:9, :5],
    "of a sum": lambda x, y: kernel(jnp.sin(x), y).T[:5, 2:9],
    "of a square matrix": lambda x, y: kernel(x, x)[:5, 5:],
    "with indices": lambda x, y: jnp.where(jnp.arange(20)[:, None] > jnp.arange(30), kernel(x, y), 0)[
        4:9, 2:
    ],
    "of a slice": lambda x, y: jnp.tanh(kernel(x, y)[2:14])[1:9, 3:],
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_slice_is_computed_from_slices(name: str) -> None:
    x, y = normal(20, 2), normal(30, 2)
    program, constants = lowered(COMPUTED[name], x, y)
    pairs = forms(program)
    assert pairs
    for whole, other in pairs:
        layout = tuple(sorted(whole.axes))
        both = Program(program.inputs, (Output(whole, layout), Output(other, layout)), program.terms)
        check_program(both)
        one, another = interpret(both, [x, y, *constants])
        np.testing.assert_array_equal(one, another)


STORED: dict[str, Callable[[Any, Any], Any]] = {
    "an argument": lambda x, y: (x @ y.T, x[:5]),
    "of little more than is computed": lambda x, y: jnp.sin(x)[:5],
    "of what needs rows whole": lambda x, y: jnp.cumsum(kernel(x, y), 0)[:5],
    "of one entry": lambda x, y: kernel(x, y)[:1],
    "of one column": lambda x, y: lax.slice(kernel(x, y), (2, 3), (12, 4), (2, 1)),
}


@pytest.mark.parametrize("name", STORED)
def test_other_slices_are_taken(name: str) -> None:
    program, _ = lowered(STORED[name], normal(20, 2), normal(30, 2))
    assert forms(program) == []
