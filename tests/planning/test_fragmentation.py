"""Buffers at fixed offsets: the gaps that they leave."""

from __future__ import annotations

from math import inf

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eqsat
from eqsat.planning.fragmentation import height, most_alive
from eqsat.planning.output_reuse import Temporary

MOMENTS = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted)
BUFFERS = st.lists(st.tuples(st.integers(1, 9), MOMENTS), max_size=12)


@given(BUFFERS)
def test_the_block_holds_what_is_alive_and_no_more_than_everything(
    found: list[tuple[int, list[int]]],
) -> None:
    buffers = [Temporary(size, (begin,), (end, inf)) for size, (begin, end) in found]
    alive = max((sum(b.bytes for b in buffers if b.begin <= (t,) <= b.end) for t in range(7)), default=0)
    assert most_alive(buffers) == alive
    assert alive <= height(buffers) <= sum(buffer.bytes for buffer in buffers)


def test_buffers_one_after_the_other_take_the_place_of_the_largest() -> None:
    buffers = [Temporary(size, (step,), (step, inf)) for step, size in enumerate((9, 7, 4))]
    assert height(buffers) == most_alive(buffers) == 9


def test_a_buffer_goes_to_the_smallest_gap() -> None:
    low, middle, high = (Temporary(size, (0,), (9,)) for size in (8, 6, 5))
    # The first and the third are free from step 10 on; what needs 5 goes where 5 was.
    late = [Temporary(6, (10,), (20,)), Temporary(5, (10,), (20,))]
    kept = Temporary(6, (0,), (20,))
    assert height([low, kept, high, *late]) == 8 + 6 + 5
    assert height([low, middle, high]) == 19


def test_products_around_a_softmax_leave_a_gap_on_a_gpu() -> None:
    """Their workspaces, 33.6 MB each, are alive at different times, and what lies between them at both."""

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.softmax(q @ k.T) @ v

    shapes = [jax.ShapeDtypeStruct((8192, 64), jnp.float32)] * 3
    plan = eqsat.optimize(attention, budget="70MB", target="h100").plan(*shapes)
    assert plan.loops
    assert plan.predicted_peak_bytes == pytest.approx(plan.peak_bytes, rel=0.1)
