"""Loops whose iterations need nothing of each other are known as batches, too: both forms mean the same."""

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
from eqsat.ir.exact_forms import is_batched
from eqsat.ir.interpret import interpret
from eqsat.ir.lean_loops import with_lean_loops
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term
from tests.stages import lowered, normal


def batches(program: Program) -> list[tuple[Term, Term]]:
    return [pair for pair in program.equalities if is_batched(pair[0])]


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


def gradients(x: Any, y: Any) -> Any:
    """Every iteration of the derivative adds to that by y."""
    return jax.grad(lambda y: rows(x, y).sum() + from_the_end(x, y)[1].max())(y)


def added_up(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, row: (c + jnp.sin(row) @ y.T - 0.5, row * 2), jnp.zeros(7), x)


def counted(x: Any, y: Any) -> Any:
    return lax.fori_loop(3, 9, lambda i, c: c + jnp.sin(x[i] * i), jnp.full(3, 0.5))


def extremes_of_blocks(x: Any, y: Any) -> Any:
    def more(i: Any, c: Any) -> Any:
        block = lax.dynamic_slice_in_dim(x, 3 * i, 3)
        return {
            "max": jnp.maximum(c["max"], block.max(0)),
            "min": jnp.minimum(block[0], c["min"]),
            "any": c["any"] | (block > 1),
            "all": jax.jit(jnp.logical_and)(c["all"], block.sum() < 3),
        }

    start = {"max": x[0], "min": x[1], "any": jnp.zeros((3, 3), bool), "all": True}
    return lax.fori_loop(0, 3, more, start)


def whole_numbers(x: Any, y: Any) -> Any:
    """Sums of integers are exact, whatever they start from; the flag stays as it is."""
    start = (jnp.round(x[0] * 9).astype(int), x[1, 0] > 0)
    return lax.scan(
        lambda c, row: ((c[0] - jnp.round(row * c[1]).astype(int), c[1]), None), start, x, reverse=True
    )


def complex_sums(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, row: (c + jnp.exp(1j * row), None), jnp.zeros(3, complex), x)[0]


def from_the_last(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, row: (c + 1, row * c), 2, x, reverse=True)


def drawn(impl: str) -> Callable[..., Any]:
    def noise(x: Any, y: Any) -> Any:
        keys = jax.random.split(jax.random.key(0, impl=impl), len(x))
        return lax.map(lambda key: jax.random.normal(key, (30,)).sum(), keys)

    return noise


def drawn_from_words(x: Any, y: Any) -> Any:
    words = jnp.arange(4 * len(x), dtype=jnp.uint32).reshape(-1, 4)
    return lax.map(lambda word: lax.rng_bit_generator(word, (30,), jnp.uint32)[1].max(), words)


@jax.custom_batching.custom_vmap
def doubled(x: Any) -> Any:
    return 2 * x


@doubled.def_vmap
def _otherwise(size: int, batched: list[bool], x: Any) -> Any:
    return 2.5 * x, True


BATCHES = [
    rows,
    nested,
    of_itself,
    in_batches,
    from_the_end,
    solved,
    gradients,
    added_up,
    counted,
    extremes_of_blocks,
    whole_numbers,
    complex_sums,
    from_the_last,
    drawn("threefry2x32"),
]

LOOPS: list[Callable[..., Any]] = [
    lambda x, y: lax.scan(lambda c, row: (c + row, c), jnp.zeros(3), x),
    lambda x, y: lax.scan(lambda c, row: (c + row * c, row), jnp.zeros(3), x),
    lambda x, y: lax.scan(lambda c, row: (0.5 * c + row, row), jnp.zeros(3), x),
    lambda x, y: lax.scan(lambda c, row: (jnp.maximum(c, 0) + row, row), jnp.zeros(3), x),
    lambda x, y: lax.scan(lambda c, row: (row - c, row), jnp.zeros(3), x),
    lambda x, y: lax.scan(lambda c, row: (2.0, row * c), 1.0, x),
    lambda x, y: lax.scan(lambda c, row: (row, row), jnp.zeros(3), x),
    lambda x, y: lax.scan(lambda c, row: (jnp.sin(row), row), jnp.zeros(3), x),
    lambda x, y: lax.scan(lambda c, row: ((c[1], c[0] + row), row), (y[0], jnp.zeros(3)), x),
    lambda x, y: lax.scan(lambda c, row: ((c[0] + row, c[0] + c[1]), row), (y[0], jnp.zeros(3)), x),
    lambda x, y: lax.fori_loop(0, 9, lambda i, c: c + x[jnp.argmax(c)], jnp.zeros(3)),
    lambda x, y: lax.map(lambda row: lax.cond(row[0] > 0, jnp.sin, jnp.cos, row), x),
    lambda x, y: lax.map(lambda row: lax.while_loop(lambda r: r.sum() < 9, lambda r: r + 1, row), x),
]

