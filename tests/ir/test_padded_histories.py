"""Pads of functions of some iterations' entries are choices by the number of the iteration, bit for bit."""

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

from eqsat.ir.axis import layout_shape
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.padded_histories import is_pad, with_padded_histories
from eqsat.ir.program import Program
from eqsat.ir.sliced_histories import with_sliced_histories
from eqsat.ir.spec import check_program
from tests.ir.test_carried_histories import LONG, steps
from tests.stages import before_and_after, lowered

ROWS = len(LONG)


def padded(program: Program) -> Program:
    numbers = count(program.next_call())

    def numbered(call: Call, _: Call) -> Call:
        return replace(call, id=next(numbers))

    return with_padded_histories(with_sliced_histories(program, False, numbered)[0], 0, numbered)[0]


def pads(program: Program) -> int:
    """The number of pads along rows that a program computes."""
    calls = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque) and is_pad(term)}
    pairs = [pair for call in calls for pair in zip(call.arg_layouts[0], call.out_layouts[0], strict=True)]
    return sum(before != after and layout_shape((after,)) == (ROWS,) for before, after in pairs)


def pad(values: Any, before: int, after: int, between: int = 0, value: float = 0) -> Any:
    filling = jnp.asarray(value, values.dtype)
    return lax.pad(values, filling, [(before, after, between), *[(0, 0, 0)] * (values.ndim - 1)])


def of(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: read(steps(x)[1][0])


CHOSEN: dict[str, Callable[[Any], Any]] = {
    "after some": of(lambda h: pad(jnp.sin(h[10:]), 10, 0)),
    "before some": of(lambda h: pad(h[:-3] * 2, 0, 3)),
    "in between": of(lambda h: pad(h[5:20], 5, ROWS - 20, value=-1.5)),
    "every fourth": of(lambda h: pad(jnp.exp(h[3::4]), 3, 0, 3)),
    "of deviations from their mean": of(lambda h: pad(h[7:] - h[7:].mean(0), 7, 0)),
    "of rows": lambda x: of(lambda h: pad(h[20:] * x[:20] - x[20:], 20, 0))(x),
    "of truths": lambda x: pad(steps(x)[1][1][5:].astype(jnp.int32), 5, 0),
    "of a pad": of(lambda h: pad(pad(h[10:][::3] * 2, 0, 0, 2) + h[10:38], 10, 2)),
    "of two histories": lambda x: (lambda entries: pad(jnp.where(entries[1][4:], entries[0][4:], 7), 4, 0))(
        steps(x)[1]
    ),
    "along other dimensions": of(lambda h: lax.pad(h[5:], jnp.float32(3), [(5, 0, 0), (1, 0, 2)])),
    "along the second": of(lambda h: lax.pad(jnp.tanh(h[5:]).T, jnp.float32(3), [(1, 0, 0), (5, 0, 0)])),
    "of windows": of(lambda h: pad(h[5:, 1:] - h[5:, :-1], 5, 0)),
    "in reverse": lambda x: pad(jnp.tanh(steps(x, reverse=True)[1][0][:9]), 0, ROWS - 9),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_pad_of_some_entries_is_a_choice(name: str) -> None:
    before, after = before_and_after(padded, jax.jit(CHOSEN[name]), LONG)
    assert pads(before)
    assert not pads(after)


def largest(h: Any) -> Any:
    """Computed in another place, the largest might be rounded otherwise, and then none would equal it."""
    values = jnp.tanh(h[5:]) * 3 + h[5:]
    return pad(jnp.where(values == values.max(0), 1.0, 0.0), 5, 0)


KEPT: dict[str, Callable[[Any], Any]] = {
    "at other places": of(lambda h: pad(h[1:], 0, 1)),
    "other places apart": of(lambda h: pad(h[::4], 0, 0, 2)),
    "that cuts": of(lambda h: pad(h[5:], 5, -1)),
    "of something else": lambda x: pad(x[5:], 5, 0),
    "of which the largest is looked for": of(largest),
    "of a call": of(lambda h: pad(jnp.sort(h[5:], 0), 5, 0)),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_pads_stay(name: str) -> None:
    program, _ = lowered(jax.jit(KEPT[name]), LONG)
    assert padded(program) is program


@given(st.lists(st.floats(width=32), min_size=7, max_size=7), st.sampled_from([*CHOSEN]))
@settings(max_examples=60, derandomize=True)
def test_all_numbers_stay_the_same(numbers: list[float], name: str) -> None:
    """What is not chosen may be NaN."""
    x = np.resize(np.float32(numbers), LONG.shape)
    program, constants = lowered(jax.jit(CHOSEN[name]), x)
    found = padded(program)
    check_program(found)
    with np.errstate(all="ignore"):
        both = interpret(program, [x, *constants]), interpret(found, [x, *constants])
    for before, after in zip(*both, strict=True):
        np.testing.assert_array_equal(before, after)
