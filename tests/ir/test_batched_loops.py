"""Batches of loops that count together: each row may be computed without the others, or it may not."""

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
from eqsat.ir.constant_carries import with_constant_carries
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from eqsat.ir.unread_results import with_unread_results
from tests.stages import lowered, normal

N = 7
LIMIT = 12
"""The most iterations."""

State = tuple[Any, Any, Any, Any]
"""The number of the iteration, which rows are running, the rows, and how often each was changed."""


def unfinished(rows: Any) -> Any:
    return jnp.abs(rows) < 20


def step(state: State) -> State:
    number, running, rows, count = state
    new = 2 * rows + number
    return (
        number + 1,
        running & unfinished(new),
        jnp.where(running, new, rows),
        jnp.where(running, count + 1, count),
    )


def goes_on(state: State) -> Any:
    return unfinished(state[2]).any() & (state[0] < LIMIT)


def loop(x: Any, step: Callable[[State], State] = step, goes_on: Callable[[State], Any] = goes_on) -> State:
    return lax.while_loop(goes_on, step, (jnp.int32(0), unfinished(x), x, jnp.zeros_like(x)))


def by_a_flag(x: Any) -> Any:
    return loop(x)[2:]


def by_their_predicate(x: Any) -> Any:
    def chosen(state: State) -> State:
        number, _, rows, count = state
        running = unfinished(rows)
        return (
            number + 1,
            running,
            jnp.where(running, 2 * rows + number, rows),
            jnp.where(running, 1.0, count),
        )

    return loop(x, chosen)[2]


def with_a_buffer(x: Any) -> Any:
    """Every row notes what it was, at a place of its own; a row that is done writes what is there."""

    def noted(state: Any) -> Any:
        number, running, rows, notes = state
        place = number % 7
        note = jax.vmap(lambda flag, row, note: note.at[place].set(jnp.where(flag, row, note[place])))
        return *step((number, running, rows, rows))[:3], note(running, rows, notes)

    start = (jnp.int32(0), unfinished(x), x, jnp.zeros((len(x), 5)))
    return lax.while_loop(goes_on, noted, start)[2:]


def with_a_loop_inside(x: Any) -> Any:
    """The loop inside goes on for all, but keeps the rows of those that are done outside."""

    def outer(state: State) -> State:
        number, running, rows, count = state

        def inner(given: Any) -> Any:
            k, flag, values = given
            return k + 1, flag & (k < 3), jnp.where(running & flag, values + 1, values)

        _, _, rows_in = lax.while_loop(
            lambda given: given[1].any() & (given[0] < 5), inner, (jnp.int32(0), rows < 3, rows)
        )
        found = step((number, running, rows_in, count))
        return found[0], found[1], jnp.where(running, found[2], rows), found[3]

    return loop(x, outer)[2]


