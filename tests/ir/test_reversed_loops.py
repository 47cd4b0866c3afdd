"""Scans over reversed sequences are scans from the end, and compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.reversed_loops import with_reversed_loops
from tests.stages import lowered, normal

X, Y = normal(7, 5), normal(7, 5) + 2


def step(carry: Any, row: Any) -> Any:
    new = jnp.where(carry @ row > 0, carry + row, 0.9 * carry)
    return new, new * 2


def pairs(carry: Any, rows: Any) -> Any:
    return step(carry, rows[0] - jnp.tanh(rows[1]))


def nested(x: Any) -> Any:
    def outer(carry: Any, row: Any) -> Any:
        return lax.scan(step, carry, (row * x)[::-1])[0], None

    return lax.scan(outer, x[0], x)[0]


REVERSED: dict[str, Callable[..., Any]] = {
    "a carry": lambda x, y: lax.scan(step, y[0], x[::-1])[0],
    "of what is computed": lambda x, y: lax.scan(step, y[-1], jnp.exp(x)[::-1])[0],
    "of a part": lambda x, y: lax.scan(step, y[-1], y[:-1][::-1])[0],
    "two sequences": lambda x, y: lax.scan(pairs, y[0], (jnp.flip(x, 0), jnp.flip(y, 0)))[0],
    "and reversed back": lambda x, y: lax.scan(step, y[0], x[::-1])[1][::-1],
    "from the end": lambda x, y: lax.scan(step, y[0], x[::-1], reverse=True)[0],
    "inside of another": lambda x, y: nested(x),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "stacked as it is": lambda x, y: lax.scan(step, y[0], x[::-1]),
    "both ways": lambda x, y: (lambda ys: (ys, ys[::-1]))(lax.scan(step, y[0], x[::-1])[1]),
    "one of two": lambda x, y: lax.scan(pairs, y[0], (x[::-1], y))[0],
    "columns": lambda x, y: lax.scan(step, y[0], x[:, ::-1])[0],
    "no sequence": lambda x, y: lax.scan(lambda c, _: step(c, x[0]), y[0], None, length=3)[0],
}


def reversals(program: Program) -> int:
    return sum(
        isinstance(term.op, Opaque) and term.op.call.primitive is lax.rev_p
        for inner in program.inside()
        for term in inner.reachable()
    )


def check(fn: Callable[..., Any]) -> tuple[int, int]:
    """How many arrays are reversed before and after; the results have to be the same."""
    program, constants = lowered(fn, X, Y)
    changed = with_reversed_loops(program)
    found = interpret(changed, [X, Y, *constants])
    for one, other in zip(found, jax.tree.leaves(fn(X, Y)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    return reversals(program), reversals(changed)


@pytest.mark.parametrize("name", REVERSED)
def test_nothing_is_reversed(name: str) -> None:
    before, after = check(REVERSED[name])
    assert before
    assert not after


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_as_they_are(name: str) -> None:
    before, after = check(OTHERS[name])
    assert before == after


def test_backwards_through_what_is_computed_it_is_never_whole() -> None:
    def walked(x: Any) -> Any:
        rows = jnp.exp(x)
        return lax.scan(lambda carry, row: (step(carry, row)[0], None), rows[-1], rows[::-1])[0].sum()

    x = normal(401, 1_000)
    optimized = eqsat.optimize(walked, budget=x.nbytes + x.nbytes // 10)
    assert optimized.plan(x).changed
    np.testing.assert_allclose(optimized(x), jax.jit(walked)(x), rtol=1e-4)
