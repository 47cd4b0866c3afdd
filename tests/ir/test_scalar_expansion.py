"""Recurrences without rows, which rows read, have loops of their own; all values stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from eqsat.ir.control import Scan
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.scalar_expansion import with_scalar_expansion
from tests.stages import before_and_after, normal

ROWS, STEPS, WIDTH = 400, 7, 3


def expanded(function: Callable[..., Any], *args: Any) -> tuple[Program, Program]:
    return before_and_after(with_scalar_expansion, function, *args)


def scans(program: Program) -> list[Call]:
    calls = [call for inner in program.inside() for call, _ in inner.controls()]
    return list(dict.fromkeys(call for call in calls if isinstance(call.control, Scan)))


def has_rows(call: Call) -> bool:
    """Whether a loop has the axis of the rows anywhere."""
    return any(
        axis.size == ROWS for body in call.bodies for term in body.program.reachable() for axis in term.axes
    )


def factorises(call: Call) -> bool:
    """Whether an iteration factorises a matrix."""
    return any(
        isinstance(term.op, Opaque) and term.op.call.primitive.name == "qr"
        for body in call.bodies
        for term in body.program.reachable()
    )


def filtered(x: Any, p: Any) -> Any:
    """Rows that read the factor of a matrix, which is carried without them."""

    def step(state: Any, x: Any) -> Any:
        h, p = state
        q, r = jnp.linalg.qr(p)
        h = jnp.tanh(h @ q + x)
        return (h, r @ q + jnp.eye(WIDTH)), h.sum(1)

    return lax.scan(step, (jnp.zeros((ROWS, WIDTH)), p), x)[1]


ROWED, MATRIX = normal(STEPS, ROWS, WIDTH), normal(WIDTH, WIDTH)


def test_a_factorisation_that_needs_no_rows_is_stacked_by_a_loop_without_rows() -> None:
    before, after = expanded(filtered, ROWED, MATRIX)
    assert len(scans(before)) == 1
    assert sorted((has_rows(call), factorises(call)) for call in scans(after)) == [
        (False, True),
        (True, False),
    ]


def test_what_was_carried_into_an_iteration_can_be_stacked() -> None:
    def late(x: Any, p: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, p = state
            return (h @ p + x, jnp.linalg.qr(p)[1]), None

        return lax.scan(step, (jnp.zeros((ROWS, WIDTH)), p), x)[0]

    _, after = expanded(late, ROWED, MATRIX)
    assert sorted((has_rows(call), factorises(call)) for call in scans(after)) == [
        (False, True),
        (True, False),
    ]


def test_loops_inside_of_loops_are_expanded() -> None:
    def repeated(x: Any, p: Any) -> Any:
        return lax.scan(
            lambda total, _: (total + filtered(x + total[:, :, None], p), None), x[..., 0], None, 2
        )[0]

    _, after = expanded(repeated, ROWED, MATRIX)
    assert sorted((has_rows(call), factorises(call)) for call in scans(after))[0] == (False, True)


def cheap(x: Any, p: Any) -> Any:
    """What rows read is elementwise."""

    def step(state: Any, x: Any) -> Any:
        h, p = state
        return (h * p[0] + x, jnp.cos(p)), None

    return lax.scan(step, (jnp.zeros((ROWS, WIDTH)), p), x)[0]


def constant(x: Any, p: Any) -> Any:
    """The factorisation is the same in every iteration."""
    return lax.scan(lambda h, x: (h @ jnp.linalg.qr(p)[0] + x, None), jnp.zeros((ROWS, WIDTH)), x)[0]


def of_rows(x: Any, p: Any) -> Any:
    """The matrix that is factorised is a sum over rows."""

    def step(state: Any, x: Any) -> Any:
        h, p = state
        h = h @ jnp.linalg.qr(p)[0] + x
        return (h, h.T @ h), None

    return lax.scan(step, (jnp.zeros((ROWS, WIDTH)), p), x)[0]


@pytest.mark.parametrize("function", [cheap, constant, of_rows])
def test_other_loops_stay_as_they_are(function: Callable[..., Any]) -> None:
    before, after = expanded(function, ROWED, MATRIX)
    assert after is before


def test_large_matrices_are_not_stacked() -> None:
    before, after = expanded(lambda x, p: filtered(x, p)[:, :2], ROWED[:, :, :], MATRIX)
    assert after is not before

    def few(x: Any, p: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, p = state
            q, r = jnp.linalg.qr(p)
            return (h @ q + x, r), None

        return lax.scan(step, (jnp.zeros((4, WIDTH)), p), x)[0]

    before, after = expanded(few, ROWED[:, :4], MATRIX)
    assert after is before


RECURRENCES = {
    "qr": lambda p, w: jnp.linalg.qr(p + w)[1] + 0.1 * p,
    "inverse": lambda p, w: jnp.linalg.inv(p @ p.T + 3 * jnp.eye(WIDTH)) + w,
    "scan": lambda p, w: lax.scan(lambda c, _: (jnp.tanh(c @ w + p), None), p, None, length=2)[0],
    "elementwise": lambda p, w: jnp.sin(p) + w,
}


@settings(max_examples=40, derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(RECURRENCES)), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([2, 5]),
)
def test_random_recurrences_mean_the_same(names: list[str], flags: list[bool], steps: int) -> None:
    reverse, stacks, reads_old, feeds_back, per_row = flags

    def function(x: Any, w: Any, p: Any) -> Any:
        def step(state: Any, slices: Any) -> Any:
            h, *matrices = state
            x, w = slices
            new = [RECURRENCES[name](matrix, w) for name, matrix in zip(names, matrices, strict=True)]
            new = [new[0], *(later + 0.5 * new[0] for later in new[1:])]
            if feeds_back:
                new[-1] = new[-1] + 0.001 * h.mean()
            for matrix in matrices if reads_old else new:
                h = jnp.tanh(h @ matrix + x)
            return (h, *new), (new[0] if stacks else None, h[:, 0])

        return lax.scan(step, (jnp.ones_like(x[0]), *(p for _ in names)), (x, w), reverse=reverse)

    def batched(x: Any, w: Any, p: Any) -> Any:
        if per_row:
            return jax.vmap(lambda x: function(x[:, None], w, p), in_axes=1)(x)
        return function(x, w, p)

    expanded(batched, normal(steps, ROWS, WIDTH), normal(steps, WIDTH, WIDTH), MATRIX)
