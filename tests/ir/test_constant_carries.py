"""Carries that no iteration changes are constants inside of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.constant_carries import with_constant_carries
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Leaf, Opaque, Reduce
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from tests.stages import lowered, normal

N = 5


def flag(x: Any, start: bool = False, other: bool = False) -> Any:
    """Whether any flag is set decides for all rows; none ever is."""

    def step(state: Any, _: Any) -> Any:
        flags, rows = state
        return (jnp.where(rows > 0, flags, other), rows + jnp.where(flags.any(), 1.0, 2.0)), None

    return lax.scan(step, (jnp.full(N, start), x), None, length=3)[0]


def two(x: Any) -> Any:
    """Each is constant if the other is."""

    def step(state: Any) -> Any:
        k, one, other, rows = state
        return k + 1, jnp.where(rows > 0, one, other), one & other, rows + jnp.where(one.any(), 1.0, 2.0)

    start = jnp.full(N, False)
    return lax.while_loop(lambda s: s[0] < 3, step, (0, start, start, x))[1:]


def inside(x: Any) -> Any:
    return lax.fori_loop(0, 2, lambda _, h: flag(h)[1] - 1, x)


def sums(program: Program) -> int:
    """How many reductions there are in bodies."""
    bodies = [one for one in program.inside() if one is not program]
    return sum(isinstance(term.op, Reduce) for body in bodies for term in body.reachable())


def checked(function: Callable[..., Any]) -> tuple[Program, Program]:
    x = normal(N)
    program, constants = lowered(function, x)
    found = with_constant_carries(program)
    check_program(found)
    for one, other in zip(
        interpret(found, [x, *constants]), jax.tree.leaves(jax.jit(function)(x)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    return program, found


@pytest.mark.parametrize("function", [flag, two, inside])
def test_what_depends_on_a_constant_alone_is_gone(function: Callable[..., Any]) -> None:
    before, after = checked(function)
    assert sums(before) > sums(after) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: flag(x, start=True),
        lambda x: flag(x, other=True),
        lambda x: lax.fori_loop(
            0, 3, lambda k, s: (s[0] + s[1].any(), s[1] ^ (x > 0)), (x, jnp.full(N, False))
        ),
    ],
    ids=["set first", "set later", "changed"],
)
def test_a_carry_that_changes_stays(function: Callable[..., Any]) -> None:
    before, after = checked(function)
    assert sums(after) == sums(before) > 0


def test_zeros_have_signs() -> None:
    def function(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, s: (-s[0], s[1] / s[0]), (jnp.float32(0.0), x))

    _, after = checked(function)
    (call,) = {
        term.op.call for term in after.reachable() if isinstance(term.op, Opaque) and term.op.call.bodies
    }
    leaves = [term for term in call.bodies[-1].program.reachable() if isinstance(term.op, Leaf)]
    assert len(leaves) >= 2
