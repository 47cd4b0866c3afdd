"""Where the best entry of a history is, and what its entries accumulate, are carried: bit for bit."""

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

import eqsat
from eqsat.ir.carried_histories import with_histories_carried
from eqsat.ir.interpret import interpret
from eqsat.ir.sliced_histories import with_sliced_histories
from eqsat.ir.spec import check_program
from tests.ir.test_carried_histories import LONG, stacked, steps
from tests.nightly import THOROUGH
from tests.stages import lowered


def of(read: Callable[..., Any], reverse: bool = False) -> Callable[[Any], Any]:
    return lambda x: read(*steps(x, reverse)[1])


def bins(values: Any) -> Any:
    return jnp.clip((values * 3 + 4).astype(jnp.int32), 0, 7)


def counted(values: Any, weights: Any = 1) -> Any:
    return jnp.zeros(8, jnp.asarray(weights).dtype).at[bins(values)].add(weights)


# How many of three results are stacked in the end: those that are not read stay in this representation.
CARRIED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "the largest": (of(lambda h, *_: jnp.argmax(h, 0)), 2),
    "the smallest of a function": (of(lambda h, *_: jnp.argmin(jnp.cos(h) ** 2, 0)), 2),
    "the first that is true": (of(lambda _, true, __: jnp.argmax(true, 0)), 2),
    "of integers": (of(lambda _, __, total: jnp.argmin(total, 0)), 2),
    "in reverse": (of(lambda h, true, _: (jnp.argmax(h, 0), jnp.argmin(true, 0)), reverse=True), 1),
    "after some": (of(lambda h, *_: jnp.argmax(h[7:], 0)), 2),
    "of every third": (of(lambda h, *_: jnp.argmin(h[2:35:3], 0)), 2),
    "of every third in reverse": (of(lambda h, *_: jnp.argmin(h[2:35:3], 0), reverse=True), 2),
    "of steps that follow": (of(lambda h, *_: jnp.argmax(h[1:] - h[:-1], 0)), 2),
    "of what each has in all": (of(lambda h, *_: jnp.argmax(h.sum(1))), 2),
    "a histogram": (of(lambda h, *_: counted(h)), 2),
    "a histogram after some": (of(lambda h, *_: counted(h[9:])), 2),
    "with weights": (of(lambda h, _, total: counted(h, total)), 2),
    "the largest by class": (of(lambda h, _, total: jnp.zeros(8, jnp.int32).at[bins(h)].max(total)), 2),
    "the smallest of some by class": (
        of(lambda h, _, total: jnp.full(8, 99).at[bins(h[::2])].min(total[::2])),
        2,
    ),
    "by a row of each": (lambda x: counted(x, steps(x)[1][2]), 2),
    "into what the last gives": (
        lambda x: (lambda last, h: bins(last).at[bins(h[0]) // 2].add(1))(*steps(x)),
        3,
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_iterations_can_find_out_is_carried(name: str) -> None:
    function, left = CARRIED[name]
    program, constants = lowered(jax.jit(function), LONG)
    found = with_histories_carried(with_sliced_histories(program)[0])
    check_program(found)
    results = (interpret(one, [LONG, *constants]) for one in (program, found))
    for before, after in zip(*results, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    assert stacked(found) == left


def test_floats_are_accumulated_in_another_order_if_they_may_be() -> None:
    program, _ = lowered(jax.jit(of(lambda h, *_: counted(h, h))), LONG)
    assert stacked(with_histories_carried(program)) == 2
    assert stacked(with_histories_carried(program, exact=True)) == 3
    program, _ = lowered(jax.jit(of(lambda h, *_: counted(h))), LONG)
    assert stacked(with_histories_carried(program, exact=True)) == 2


@settings(max_examples=30 if THOROUGH else 8, derandomize=True)
@given(
    st.integers(0, 1000),
    st.booleans(),
    st.integers(0, 9),
    st.integers(1, 3),
    st.sampled_from(["int8", "uint32", "bool", "float32", "float16", "bfloat16"]),
)
def test_the_first_of_the_best_is_found_whatever_the_entries_are(
    seed: int, reverse: bool, start: int, stride: int, dtype: str
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 2, (40, 11)).astype(jnp.dtype(dtype))
    if dtype.endswith(("16", "float32")):
        x.flat[rng.integers(0, x.size, 40)] = [np.nan, np.inf, -np.inf, -0.0] * 10
        x[:, 0], x[:, 1] = np.nan, -np.inf

    def function(x: Any) -> Any:
        h = lax.scan(lambda s, row: (row, jnp.where(s == row, row, s)), x[0], x, reverse=reverse)[1]
        part = h[start::stride]
        return jnp.argmax(h, 0), jnp.argmin(h, 0), jnp.argmax(part, 0), jnp.argmin(part[::-1], 0)

    wanted = jax.jit(function)(x)
    program, constants = lowered(jax.jit(function), x)
    found = with_histories_carried(with_sliced_histories(program)[0])
    check_program(found)
    for one, other in zip(interpret(found, [x, *constants]), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(eqsat.optimize(function, budget="1GB")(x), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
