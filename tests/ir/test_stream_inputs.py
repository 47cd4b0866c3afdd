"""What a program has of inputs that are not in memory becomes inputs of their own, also inside of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.axis_names import with_axes_named
from eqsat.ir.lean_loops import with_lean_loops
from eqsat.ir.moved_arrays import Joined, Taken, Whole
from eqsat.ir.picked_entries import is_pick
from eqsat.ir.program import Program
from eqsat.ir.running_calls import running
from eqsat.ir.spec import check_program
from eqsat.ir.stream_inputs import StreamInputs, with_stream_inputs

X = jax.ShapeDtypeStruct((100, 4), jnp.float32)
Y = jax.ShapeDtypeStruct((30, 4), jnp.float32)
ROWS = jax.ShapeDtypeStruct((7,), jnp.int32)


def lowered(fn: Callable[..., Any], *args: Any) -> Program:
    program, _ = lower(trace(fn, args, {}).closed, platforms=("cpu",))
    return with_lean_loops(program)


def found(fn: Callable[..., Any], *args: Any, streamed: tuple[int, ...] = (0,)) -> StreamInputs:
    inputs = with_stream_inputs(lowered(fn, *args), streamed)
    check_program(inputs.program)
    return inputs


def test_moved_entries_are_an_input() -> None:
    inputs = found(lambda x: x[::-1] + 1, X)
    assert inputs.read == {1: Taken(Whole(0, (100, 4)), (range(99, -1, -1), range(4)))}
    assert not inputs.tables


def test_one_input_for_the_same_entries() -> None:
    inputs = found(lambda x: (x[1:] * 2, jnp.sin(x[1:])), X)
    assert len(inputs.read) == 1


def test_a_slice_of_columns_stays_a_slice_of_what_is_read() -> None:
    assert not found(lambda x: x[:, 1:3] * 2, X).read


def test_joined_files_are_an_input() -> None:
    inputs = found(lambda x, y: jnp.concatenate([x, y]) * 2, X, Y, streamed=(0, 1))
    assert inputs.read == {2: Joined((Whole(0, (100, 4)), Whole(1, (30, 4))), 0)}


def test_rows_in_a_loop_are_picked_from_an_operand() -> None:
    def descent(x: Any, rows: Any) -> Any:
        return lax.scan(lambda w, row: (w + x[row], None), jnp.zeros(4), rows)[0]

    inputs = found(descent, X, ROWS)
    assert inputs.tables == {2: Whole(0, (100, 4))}
    bodies = [inner for inner in inputs.program.inside() if inner is not inputs.program]
    assert [term for body in bodies for term in body.reachable() if is_pick(term)]
    # The loop does not take the whole input any more.
    assert {leaf.number for leaf in inputs.program.inputs[:1]}.isdisjoint(
        term.number for term in inputs.program.reachable()
    )


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (lambda x: jnp.cumsum(x, 0), 1),
        (lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros(4), x), 1),
        (lambda x: lax.scan(lambda c, row: (c + row @ x.T @ x, c), jnp.zeros(4), x), 0),
    ],
)
def test_what_goes_through_an_input_is_a_running_call(fn: Callable[..., Any], count: int) -> None:
    terms = list(found(fn, X).program.reachable())
    calls: set[Any] = {getattr(term.op, "call", None) for term in terms if running(term) is not None}
    assert len(calls) == count


def test_no_ordered_axis_passes_through_a_loop() -> None:
    inputs = found(lambda x: lax.fori_loop(0, 3, lambda _, y: jnp.cumsum(y, 0) + x, x), X)
    calls = [call for call, _ in inputs.program.controls()]
    assert calls
    assert all(axis.size != 100 for call in calls for axis in call.passing | call.sums)


def test_a_scan_goes_through_one_axis() -> None:
    program = lowered(lambda x, y: lax.scan(lambda c, r: (c + r[0] * r[1], c), jnp.zeros(4), (x, y)), X, X)
    assert len({axis for leaf in program.inputs for axis in leaf.axes if axis.size == 100}) == 2
    inputs = with_stream_inputs(program, (0, 1))
    assert len({axis for leaf in inputs.program.inputs for axis in leaf.axes if axis.size == 100}) == 1


def test_axes_under_other_names_are_everywhere() -> None:
    program = lowered(lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros(4), x * 2)[1].T, X)
    axes = sorted(axis for axis in program.axes() if axis.size == 100)
    named = with_axes_named(program, {axes[0]: axes[-1]})
    check_program(named)
    assert axes[0] not in named.axes()
    assert named.outputs[0].shape == program.outputs[0].shape == (4, 100)
    assert np.all([leaf.bytes for leaf in named.inputs])