OTHERWISE: list[Callable[..., Any]] = [
    drawn("rbg"),
    drawn("unsafe_rbg"),
    drawn_from_words,
    lambda x, y: lax.map(doubled, x),
    lambda x, y: lax.map(lambda row: jax.pure_callback(np.sort, row, row, vmap_method="expand_dims"), x),
]


@pytest.mark.parametrize("fn", BATCHES)
def test_a_batch_is_what_the_loop_stacks(fn: Callable[..., Any]) -> None:
    x, y = normal(9, 3), normal(7, 3)
    program, constants = lowered(fn, x, y)
    assert batches(program)
    for stacked, batch in batches(program):
        layout = tuple(sorted(stacked.axes))
        both = replace(program, outputs=(Output(stacked, layout), Output(batch, layout)), facts=())
        check_program(both)
        np.testing.assert_allclose(*interpret(both, [x, y, *constants]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fn", LOOPS)
def test_loops_that_need_former_iterations_or_branch_are_no_batches(fn: Callable[..., Any]) -> None:
    program, _ = lowered(fn, normal(9, 3), normal(7, 3))
    assert not batches(program)


@pytest.mark.parametrize("fn", OTHERWISE)
def test_loops_stay_loops_where_a_batch_is_another_function(fn: Callable[..., Any]) -> None:
    """From a batch of its keys, this generator draws other numbers than from each; functions may say more."""
    program, _ = lowered(fn, normal(9, 3), normal(7, 3))
    assert not batches(program)


def test_sums_that_start_from_data_stay_loops() -> None:
    """They would be 0 where all is -0, and the loop gives -0."""
    nothing = np.full((9, 3), -0.0, np.float32)

    def summed(x: Any, start: Any) -> Any:
        return lax.scan(lambda c, row: (c + row, None), start, x)[0]

    for start in (lambda x: x[0], lambda x: jnp.full(3, -0.0)):
        program, _ = lowered(lambda x, start=start: summed(x, start(x)), nothing)
        assert not batches(program)
        optimized = eqsat.optimize(lambda x, start=start: summed(x, start(x)), budget="1MB")
        assert np.signbit(optimized(nothing)).all()


def test_gradients_of_mapped_functions_are_chunked_as_those_of_batches() -> None:
    """One loop over chunks computes a loss and its gradient, where thousands of iterations did, twice."""
    x, y = normal(1500, 4), normal(1000, 4)

    def loss(y: Any, x: Any) -> Any:
        return lax.map(lambda row: jnp.log(0.1 + jnp.exp(-((row - y) ** 2).sum(-1)).sum()), x).mean()

    optimized = eqsat.optimize(jax.value_and_grad(loss), budget="1MB")
    plan = optimized.plan(y, x)
    assert plan.peak_bytes <= 1_000_000
    assert "length=1500" not in plan.source
    for ours, theirs in zip(optimized(y, x), jax.jit(jax.value_and_grad(loss))(y, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)


def test_what_a_loop_stacks_is_reduced_as_a_batch_too() -> None:
    x, y = normal(9, 3), normal(7, 3)
    program, constants = lowered(lambda x, y: rows(x, y).sum(0), x, y)
    lean = with_lean_loops(program)
    ((total, batch),) = (pair for pair in lean.equalities if pair[0] is lean.outputs[0].term)
    assert batch is not total
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
