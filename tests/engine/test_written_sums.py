"""Short sums are loaded as equal to their entries added up, and mean the same."""

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

from eqsat.engine.written_sums import with_written_sums
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.axis import layout_shape
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Dot, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from tests.stages import normal

X, Y = normal(5, 3), normal(7, 3)


def written(function: Callable[..., Any], *arrays: Any, longest: int = 16, inlined: int = 0) -> Program:
    program, constants = lower(trace(function, arrays, {}).closed)
    assert not constants
    return with_written_sums(program, longest, inlined)


def check(function: Callable[..., Any], *arrays: Any, count: int = 1) -> None:
    """Checks that so many sums are written out, without any sum of theirs, and that both sides are equal."""
    program = written(function, *arrays)
    assert len(program.equalities) == count
    for one, other in program.equalities:
        layout = tuple(sorted(one.axes, key=lambda axis: axis.id))
        both = Program(program.inputs, (Output(one, layout), Output(other, layout)), program.terms)
        check_program(both)
        left, right = interpret(both, [np.asarray(array) for array in arrays])
        assert left.shape == layout_shape(layout)
        np.testing.assert_allclose(left, right, rtol=1e-12)


def test_a_squared_distance() -> None:
    check(lambda x, y: jnp.sum((x[:, None] - y) ** 2, -1), X, Y)


def test_a_product_and_the_same_array_twice() -> None:
    check(lambda x, y: x @ y.T, X, Y)
    check(lambda x: x @ x.T, X)


def test_a_sum_over_two_axes_at_once() -> None:
    check(lambda a: jnp.sum(jnp.exp(a), (1, 2)), normal(4, 2, 3))


def test_indices_along_the_summed_axis() -> None:
    check(lambda x: jnp.sum(x * jnp.arange(3.0), 1), X)


def test_sums_inside_of_what_is_summed() -> None:
    check(lambda a: jnp.sum(jnp.exp(jnp.sum(a, 2)), 1), normal(4, 3, 2), count=2)


def test_a_transposed_array() -> None:
    check(lambda x: jnp.sum(x[:, None] * x.T, -1), normal(3, 3))


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (lambda x: jnp.sum(x, 1), (normal(5, 17),)),  # too long
        (lambda x: jnp.max(x, 1), (X,)),
        (lambda x: lax.reduce_sum(x.astype(jnp.bfloat16), axes=(1,)), (X,)),  # accumulated in another dtype
        (lambda x: x + 1, (X,)),
    ],
)
def test_what_is_not_written_out(function: Callable[..., Any], arrays: tuple[Any, ...]) -> None:
    assert not written(function, *arrays).equalities


def test_reductions_that_are_inlined_stay_and_products_are_written_out() -> None:
    assert not written(lambda x: jnp.sum(x**2, 1), X, inlined=8).equalities
    assert len(written(lambda x, y: x @ y.T, X, Y, inlined=8).equalities) == 1


@settings(max_examples=20)
@given(st.integers(2, 5), st.integers(1, 4), st.sampled_from(["int32", "float32", "complex64"]))
def test_random_lengths_and_dtypes(length: int, rows: int, dtype: str) -> None:
    rng = np.random.default_rng(length)
    x, y = (jnp.asarray(rng.integers(-9, 9, (rows, length)), dtype) for _ in range(2))
    check(lambda x, y: jnp.sum(x[:, None] * (x[:, None] - y), -1), x, y)


def test_all_sums_of_a_gradient() -> None:
    gradient = jax.grad(lambda x, y: jnp.sum(jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1))))
    program = written(gradient, X, Y)
    assert program.equalities
    for one, _ in program.equalities:
        assert isinstance(one.op, (Dot, Reduce))
