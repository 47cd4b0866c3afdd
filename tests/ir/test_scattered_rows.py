"""Rows that are added up in zeros are looked up in a smaller array, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.scattered_rows import is_scatter, with_rows_looked_up
from eqsat.ir.substitution import with_inputs
from tests.stages import before_and_after, normal

U, MATRIX = normal(3, 4), normal(2, 2, 4)


def zeros(*shape: int, dtype: str = "float32") -> Any:
    return jnp.zeros(shape, dtype)


def looked_up(program: Program) -> Program:
    numbers = count(program.next_call())

    def numbered(call: Call, _: Call) -> Call:
        return replace(call, id=next(numbers))

    known = {
        term.number: made
        for term in program.reachable()
        if (made := with_rows_looked_up(program.terms, term, numbered)) is not None
    }
    return with_inputs(program, program.inputs, known)


def rows(program: Program) -> int:
    """The most rows of an array in which entries are added up."""
    found = [term for term in program.reachable() if isinstance(term.op, Opaque) and is_scatter(term)]
    return max(axis.size for term in found for axis in term.axes)


SMALLER: dict[str, Callable[[Any], Any]] = {
    "rows": lambda u: zeros(20, 4).at[jnp.array([3, 17, 5])].add(u),
    "the same row": lambda u: zeros(20, 4).at[jnp.array([5, 5, 5])].add(u),
    "rows from the end": lambda u: zeros(20, 4).at[jnp.array([-1, -20, 0])].add(u),
    "rows outside": lambda u: zeros(20, 4).at[jnp.array([20, -21, 3])].add(u),
    "rows that are clipped": lambda u: zeros(20, 4).at[jnp.array([25, -21, 3])].add(u, mode="clip"),
    "columns": lambda u: zeros(4, 20).at[:, jnp.array([3, 17, 3])].add(u.T),
    "rows that are computed": lambda u: zeros(20, 4).at[jnp.int32(u[:, 0] * 9)].add(u),
    "rows by pairs": lambda u: zeros(20, 4).at[jnp.array([[1, 2], [2, 3]])].add(jnp.asarray(MATRIX) * u[0]),
}

CHOSEN: dict[str, Callable[[Any], Any]] = {
    "a row": lambda u: lax.dynamic_update_slice(zeros(20, 4), u[:1], (jnp.int32(u[0, 0] * 9), 0)),
    "a column": lambda u: lax.dynamic_update_slice(zeros(3, 20), u[:, :1], (jnp.int8(0), jnp.int8(127))),
    "a row before the first": lambda u: lax.dynamic_update_slice(zeros(20, 4), u[:1], (jnp.int32(-3), 1)),
    "the cotangent of a row": jax.grad(lambda u: jnp.concatenate([u, u])[jnp.int32(u[0, 0] * 9)].sum()),
}

OTHERS: dict[str, Callable[[Any], Any]] = {
    "too many": lambda u: zeros(5, 4).at[jnp.array([3, 1, 0])].add(u),
    "entries": lambda u: zeros(20, 4).at[jnp.array([3, 17, 5]), jnp.array([1, 1, 0])].add(u[:, 0]),
    "into something": lambda u: jnp.ones((20, 4)).at[jnp.array([3, 17, 5])].add(u),
    "a block": lambda u: lax.dynamic_update_slice(zeros(20, 4), u, (jnp.int32(u[0, 0] * 9), 0)),
    "the largest": lambda u: zeros(20, 4).at[jnp.array([3, 17, 5])].max(u),
}


@pytest.mark.parametrize("name", SMALLER)
def test_rows_that_are_added_up_are_looked_up(name: str) -> None:
    before, after = before_and_after(looked_up, jax.jit(SMALLER[name]), U)
    assert rows(before) == 20
    assert rows(after) <= 5


@pytest.mark.parametrize("name", CHOSEN)
def test_a_row_that_is_written_is_a_choice(name: str) -> None:
    before, after = before_and_after(looked_up, jax.jit(CHOSEN[name]), U)
    assert any(map(is_scatter, before.reachable()))
    assert not any(map(is_scatter, after.reachable()))


@pytest.mark.parametrize("name", OTHERS)
def test_other_scatters_stay(name: str) -> None:
    before, after = before_and_after(looked_up, jax.jit(OTHERS[name]), U)
    assert [output.term for output in after.outputs] == [output.term for output in before.outputs]


@settings(max_examples=12, derandomize=True)
@given(
    st.lists(st.integers(-50, 50), min_size=1, max_size=9),
    st.sampled_from(["int8", "uint32", "float32", "bfloat16", "complex64"]),
    st.sampled_from(["drop", "clip"]),
)
def test_random_rows_are_added_up_to_the_same(places: list[int], dtype: str, mode: str) -> None:
    updates = np.random.default_rng(len(places)).integers(-9, 9, (len(places), 2)).astype(jnp.dtype(dtype))
    if dtype in ("float32", "bfloat16"):
        updates.flat[::5] = [np.nan, np.inf, -0.0, 1, 1][len(places) % 5]
    before_and_after(
        looked_up,
        jax.jit(
            lambda u, at: zeros(40, 2, dtype=dtype).at[at].add(u, mode=mode, wrap_negative_indices=False)
        ),
        updates,
        np.asarray(places, np.int32),
    )
