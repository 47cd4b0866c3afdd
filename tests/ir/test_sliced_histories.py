"""Slices of functions of a history are functions of slices of it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.ir.interpret import interpret
from eqsat.ir.lean_loops import with_lean_loops
from eqsat.ir.ops import Map
from eqsat.ir.sliced_histories import with_sliced_histories
from eqsat.ir.spec import check_program
from tests.ir.test_carried_histories import LONG, stacked, states, steps
from tests.stages import before_and_after, lowered


def lagged(x: Any, of: Callable[[Any], Any]) -> Any:
    values = of(steps(x)[1][0])
    return (values[1:] * values[:-1]).sum(0)


# With how many histories a scan still stacks: two of three are not read.
SLICED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a function": (lambda x: jnp.tanh(steps(x)[1][0])[1:].sum(0), 2),
    "deviations from rows": (lambda x: lagged(x, lambda h: h - x), 2),
    "deviations from one row": (lambda x: lagged(x, lambda h: jnp.cos(h - x[3]) / 2), 2),
    "after some": (lambda x: lagged(x, lambda h: (h * 2)[10:]), 2),
    "after some, a function": (lambda x: lagged(x, lambda h: jnp.exp((h * 2)[10:])), 2),
    "of two histories": (
        lambda x: (lambda h: jnp.where(h[1], h[0], 0)[3:].max(0))(steps(x)[1]),
        2,
    ),
    "sums of what depends on all": (
        lambda x: (lambda e: jnp.abs(e[1:] - e[:-1]).max())((states(x) ** 2).sum(1)),
        0,
    ),
    "every fourth": (lambda x: (jnp.sin(steps(x)[1][0])[3::4] * x[:10]).sum(0), 2),
    "the last": (lambda x: jnp.tanh(steps(x)[1][0])[-1], 2),
    "in reverse": (lambda x: jnp.tanh(steps(x, reverse=True)[1][0])[1:].sum(0), 2),
    "along both": (lambda x: (steps(x)[1][0][1:, 1:] ** 2).sum(0), 2),
    "along both, a function": (lambda x: jnp.tanh(steps(x)[1][0])[1::2, 1:-1].max(0), 2),
    "along the second": (lambda x: jnp.tanh(steps(x)[1][0]).T[1:4, 5:].sum(1), 2),
    "windows": (lambda x: (lambda h: (h[:, 1:] - h[:, :-1])[3:].sum(0))(steps(x)[1][0]), 2),
    "a part of one": (lambda x: steps(x)[1][0][-1, 1:3] * 2, 2),
}


@pytest.mark.parametrize("name", SLICED)
def test_slices_of_functions_are_functions_of_slices(name: str) -> None:
    function, left = SLICED[name]
    before, after = before_and_after(
        lambda program: with_sliced_histories(program)[0], jax.jit(function), LONG
    )
    assert after is not before
    program, constants = lowered(jax.jit(function), LONG)
    lean = with_lean_loops(program)
    check_program(lean)
    wanted, found = interpret(program, [LONG, *constants]), interpret(lean, [LONG, *constants])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert stacked(lean) == left


OTHERS: dict[str, Callable[[Any], Any]] = {
    "of the history": lambda x: steps(x)[1][0][1:].sum(0),
    "of what is no history": lambda x: steps(x)[1][0] * jnp.tanh(x)[:1],
    "along another axis": lambda x: jnp.tanh(steps(x)[1][0])[:, 1:],
    "compared with one another": lambda x: (lambda e: (e[1:] == e[:-1]).sum(0))(
        jnp.tanh(steps(x)[1][0]) * 3 + x
    ),
    "of what is sorted": lambda x: jnp.sort(steps(x)[1][0], 0)[1:],
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_slices_stay(name: str) -> None:
    program, _ = lowered(jax.jit(OTHERS[name]), LONG)
    found, known = with_sliced_histories(program)
    assert found is program
    assert not known


def test_a_history_that_is_read_whole_is_not_sliced_for_nothing() -> None:
    """Two slices of one function would be two functions of slices."""

    def read(x: Any) -> Any:
        history = steps(x)[1][0]
        function = jnp.tanh(history)
        return (function[1:] * function[:-1]).sum(0), history

    program, _ = lowered(jax.jit(read), LONG)
    lean = with_lean_loops(program)
    assert sum(isinstance(term.op, Map) and term.op.name == "tanh" for term in lean.reachable()) == 1
