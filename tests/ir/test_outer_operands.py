"""What bodies count or rename along the axis of a batch are operands, so that the batch passes through."""

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
from eqsat.ir.outer_operands import with_outer_operands
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from tests.stages import lowered, normal

N = 7


def passing(program: Program) -> set[int]:
    """The lengths of the axes that pass through the control flow of a program, not that of its bodies."""
    calls = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque)}
    return {axis.size for call in calls if call.control is not None for axis in call.passing}


def scan(x: Any) -> Any:
    return lax.scan(lambda h, _: (h * jnp.arange(N), None), x, None, length=2)[0]


def two_dtypes(x: Any) -> Any:
    def step(h: Any, _: Any) -> Any:
        return h * jnp.arange(N, dtype=jnp.float32) + (jnp.arange(N) % 3), h.astype(jnp.int32) + jnp.arange(N)

    return lax.scan(step, x, None, length=2)


def choice(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: x + jnp.arange(N), lambda x: x, x)


def batch_of_loops(x: Any) -> Any:
    def single(start: Any, index: Any) -> Any:
        return lax.while_loop(lambda s: s < 30.0, lambda s: 2 * jnp.abs(s) + 1 + index, start)

    return lax.fori_loop(0, 2, lambda _, h: jax.vmap(single)(h, jnp.arange(N)) - 25, x)


def loop_in_a_loop(x: Any) -> Any:
    def inner(h: Any, _: Any) -> Any:
        return 0.5 * h + jnp.sin(jnp.arange(N) + h), None

    return lax.scan(lambda h, _: (lax.scan(inner, h, None, length=2)[0], None), x, None, length=3)[0]


def random_for_each(x: Any) -> Any:
    def step(h: Any, key: Any) -> Any:
        keys = jax.random.split(key, 20)
        return h + jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys).sum(1), None

    return lax.scan(step, jnp.tile(x, 3)[:20], jax.random.split(jax.random.key(3), 4))[0]


def indices_from_outside(x: Any) -> Any:
    rows, table = jnp.arange(N), jnp.tile(x, (4, 1)).T

    def step(table: Any, column: Any) -> Any:
        return table.at[rows, (table[:, 0] > 0) + column].add(table[rows, column]), None

    return lax.scan(step, table, jnp.arange(3))[0]


def pairs(x: Any) -> Any:
    """A recurrence for every pair of rows of one array, of which one is read entry by entry."""
    rows = jnp.outer(x, jnp.arange(5.0))

    def single(one: Any, other: Any) -> Any:
        def step(h: Any, entry: Any) -> Any:
            return jnp.minimum(h + jnp.abs(entry - other), jnp.roll(h, 1) + 1), None

        return lax.scan(step, jnp.arange(5.0), one)[0]

    return jax.vmap(lambda one: jax.vmap(lambda other: single(one, other))(rows))(rows)


def pairs_of_what_is_computed(x: Any) -> Any:
    rows = jnp.outer(x, jnp.arange(5.0))

    def single(one: Any, other: Any) -> Any:
        def step(h: Any, entry: Any) -> Any:
            return jnp.minimum(h + jnp.abs((other**2).sum() - jnp.sin(entry)), jnp.roll(h, 1) + 1), None

        return lax.scan(step, jnp.arange(5.0), one)[0]

    return jax.vmap(lambda one: jax.vmap(lambda other: single(one, other))(rows))(rows)


def pairs_until_done(x: Any) -> Any:
    def single(one: Any, other: Any) -> Any:
        return lax.while_loop(lambda s: s < 9.0, lambda s: 2 * s + jnp.abs(one - other) + 1, one * other)

    return jax.vmap(lambda one: jax.vmap(lambda other: single(one, other))(x))(x)


def pairs_by_choice(x: Any) -> Any:
    pairs = x[:, None] * x
    return lax.cond(x[0] > 0, lambda h: h + x[:, None] - x, lambda h: h * x, pairs)


