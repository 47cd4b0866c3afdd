"""Of what a scan stacks, the last entry alone is a carry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.control import Scan
from eqsat.ir.interpret import interpret
from eqsat.ir.last_entries import with_last_entries_carried
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from tests.stages import lowered, normal

X = normal(6, 5)


def stacked(program: Program) -> int:
    """The number of results that scans of a program stack."""
    calls = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque)}
    return sum(
        len(call.out_layouts) - len(call.control.carried) for call in calls if isinstance(call.control, Scan)
    )


def steps(x: Any, reverse: bool = False) -> Any:
    def step(total: Any, row: Any) -> Any:
        return total + row, (jnp.sin(total * row), total > 0, jnp.int32(total))

    return lax.scan(step, jnp.zeros(5), x, reverse=reverse)


def with_steps(x: Any, read: Callable[[Any, Any], Any]) -> Any:
    return read(*steps(x))


CASES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "the last": (lambda x: steps(x)[1][0][-1], 2),
    "by its number": (lambda x: steps(x)[1][0][5], 2),
    "each the last": (lambda x: [entry[-1] for entry in steps(x)[1]], 0),
    "the last, and the carry": (lambda x: with_steps(x, lambda total, rows: (total, rows[1][-1])), 2),
    "the last to be computed": (lambda x: steps(x, reverse=True)[1][0][0], 2),
    "another": (lambda x: steps(x)[1][0][2], 3),
    "the first of a scan in reverse": (lambda x: steps(x, reverse=True)[1][0][-1], 3),
    "all": (lambda x: steps(x)[1][0], 3),
    "the last, and all": (lambda x: with_steps(x, lambda _, rows: (rows[0][-1], rows[0].sum())), 3),
    "two": (lambda x: steps(x)[1][0][-2:], 3),
    "a part of the last": (lambda x: steps(x)[1][0][-1, :3], 3),
}


@pytest.mark.parametrize("name", CASES)
def test_a_stack_of_which_the_last_entry_is_read_is_a_carry(name: str) -> None:
    function, left = CASES[name]
    program, constants = lowered(jax.jit(function), X)
    found = with_last_entries_carried(program)
    check_program(found)
    for before, after in zip(
        interpret(program, [X, *constants]), interpret(found, [X, *constants]), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    assert stacked(found) == left


def test_the_labels_of_k_means_are_not_kept_for_every_iteration() -> None:
    def labels(points: Any) -> Any:
        def step(centres: Any, _: Any) -> Any:
            nearest = jnp.argmin(jnp.sum((points[:, None] - centres) ** 2, -1), 1)
            weights = jax.nn.one_hot(nearest, 8)
            return (weights.T @ points) / jnp.maximum(weights.sum(0), 1)[:, None], nearest

        centres, found = lax.scan(step, points[:8], None, length=50)
        return centres, found[-1]

    points = normal(4000, 3)
    optimized = eqsat.optimize(labels, budget="300kB")
    plan = optimized.plan(points)
    assert plan.peak_bytes <= 300_000 < 50 * 4 * 4000
    for one, other in zip(optimized(points), jax.jit(labels)(points), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
