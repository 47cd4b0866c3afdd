"""Lowering of contractions, reductions and selections. Every program in here is also run and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.ops import Dot, Reduce, Rename, Select
from tests.stages import check_meaning, lowered, no_nodes, normal, ops, result_text

X, Y, V = normal(5, 3), normal(7, 3), normal(7)
A, B = normal(5, 7), normal(7, 3)

# Contractions.


def test_dot_without_contraction_is_a_product() -> None:
    assert result_text(jnp.outer, normal(5), V) == "mul(0{5}, 1{7})"
    assert result_text(lambda a, b: jnp.einsum("ij,ij->ij", a, b), A, A) == "mul(0{7 5}, 1{7 5})"


def test_contraction_of_unit_dimensions_is_a_product() -> None:
    assert result_text(lambda a, b: a @ b, normal(5, 1), normal(1, 7)) == "mul(0{5}, 1{7})"


def test_mixed_precision_products() -> None:
    half = A.astype(jnp.bfloat16)
    program, _ = lowered(
        lambda a, b: lax.dot(a, b, preferred_element_type=np.float32), half, B.astype("bfloat16")
    )
    (dot,) = ops(program, Dot)
    assert dot.dtype == "float32"
    program, _ = lowered(lambda a, b: jnp.outer(a, b), half[0], half[1])
    assert program.outputs[0].term.dtype == "bfloat16"


def test_outer_product_into_a_wider_type_converts_first() -> None:
    a, b = jnp.asarray([100, 120], np.int8), jnp.asarray([100, 3, 5], np.int8)

    def fn(a: Any, b: Any) -> Any:
        return lax.dot_general(a, b, (((), ()), ((), ())), preferred_element_type=np.int32)

    assert result_text(fn, a, b) == "mul(convert(0{2}), convert(1{3}))"


def test_precision_is_kept() -> None:
    program, _ = lowered(lambda a, b: jnp.matmul(a, b, precision="highest"), A, B)
    assert [dot.precision for dot in ops(program, Dot)] == ["HIGHEST"]


@pytest.mark.parametrize(
    ("fn", "arrays", "expected"),
    [
        (lambda p, v: jnp.full((4, 7), p) @ v, (normal(), normal(7)), "mul(0{}, sum[7](1{7}))"),
        (
            lambda a, v: jnp.broadcast_to(v, (5, 7)).T @ a,
            (normal(5, 3), normal(7)),
            "mul(1{7}, sum[5](0{5 3}))",
        ),
        # summed over one axis of both and over one that only one of them has
        (
            lambda a, v: jnp.einsum("ij,ij->", a, jnp.broadcast_to(v, (5, 7))),
            (normal(5, 7), normal(7)),
            "dot[7](1{7}, sum[5](0{7 5}))",
        ),
        (
            lambda a, b: jnp.einsum("ij,kj->ik", jnp.broadcast_to(a[:, None], (4, 5)), b),
            (normal(4).astype(jnp.bfloat16), normal(6, 5)),
            "mul(convert(0{4}), sum[5](1{6 5}))",
        ),
    ],
)
def test_what_is_broadcast_along_a_contracted_axis_is_a_factor(
    fn: Callable[..., Any], arrays: tuple[Any, ...], expected: str
) -> None:
    assert result_text(fn, *arrays) == expected


def test_contraction_over_a_broadcast_axis() -> None:
    check_meaning(lambda a, v: jnp.broadcast_to(v, (5, 7)) @ a.T, A, V, rtol=1e-4)
    check_meaning(lambda v: jnp.ones((4, 7)) @ v, V, rtol=1e-4)


def test_empty_contractions() -> None:
    check_meaning(lambda a, b: a @ b, np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32))


# Reductions.


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", [jnp.sum, jnp.prod, jnp.max, jnp.min])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (0, 1), None])
def test_reductions_over_axes_that_are_broadcast(kind: Callable[..., Any], axis: Any) -> None:
    check_meaning(lambda x: kind(jnp.broadcast_to(x[:, None], (5, 4, 3)), axis=axis), X, rtol=1e-4)


def test_a_sum_over_a_broadcast_axis_is_a_multiple() -> None:
    assert result_text(lambda x: jnp.sum(jnp.broadcast_to(x, (4, 5)), 0), normal(5)) == "mul(0{5}, 4.0)"


def test_a_maximum_over_a_broadcast_axis_is_nothing() -> None:
    no_nodes(lambda x: jnp.max(jnp.broadcast_to(x, (4, 5)), 0), normal(5))


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float32, np.uint8])
def test_reductions_of_constants(dtype: Any) -> None:
    check_meaning(lambda: jnp.sum(jnp.full((300,), 1, dtype)))
    check_meaning(lambda: jnp.full((4, 5), 1, dtype).max(1))


def test_a_sum_over_a_unit_dimension_is_nothing() -> None:
    no_nodes(lambda x: jnp.sum(x[:, None], 1), X)


def test_reductions_of_nothing() -> None:
    empty = np.zeros((3, 0), np.float32)
    check_meaning(lambda x: (x.sum(1), x.sum(0), x.prod(1), jnp.any(x > 0, 1)), empty)
    check_meaning(lambda x: lax.reduce_max(x, (1,)), empty)


def test_truth_values() -> None:
    x = normal(4, 6) > 0
    check_meaning(lambda x: (jnp.any(x, 0), jnp.all(x, 1), x.sum(1), jnp.logical_xor(x[0], x[1])), x)


def test_selections() -> None:
    x = normal(6, 9)
    program = check_meaning(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), *lax.top_k(x, 4)), x)
    assert len(ops(program, Select)) == 4
    check_meaning(lambda x: (jnp.argmax(x[:, None], 1), *lax.top_k(x, 1)), x)
    check_meaning(lambda x: lax.top_k(x, 9), x)


def test_selections_over_broadcast_axes_are_calls() -> None:
    check_meaning(lambda x: jnp.argmax(jnp.broadcast_to(x[:, None], (5, 6)), 1), normal(5))
    check_meaning(lambda x: lax.top_k(jnp.broadcast_to(x[:, None], (5, 6)), 3), normal(5))


def test_extremes_of_complex_numbers_are_calls() -> None:
    """Of two numbers with a NaN the second is the larger one: what comes out depends on the order."""
    z = (normal(3, 4) + 1j * normal(3, 4, seed=1)).astype(np.complex64)
    for extreme in (jnp.max, jnp.min):
        program = check_meaning(lambda z, f=extreme: f(z, 1), z)
        assert not ops(program, Reduce)


def test_selections_of_more_entries_than_an_index_counts_are_calls() -> None:
    """Where indices wrap, which of equal entries comes first is a matter of how many are compared at once."""
    for length, expected in ((128, 1), (129, 0)):
        program, _ = lowered(lambda x: lax.argmax(x, 1, jnp.int8), normal(3, length))
        assert len(ops(program, Select)) == expected


def test_top_k_of_all_entries_keeps_its_two_axes() -> None:
    program = check_meaning(lambda x: lax.top_k(x, 6)[0] + x, normal(4, 6))
    assert len(ops(program, Rename)) <= 1