PASSING: dict[str, tuple[Callable[[Any], Any], int]] = {
    "in a scan": (scan, N),
    "of two dtypes": (two_dtypes, N),
    "in a choice": (choice, N),
    "in a batch of loops": (batch_of_loops, N),
    "in a loop in a loop": (loop_in_a_loop, N),
    "by which keys are split": (random_for_each, 20),
    "for all pairs": (pairs, N),
    "for all pairs of what it computes": (pairs_of_what_is_computed, N),
    "for all pairs until they are done": (pairs_until_done, N),
    "for all pairs by choice": (pairs_by_choice, N),
    "outside, by which rows are chosen": (indices_from_outside, N),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PASSING)
def test_a_batch_passes_through_what_counts_or_renames_along_it(name: str) -> None:
    function, length = PASSING[name]
    x = normal(N)
    program, constants = lowered(function, x)
    found = with_outer_operands(program)
    check_program(found)
    assert length in passing(found)
    for one, other in zip(
        interpret(found, [x, *constants]), jax.tree.leaves(jax.jit(function)(x)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.scan(lambda h, _: (h + jnp.cumsum(h * jnp.arange(N)), None), x, None, length=2)[0],
        lambda x: lax.scan(lambda c, i: (c + x[i], jnp.arange(N) * c), 0.0, jnp.arange(3)),
        lambda x: lax.fori_loop(0, 3, lambda _, h: h[::-1] + jnp.arange(N), x),
        lambda x: lax.fori_loop(0, 3, lambda _, h: jnp.abs(x[:, None] - x) @ h, x),
        lambda x: lax.fori_loop(0, 3, lambda _, h: jnp.abs(h[:, None] - h).sum(1), x),
    ],
    ids=["summed", "of each entry", "reversed", "of pairs with a carry", "of pairs in a carry"],
)
def test_a_loop_that_no_batch_passes_through_counts_for_itself(function: Callable[..., Any]) -> None:
    program, _ = lowered(function, normal(N))
    before = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque)}
    after = {term.op.call for term in with_outer_operands(program).reachable() if isinstance(term.op, Opaque)}
    assert {len(call.arg_layouts) for call in after} == {len(call.arg_layouts) for call in before}


def test_a_tree_of_each_batch_is_grown_in_chunks() -> None:
    """The trees are `(batch, nodes, 16)`; each iteration writes one node of each, chosen by a random walk."""

    def grow(values: Any, key: Any) -> Any:
        batch = jnp.arange(len(values))

        def step(tree: Any, inputs: Any) -> Any:
            key, node = inputs
            keys = jax.random.split(key, len(values))
            parent = jax.vmap(lambda key: jax.random.randint(key, (), 0, node + 1))(keys)
            return tree.at[batch, node + 1].set(jnp.tanh(tree[batch, parent] + 1)), None

        tree = jnp.zeros((len(values), 33, 16)).at[:, 0].set(values)
        return lax.scan(step, tree, (jax.random.split(key, 32), jnp.arange(32)))[0].mean((1, 2))

    values, key = normal(2000, 16), jax.random.key(0)
    optimized = eqsat.optimize(grow, budget="1MB")
    assert optimized.plan(values, key).peak_bytes <= 1_000_000 < 2000 * 33 * 16 * 4
    np.testing.assert_allclose(optimized(values, key), jax.jit(grow)(values, key), rtol=1e-5, atol=1e-6)


def test_all_pairs_of_one_batch_are_compared_in_chunks() -> None:
    """The edit distances of all pairs of strings: the tables are `(pairs, length + 1)`."""

    def distances(strings: Any) -> Any:
        count = strings.shape[1]

        def single(one: Any, other: Any) -> Any:
            def row(previous: Any, step: Any) -> Any:
                letter, number = step
                changed = jnp.minimum(previous[:-1] + (other != letter), previous[1:] + 1)
                cells = jnp.concatenate([(number + 1)[None], changed])
                return lax.cummin(cells - jnp.arange(count + 1)) + jnp.arange(count + 1), None

            return lax.scan(row, jnp.arange(count + 1), (one, jnp.arange(count)))[0][-1]

        return jax.vmap(lambda one: jax.vmap(lambda other: single(one, other))(strings))(strings)

    strings = jax.random.randint(jax.random.key(0), (150, 16), 0, 4)
    optimized = eqsat.optimize(distances, budget="1MB")
    assert optimized.plan(strings).peak_bytes <= 1_000_000 < 150 * 150 * 17 * 4
    np.testing.assert_array_equal(optimized(strings), jax.jit(distances)(strings))
