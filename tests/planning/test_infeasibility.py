"""What is known of every program: that one does not fit is said only where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import eqsat
from eqsat.planning.candidates import Candidate
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal

ROWS = 4_000
COLUMN = 4 * ROWS

X = normal(ROWS)


def searched(function: Callable[..., Any], room: int, *arguments: Any) -> tuple[SearchSpace, int]:
    """The space for a budget with so much room beside arguments and results, and the budget."""
    program, _ = lowered(function, *arguments)
    budget = program.fixed_bytes - sum(output.bytes for output in program.outputs) + room
    return prepare(program, rules_for((), "reassociates"), budget, CPU), budget


def momentum(x: Any) -> Any:
    """A loop that carries six columns, each of which the next one needs, until the first is small."""

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        first, *others = state
        mixed = jnp.roll(others[-1], 1)
        return (0.5 * first + mixed, first, *others[:-1])

    started = tuple(x * number for number in range(1, 7))
    return lax.while_loop(lambda state: jnp.max(jnp.abs(state[0])) > 1e-3, step, started)[0].sum()


def test_what_a_loop_carries_is_in_memory_at_once() -> None:
    space, budget = searched(momentum, 5 * COLUMN, X)
    assert space.fits_nowhere(budget)
    bodies = [body for both in space.bodies.values() for body in both]
    assert bodies
    assert all(isinstance(body, Candidate) for body in bodies), "no body is searched in vain"
    space, budget = searched(momentum, 7 * COLUMN, X)
    assert not space.fits_nowhere(budget)


def test_such_a_budget_is_refused_and_what_is_recommended_is_enough() -> None:
    with pytest.raises(eqsat.BudgetError) as error:
        eqsat.optimize(momentum, budget=X.nbytes + 4 * COLUMN).plan(X)
    smallest = error.value.smallest_peak
    assert smallest is not None
    assert smallest >= X.nbytes + 6 * COLUMN
    assert eqsat.optimize(momentum, budget=smallest).plan(X).peak_bytes <= smallest


def test_a_batch_of_loops_can_be_taken_in_chunks() -> None:
    def batch(x: Any) -> Any:
        return jax.vmap(lambda one: momentum(one * jnp.arange(1.0, 3.0)))(x).sum()

    space, budget = searched(batch, COLUMN // 4, X)
    assert not space.fits_nowhere(budget)


def test_carries_that_are_not_needed_for_what_is_read_do_not_count() -> None:
    """The sum is carried beside the state, but no one reads it."""

    def scanned(x: Any) -> Any:
        def step(carry: tuple[Any, Any], number: Any) -> tuple[tuple[Any, Any], None]:
            state, total = carry
            return (jnp.sin(state) * number, total + jnp.cumsum(x)), None

        (state, _), _ = lax.scan(step, (x, x), jnp.arange(5.0))
        return state.sum()

    space, budget = searched(scanned, int(1.5 * COLUMN), X)
    assert not space.fits_nowhere(budget)


def test_what_a_function_reads_is_in_memory_at_once() -> None:
    def paired(x: Any) -> Any:
        keys = jnp.exp(-(x**2))
        return lax.sort((keys, jnp.sin(keys)), num_keys=1)[1].sum()

    for room, fits in [(1.5 * COLUMN, False), (2.5 * COLUMN, True)]:
        space, budget = searched(paired, int(room), X)
        assert space.fits_nowhere(budget) is not fits


def test_the_columns_of_what_is_solved_for_can_be_taken_in_chunks() -> None:
    def solved(x: Any) -> Any:
        square = jnp.exp(-((x[:, None] - x) ** 2)) + jnp.eye(len(x))
        return lax.linalg.triangular_solve(square, jnp.sin(square), left_side=True, lower=True).sum()

    x = normal(300)
    matrix = 4 * 300**2
    for room, fits in [(0.9 * matrix, False), (1.5 * matrix, True)]:
        space, budget = searched(solved, int(room), x)
        assert space.fits_nowhere(budget) is not fits
