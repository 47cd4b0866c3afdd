"""Values have their axes in the order in which XLA is fast: the longest one last, if nobody minds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.contractions import contraction_text
from eqsat.backend.layout import Emitted
from eqsat.backend.layout_assignment import comes_backwards, elementwise_order, longest_last
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Dot
from tests.stages import normal

POINTS, CHUNK, COORDINATES = Axis(0, 10_000), Axis(1, 50), Axis(2, 3)


def size(axis: Axis) -> int:
    return axis.size


def backwards(left: tuple[Axis, ...], right: tuple[Axis, ...]) -> bool:
    (summed,) = set(left) & set(right)
    op = Dot(frozenset({summed}), "float32", None)
    return longest_last(op, Emitted("a", left), Emitted("b", right), size)


def test_a_product_comes_out_with_its_longer_side_last() -> None:
    assert backwards((POINTS, COORDINATES), (CHUNK, COORDINATES))
    assert not backwards((CHUNK, COORDINATES), (POINTS, COORDINATES))
    assert backwards((CHUNK, POINTS), (CHUNK, COORDINATES)), "3 columns would be slow to add up"


def test_a_product_over_many_points_is_not_one_of_two_transposed_matrices() -> None:
    assert not backwards((CHUNK, POINTS), (POINTS, COORDINATES))
    assert backwards((POINTS, CHUNK), (COORDINATES, POINTS))


def exchanged(matrices: tuple[Axis, ...], vectors: tuple[Axis, ...], *, summed: Axis) -> tuple[bool, bool]:
    """Whether a batch of matrices times vectors is taken the other way round, written either way."""
    op, one, other = Dot(frozenset({summed}), "float32", None), Emitted("a", matrices), Emitted("b", vectors)
    return comes_backwards(op, one, other, None, size), comes_backwards(op, other, one, None, size)


@pytest.mark.parametrize("vectors", [(POINTS, CHUNK), (CHUNK, POINTS)])
def test_of_a_batch_that_is_stored_otherwise_short_matrices_come_before_their_vectors(
    vectors: tuple[Axis, ...],
) -> None:
    first = (False, True)
    assert exchanged((POINTS, COORDINATES, CHUNK), vectors, summed=POINTS) == first
    assert exchanged((COORDINATES, POINTS, CHUNK), vectors, summed=CHUNK) == first
    assert exchanged((COORDINATES, CHUNK, POINTS), vectors, summed=POINTS) == first


def test_of_a_batch_of_many_rows_vectors_come_first_if_what_is_summed_comes_before_the_rows() -> None:
    many = Axis(3, 64)
    assert exchanged((POINTS, many, CHUNK), (POINTS, CHUNK), summed=POINTS) == (True, False)
    assert exchanged((many, POINTS, CHUNK), (POINTS, CHUNK), summed=POINTS) == (False, True)


def test_of_a_batch_that_is_stored_matrix_by_matrix_the_operands_stay() -> None:
    assert exchanged((CHUNK, COORDINATES, POINTS), (CHUNK, POINTS), summed=POINTS) == (False, False)
    assert exchanged((CHUNK, POINTS, COORDINATES), (CHUNK, POINTS), summed=POINTS) == (False, False)


@pytest.mark.parametrize("wish", [None, (CHUNK, POINTS, COORDINATES)])
def test_of_a_chunk_and_all_points_the_points_come_last(wish: tuple[Axis, ...] | None) -> None:
    operands = [Emitted("a", (POINTS,)), Emitted("b", (CHUNK,))]
    assert elementwise_order(operands, wish, size) == (CHUNK, POINTS)


def test_what_is_computed_of_values_keeps_to_their_order_and_then_to_what_is_wanted() -> None:
    two = [Emitted("a", (POINTS, COORDINATES)), Emitted("b", (CHUNK, COORDINATES))]
    assert elementwise_order(two, None, size) == (CHUNK, POINTS, COORDINATES)
    assert elementwise_order(two, (POINTS, CHUNK, COORDINATES), size) == (POINTS, CHUNK, COORDINATES)
    assert elementwise_order([Emitted("a", (POINTS, CHUNK))], (CHUNK, POINTS), size) == (POINTS, CHUNK)


def test_a_loop_adds_up_with_the_longest_axis_last() -> None:
    """What is returned the other way round is put in order after the loop."""

    def function(x: Any, y: Any, u: Any, v: Any) -> Any:
        kernel = jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1))
        return jnp.sin(kernel @ u), jnp.sin(kernel.T @ v)

    args = normal(3000, 3), normal(3000, 3), normal(3000, 3), normal(3000, 3)
    optimized = eqsat.optimize(function, budget="1MB")
    plan = optimized.plan(*args)
    assert "jnp.full((3, 3000), 0, jnp.float32)" in plan.source
    for found, wanted in zip(optimized(*args), jax.jit(function)(*args), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_all_pairs_are_returned_as_they_are_computed() -> None:
    def function(x: Any, y: Any) -> Any:
        return jnp.exp(x[:, None] - y) + jnp.sort(y)

    plan = eqsat.optimize(function, budget="100MB", tune=False).plan(normal(3000), normal(200))
    assert "transpose" not in plan.source


DEEP, WIDE, NARROW = Axis(4, 2_000), Axis(5, 700), Axis(6, 7)


@pytest.mark.parametrize("narrow", [(DEEP, NARROW), (NARROW, DEEP)])
@pytest.mark.parametrize("wish", [None, (WIDE, NARROW), (NARROW, WIDE)])
def test_a_large_matrix_times_a_narrow_one_is_not_transposed_for_the_order_of_the_result(
    narrow: tuple[Axis, ...], wish: tuple[Axis, ...] | None
) -> None:
    def order(large: tuple[Axis, ...], swapped: bool) -> tuple[Axis, ...]:
        operands = Emitted("a", large), Emitted("b", narrow)
        left, right = operands[::-1] if swapped else operands
        op = Dot(frozenset({DEEP}), "float32", None)
        if comes_backwards(op, left, right, wish, size):
            left, right = right, left
        return contraction_text(op, left, right, ["float32", "float32"]).order

    for swapped in (False, True):
        assert order((DEEP, WIDE), swapped) == (NARROW, WIDE)
        assert order((WIDE, DEEP), swapped) == (WIDE, NARROW)


def test_other_products_come_out_in_the_order_that_is_wanted() -> None:
    op, many = Dot(frozenset({DEEP}), "float32", None), Axis(7, 300)
    for wish, backwards in (((WIDE, many), False), ((many, WIDE), True)):
        one, other = Emitted("a", (DEEP, WIDE)), Emitted("b", (DEEP, many))
        assert comes_backwards(op, one, other, wish, size) == backwards, "not narrow"
    shallow = Dot(frozenset({COORDINATES}), "float32", None)
    for wish, backwards in (((WIDE, NARROW), False), ((NARROW, WIDE), True)):
        one, other = Emitted("a", (COORDINATES, WIDE)), Emitted("b", (COORDINATES, NARROW))
        assert comes_backwards(shallow, one, other, wish, size) == backwards, "the result is large, too"
