"""Loops that carry nothing are known as batches, too: in both forms they mean the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.batched_scans import without_batches
from eqsat.ir.interpret import interpret
from eqsat.ir.lean_loops import with_lean_loops
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term
from tests.stages import lowered, normal


def stacks(term: Term) -> bool:
    return isinstance(term.op, Opaque) and bool(term.op.call.bodies)


def batches(program: Program) -> list[tuple[Term, Term]]:
    return [pair for pair in program.equalities if stacks(pair[0])]


def rows(x: Any, y: Any) -> Any:
    return lax.map(lambda row: jnp.exp(-((row - y) ** 2).sum(-1)) @ y, x)


def nested(x: Any, y: Any) -> Any:
    return lax.map(lambda row: lax.map(lambda other: jnp.tanh(row * other).max(), y), x)


def of_itself(x: Any, y: Any) -> Any:
    return lax.map(lambda row: jnp.sort(jnp.abs(x @ row))[:2], x)


def in_batches(x: Any, y: Any) -> Any:
    return lax.map(lambda row: (row @ y.T).sum(), x, batch_size=4)


def from_the_end(x: Any, y: Any) -> Any:
    return lax.scan(lambda _, row: (None, (row * 2, y @ row)), None, x, reverse=True)[1]


def solved(x: Any, y: Any) -> Any:
    return lax.map(lambda row: jnp.linalg.solve(y.T @ y + jnp.diag(jnp.abs(row)), row), x)


@pytest.mark.parametrize("fn", [rows, nested, of_itself, in_batches, from_the_end, solved])
def test_a_batch_is_what_the_loop_stacks(fn: Callable[..., Any]) -> None:
    x, y = normal(9, 3), normal(7, 3)
    program, constants = lowered(fn, x, y)
    assert batches(program)
    for stacked, batch in batches(program):
        layout = tuple(sorted(stacked.axes))
        both = replace(program, outputs=(Output(stacked, layout), Output(batch, layout)), facts=())
        check_program(both)
        np.testing.assert_allclose(*interpret(both, [x, y, *constants]), rtol=1e-9, atol=1e-12)
    assert not batches(without_batches(program))


LOOPS: list[Callable[..., Any]] = [
    lambda x, y: lax.scan(lambda c, row: (c + row, row @ y[0]), x[0], x),
    lambda x, y: lax.map(lambda row: lax.cond(row[0] > 0, jnp.sin, jnp.cos, row), x),
    lambda x, y: lax.map(lambda row: lax.while_loop(lambda r: r.sum() < 9, lambda r: r + 1, row), x),
]


@pytest.mark.parametrize("fn", LOOPS)
def test_loops_that_carry_or_branch_are_no_batches(fn: Callable[..., Any]) -> None:
    program, _ = lowered(fn, normal(9, 3), normal(7, 3))
    assert not batches(program)


def test_what_a_loop_stacks_is_reduced_as_a_batch_too() -> None:
    x, y = normal(9, 3), normal(7, 3)
    program, constants = lowered(lambda x, y: rows(x, y).sum(0), x, y)
    lean = with_lean_loops(program)
    (total, batch), *others = batches(lean)
    assert not others
    both = replace(lean, outputs=(Output(total, (*total.axes,)), Output(batch, (*batch.axes,))), facts=())
    np.testing.assert_allclose(*interpret(both, [x, y, *constants]), rtol=1e-9)


def test_chunks_of_all_points_serve_every_iteration() -> None:
    """Distances are sorted once for all ranks, by chunks of rows, rather than kept or sorted for each."""
    x, ranks = normal(1500, 3), np.arange(3, 12, dtype=np.int32)

    def densities(x: Any, ranks: Any) -> Any:
        apart = jnp.sqrt(((x[:, None] - x) ** 2).sum(-1))
        ordered = jnp.sort(apart, axis=1)
        return lax.map(lambda rank: (jnp.exp(-apart / ordered[:, rank][:, None]) @ x[:, 0]).max(), ranks)

    optimized = eqsat.optimize(densities, budget="3MB")
    plan = optimized.plan(x, ranks)
    assert plan.peak_bytes <= 3_000_000
    assert "length=9" not in plan.source
    np.testing.assert_allclose(optimized(x, ranks), jax.jit(densities)(x, ranks), rtol=1e-4)
