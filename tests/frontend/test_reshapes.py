"""Reshapes change layouts; what they can't be is a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.axis import Axis, layout_shape
from eqsat.ir.ops import Dot, Leaf, Map, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import Program
from tests.stages import check_meaning, normal, ops, result_text

X = normal(4, 6, 3)
W = normal(3, 5, seed=1)
V = normal(24, seed=2)


def reshapes(program: Program) -> int:
    """How many reshapes are calls."""
    return sum(op.call.primitive.name == "reshape" for op in ops(program, Opaque))


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda x, w, v: x.reshape(24, 3) @ w, "dot[3](0{6 4 3}, 1{5 3})"),
        (lambda x, w, v: v @ x.reshape(24, 3), "dot[6 4](0{6 4 3}, 2{6 4})"),
        (lambda x, w, v: x.reshape(24, 3).sum(0), "sum[6 4](0{6 4 3})"),
        (lambda x, w, v: v.reshape(4, 6).max(1), "max[6](2{6 4})"),
        (lambda x, w, v: jnp.sin(v).reshape(2, 12) * 2, "mul(2.0, sin(2{12 2}))"),
        (lambda x, w, v: v.reshape(2, 12).sum(0)[:, None] * v.reshape(8, 3).sum(0), None),
        (lambda x, w, v: jnp.repeat(v, 3).sum(), "mul(3.0, sum[24](2{24}))"),
        (lambda x, w, v: jax.vmap(lambda row: row.reshape(2, 9).sum(1))(x), "sum[3 3](0{4 3 3 2})"),
        (lambda x, w, v: jax.vmap(lambda row: row.reshape(18).max(), in_axes=1)(x.transpose(1, 0, 2)), None),
    ],
)
def test_a_reshape_makes_no_node(fn: Callable[..., Any], wanted: str | None) -> None:
    program = check_meaning(fn, X, W, V)
    assert not reshapes(program)
    if wanted is not None:
        assert result_text(fn, X, W, V) == wanted


def test_a_dimension_of_an_input_and_of_a_result_may_be_several_axes() -> None:
    program = check_meaning(lambda v, x: (v.reshape(4, 6) + x.sum(2)).reshape(24), V, X)
    (leaf, _) = program.inputs
    assert isinstance(leaf.op, Leaf)
    ((rows,),) = (leaf.op.layout,)
    assert isinstance(rows, tuple)
    assert [axis.size for axis in rows] == [4, 6]
    assert program.outputs[0].layout == leaf.op.layout
    assert program.outputs[0].shape == layout_shape(leaf.op.layout) == (24,)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.reshape(0, 7),
        lambda x: x.reshape(3, 0, 1) * 2,
        lambda x: jnp.concatenate([x.reshape(-1), jnp.ones(3)]),
    ],
)
def test_reshapes_of_nothing(fn: Callable[..., Any]) -> None:
    check_meaning(fn, np.zeros((3, 0), np.float32))


@pytest.mark.parametrize("shape", [(1,), (1, 1), ()])
def test_reshapes_of_one_element(shape: tuple[int, ...]) -> None:
    assert not reshapes(
        check_meaning(lambda x: x.reshape(1, 1, 1).reshape(shape) + 1, np.ones(shape, np.float32))
    )


def test_shapes_without_common_parts_need_a_call() -> None:
    program = check_meaning(lambda x, y: x.reshape(6) + y.reshape(6), normal(2, 3), normal(3, 2))
    assert reshapes(program) == 1
    assert reshapes(check_meaning(lambda x: x.reshape(3, 2) * 2, normal(2, 3))) == 1


def test_what_is_renamed_is_split_with_it() -> None:
    square = normal(6, 6)
    program = check_meaning(lambda x: (x + x.T).reshape(2, 3, 6).sum(1), square)
    assert not reshapes(program)
    assert len(ops(program, Rename)) == 6, "three for each part"
    assert reshapes(check_meaning(lambda x: (x + x.T).reshape(2, 3, 3, 2).sum(1), square)) == 1


def test_an_axis_is_split_before_and_after_it_is_met() -> None:
    def fn(x: Any, y: Any) -> Any:
        early = jnp.sin(x) @ y
        return early + x.reshape(4, 6).sum(1) @ y.reshape(4, 6).sum(1) + (y + 1.0) @ x

    program = check_meaning(fn, V, normal(24), rtol=1e-4)
    assert [len(op.axes) for op in ops(program, Dot)] == [2, 1, 2]
    assert not reshapes(program)


def test_indices_along_a_split_axis_are_computed_from_those_along_its_parts() -> None:
    program = check_meaning(lambda v: (v + jnp.arange(24)).reshape(2, 3, 4).sum(1), V)
    assert not reshapes(program)
    assert result_text(lambda: jnp.arange(24.0).reshape(4, 6)).count("iota") == 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: lax.top_k(x.reshape(72), 5),
        lambda x: (
            lax.top_k(x.reshape(24, 3).sum(1), 7)[0].sum() + x.reshape(24, 3).sum(1).reshape(4, 6).sum()
        ),
    ],
)
def test_a_selection_along_a_merged_axis_has_it_whole(fn: Callable[..., Any]) -> None:
    """As before there were parts: the reshape is a call, and the selection is not."""
    program = check_meaning(fn, X)
    assert ops(program, Select)
    assert reshapes(program) == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.argmax(x.reshape(24, 3), axis=0),
        lambda x: lax.top_k(x.reshape(72), 2),
        lambda x: jnp.argmin(x.reshape(24, 3).sum(1)) + x.reshape(24, 3).sum(1).reshape(4, 6).sum(),
    ],
)
def test_a_selection_along_a_merged_axis_is_of_one_part_after_the_other(fn: Callable[..., Any]) -> None:
    program = check_meaning(fn, X)
    assert len(ops(program, Select)) >= 2


def test_only_the_reshape_in_the_way_of_a_selection_is_a_call() -> None:
    program = check_meaning(lambda x, v: (lax.top_k(x.reshape(72), 5), v.reshape(4, 6).sum(1)), X, V)
    assert reshapes(program) == 1
    assert [axis.size for op in ops(program, Reduce) for axis in op.axes] == [6]


def test_a_call_gets_merged_dimensions_and_passes_their_parts() -> None:
    program = check_meaning(lambda x: lax.cumsum(x.reshape(24, 3), axis=1).reshape(4, 6, 3).sum(0), X)
    (call,) = (op.call for op in ops(program, Opaque))
    assert layout_shape(call.arg_layouts[0]) == (24, 3)
    assert sorted(axis.size for axis in call.passing) == [4, 6]


def test_a_call_passes_only_the_parts_that_its_operand_has() -> None:
    program = check_meaning(lambda w: lax.cumsum(jnp.repeat(w, 4, axis=0), axis=1), W)
    (call,) = (op.call for op in ops(program, Opaque))
    assert [axis.size for axis in call.passing] == [3]


def test_a_named_operation_gets_its_axis_merged_and_its_result_split() -> None:
    program = check_meaning(lambda x: jnp.sort(x.reshape(24, 3), axis=0).reshape(4, 6, 3).sum(1), X)
    assert not reshapes(program)
    named = [term.op.spec.name for term in program.known() if isinstance(term.op, Operation)]
    assert named == ["merge", "sort", "split"]


def test_what_is_said_of_a_split_axis_is_said_of_it_merged() -> None:
    square = normal(24, 24)

    def fn(a: Any, b: Any) -> Any:
        matrix = eqsat.assume(a @ a.T + 30 * jnp.eye(24), "spd")
        return jnp.linalg.solve(matrix, a) @ (matrix @ b.reshape(24))

    program = check_meaning(fn, square, normal(4, 6), rtol=1e-3)
    facts = {(fact.property, tuple(axis.size for axis in fact.axes)) for fact in program.facts}
    assert facts == {("spd", (24, 24))}
    assert all(
        isinstance(fact.term.op, Operation) and fact.term.op.spec.name == "merge" for fact in program.facts
    )
    named = [
        term for term in program.known() if isinstance(term.op, Operation) and term.op.spec.name == "solve"
    ]
    assert [term.args[0] for term in named] == [fact.term for fact in program.facts]


def test_reshapes_may_be_kept_as_calls() -> None:
    program = check_meaning(lambda x: x.reshape(24, 3).sum(0), X, reshapes=False)
    assert reshapes(program) == 1


def test_the_derivative_of_a_reshape_is_one() -> None:
    program = check_meaning(
        jax.grad(lambda w: jnp.tanh(X.reshape(24, 3) @ w).reshape(4, 6, 5).sum()), W, rtol=1e-4
    )
    assert not reshapes(program)
    assert {len(op.axes) for op in ops(program, Dot)} == {1, 2}


def test_a_layout_reads_as_a_tuple_of_axes() -> None:
    program = check_meaning(lambda x: x.reshape(24, 3) * 2, X)
    assert repr(program.outputs[0].layout) == "((a:4, b:6), c:3)"
    assert ops(program, Map)
    assert Axis(0, 4) in program.axes()