def by_their_last_note(x: Any) -> Any:
    """Whether a row goes on depends on a note that is looked up, once for the loop and once for each row."""

    def one(x: Any) -> Any:
        def goes_on(state: Any) -> Any:
            number, _, notes = state
            return (number < LIMIT) & ((number == 0) | (jnp.abs(notes[number // 2 - 1]) < 20))

        def noted(state: Any) -> Any:
            number, row, notes = state
            row = 2 * row + number
            return number + 1, row, notes.at[number // 2].set(row)

        return lax.while_loop(goes_on, noted, (jnp.int32(0), x, jnp.zeros(LIMIT)))

    return jax.vmap(one)(x)


def inner_loop(rows: Any, goes_on: Callable[[Any], Any]) -> Any:
    """A loop in an iteration that counts for all rows together."""
    return lax.while_loop(goes_on, lambda inner: (inner[0] + 1, jnp.sin(inner[1])), (jnp.int32(0), rows))


def with_a_count_inside(x: Any) -> Any:
    """What the rows share in the loop outside is counted by a loop inside."""

    def outer(state: Any) -> Any:
        count, rows = inner_loop(state[1], lambda inner: inner[0] < 3)
        return state[0] + count, 2 * rows + state[0]

    return lax.while_loop(lambda state: state[0] < LIMIT, outer, (jnp.int32(0), x))[1]


INDEPENDENT = {
    f.__name__: f
    for f in (
        by_a_flag,
        by_their_predicate,
        with_a_buffer,
        with_a_loop_inside,
        by_their_last_note,
        with_a_count_inside,
    )
}


def split(function: Callable[..., Any], x: Any) -> tuple[Program, list[Any]]:
    program, constants = lowered(function, x)
    found = with_unread_results(with_constant_carries(program))
    check_program(found)
    return found, constants


def passing(program: Program) -> set[int]:
    calls = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque)}
    return {axis.size for call in calls if call.control is not None for axis in call.passing}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_the_rows_end_one_by_one(name: str) -> None:
    x = 9 * normal(N)
    program, constants = split(INDEPENDENT[name], x)
    assert N in passing(program)
    results = interpret(program, [x, *constants])
    for one, other in zip(results, jax.tree.leaves(jax.jit(INDEPENDENT[name])(x)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


JITTED = {name: jax.jit(function) for name, function in INDEPENDENT.items()}


@settings(max_examples=30)
@given(st.sampled_from(sorted(JITTED)), st.lists(st.floats(width=32), min_size=N, max_size=N))
def test_a_part_of_the_rows_gives_the_same(name: str, entries: list[float]) -> None:
    x = np.array(entries, np.float32)
    whole = jax.tree.leaves(JITTED[name](x))
    parts = [jax.tree.leaves(JITTED[name](part)) for part in (x[:3], x[3:])]
    for number, result in enumerate(whole):
        np.testing.assert_array_equal(result, np.concatenate([part[number] for part in parts]))


def slowest_inside(x: Any) -> Any:
    """What the rows share is counted by a loop inside that goes on until all rows are done."""

    def outer(state: Any) -> Any:
        count, rows = inner_loop(state[1], lambda inner: (jnp.abs(inner[1]) > 0.7).any() & (inner[0] < 9))
        return state[0] + 1 + count, 2 * rows + state[0]

    return lax.while_loop(lambda state: state[0] < LIMIT, outer, (jnp.int32(0), x))[1]


def counted(x: Any) -> Any:
    """The number of iterations is that of the slowest row."""
    state = loop(x)
    return state[2] + state[0]


def going_on(x: Any) -> Any:
    """Rows that are done go on to change."""
    return loop(x, lambda state: (*step(state)[:3], state[3] + 1))[3]


def zeroed(x: Any) -> Any:
    """Rows that are done become what they were in the beginning."""
    return loop(x, lambda s: (*step(s)[:3], jnp.where(s[1], s[3] + 1, 0.0)))[3]


def started_again(x: Any) -> Any:
    """A row that is done may be running again later."""
    return loop(x, lambda s: (step(s)[0], (s[0] % 3 != 1) & (s[2] > 0), *step(s)[2:]))[2]


def later(x: Any) -> Any:
    """Whether a row goes on depends on the iteration."""
    return loop(x, goes_on=lambda s: (jnp.abs(s[2]) < 4 * s[0]).any() & (s[0] < LIMIT))[2]


def slowest(x: Any) -> Any:
    """What all share depends on the rows."""
    return loop(x, lambda s: (s[0] + jnp.int32(s[1].sum()), *step(s)[1:]))[2]


def less(x: Any) -> Any:
    """More rows are running than the loop waits for."""
    return loop(x, goes_on=lambda s: (jnp.abs(s[2]) < 10).any() & (s[0] < LIMIT))[2]


@pytest.mark.parametrize(
    "function", [counted, going_on, zeroed, started_again, later, slowest, less, slowest_inside]
)
def test_the_rows_depend_on_one_another(function: Callable[..., Any]) -> None:
    program, _ = split(function, 9 * normal(N))
    assert N not in passing(program)


def test_a_batch_that_is_too_large_is_split() -> None:
    """The values that a row has on its way to the result are 60 times as large."""

    def function(x: Any) -> Any:
        return by_a_flag(jnp.sin(x[:, None] * jnp.arange(60.0)) * 9)[0].max(1)

    x = normal(1000)
    found = eqsat.optimize(function, budget="100kB")
    assert found.plan(x).peak_bytes <= 100_000
    np.testing.assert_allclose(found(x), jax.jit(function)(x), rtol=1e-5)


def test_a_batch_of_loops_that_carry_keys_is_one_of_chunks() -> None:
    """Draws by rejection, as of a Poisson distribution: a loop draws until it has accepted all."""

    def accepted(key: Any) -> Any:
        def body(state: Any) -> Any:
            key, kept, done = state
            key, drawn = jax.random.split(key)
            new = jax.random.normal(drawn, kept.shape)
            return key, jnp.where(done, kept, new), done | (new > 0)

        start = key, jnp.zeros(2000), jnp.zeros(2000, bool)
        return jax.lax.while_loop(lambda state: ~state[2].all(), body, start)[1].max()

    keys = jax.random.split(jax.random.key(0), 200)
    optimized = eqsat.optimize(jax.vmap(accepted), budget="500kB")
    assert optimized.plan(keys).loops
    np.testing.assert_array_equal(optimized(keys), jax.jit(jax.vmap(accepted))(keys))
    draws = lambda keys: jax.vmap(lambda key: jax.random.poisson(key, 4.0, (2000,)).sum())(keys)  # noqa: E731
    small = eqsat.optimize(draws, budget="2MB")
    np.testing.assert_array_equal(small(keys), jax.jit(draws)(keys))
