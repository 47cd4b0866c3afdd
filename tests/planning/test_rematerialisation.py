"""Loops with their large operands computed inside: in every form a loop means the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.ir.control import carried
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.planning.rematerialisation import with_rematerialised_operands
from tests.nightly import THOROUGH
from tests.program_text import ProgramText
from tests.random_control import random_loops
from tests.stages import lowered, normal
from tests.test_random_programs import UNHURRIED


def check_equalities(program: Program, arrays: list[Any], threshold: float, room: float = 0) -> int:
    """Check that all forms of the program's loops mean the same; returns how many there are."""
    known = with_rematerialised_operands(program, threshold, room)
    for whole, other in known.equalities:
        assert whole.axes == other.axes
        assert whole.dtype == other.dtype
        layout = tuple(sorted(whole.axes))
        both = replace(program, outputs=(Output(whole, layout), Output(other, layout)), facts=())
        check_program(both)
        one, another = interpret(both, arrays)
        np.testing.assert_allclose(one, another, rtol=1e-9, atol=1e-12)
    return len(known.equalities) - len(program.equalities)


def kernel(c, x, y):
    return jnp.exp(-((x[:, None] - y[None]) ** 2)) @ (y * c) / len(y)


def carries_a_number(y, xs):
    def iteration(c, x):
        k = kernel(c, x, y)
        return c * 0.9 + jnp.tanh(k).mean(), k[:3]

    c, kept = lax.scan(iteration, jnp.float32(1), xs)
    return c + kept.sum()


def from_the_end(y, xs):
    def iteration(c, x):
        return c * 0.9 + jnp.tanh(kernel(c, x, y)).mean(), None

    return lax.scan(iteration, jnp.float32(1), xs, reverse=True)[0]


def counts_turns(y, xs):
    def iteration(i, c):
        return c + kernel(c, xs[0] + i, y).mean()

    return lax.fori_loop(0, 5, iteration, jnp.float32(0.5))


def loop_in_loop(y, xs):
    def outer(c, x):
        def inner(d, _):
            return d * 0.9 + kernel(d, x, y).mean(), None

        return lax.scan(inner, c, None, length=3)[0], None

    return lax.scan(outer, jnp.float32(0.5), xs)[0]


def gated_cells(y, xs):
    def iteration(state, x):
        h, memory = state
        gates = jnp.outer(x, y[:8]) + h
        memory = jax.nn.sigmoid(gates) * memory + jnp.tanh(gates)
        return (jnp.tanh(memory), memory), memory.sum()

    zeros = jnp.zeros((xs.shape[1], 8))
    return lax.scan(iteration, (zeros, zeros), xs)[1].sum()


def one_turn(y, xs):
    return carries_a_number(y, xs[:1])


def a_batch(y, xs):
    return jax.vmap(from_the_end, (None, 0))(y, jnp.stack([xs, 2 * xs])).sum()


LOOPS = [carries_a_number, from_the_end, counts_turns, loop_in_loop, gated_cells, one_turn, a_batch]
DERIVATIVES: dict[str, Callable[..., Any]] = {
    "gradient": jax.grad,
    "the other gradient": lambda f: jax.grad(f, argnums=1),
    "product with the Hessian": lambda f: lambda y, xs: jax.jvp(lambda y: jax.grad(f)(y, xs), (y,), (y,))[1],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("fn", LOOPS, ids=lambda fn: fn.__name__)
def test_residuals_are_computed_anew_from_what_the_loop_carried(fn, derivative) -> None:
    arrays = [normal(20), normal(6, 5)]
    program, constants = lowered(DERIVATIVES[derivative](fn), *arrays)
    # A length of one leaves nothing to stack.
    assert check_equalities(program, [*arrays, *constants], 100) > 0 or fn is one_turn


def test_the_same_call_has_the_same_number_whatever_else_a_program_knows() -> None:
    """Terms of one program are put into another that knows more."""

    def numbered(program: Program) -> dict[int, Any]:
        known = with_rematerialised_operands(program, 100)
        calls = [term.op.call for term in known.known() if isinstance(term.op, Opaque)]
        assert len({call.id: call for call in calls}) == len(dict.fromkeys(calls))
        return {call.id: call for call in calls}

    def both(y: Any, xs: Any) -> Any:
        return carries_a_number(y, xs) + from_the_end(y, 2 * xs)

    program, _ = lowered(jax.grad(both), normal(20), normal(6, 5))
    loops = [t for t in program.reachable() if isinstance(t.op, Opaque) and t.op.call.control is not None]
    more = replace(
        program, equalities=tuple((loop, loop) for loop in reversed(loops)), outputs=program.outputs
    )
    fewer = replace(program, outputs=program.outputs[-1:], facts=())
    first, *others = (numbered(one) for one in (fewer, program, more))
    assert len(first) > 2
    for other in others:
        assert all(other[number] == first[number] for number in other.keys() & first.keys())


@settings(UNHURRIED, max_examples=60 if THOROUGH else 30)
@given(random_loops(), st.integers(0, 3))
def test_random_loops_mean_the_same_in_every_form(program: ProgramText, seed: int) -> None:
    arrays = program.arrays(seed)
    function = program.function()
    floats = tuple(number for number, array in enumerate(arrays) if array.dtype == np.float32)

    def total(*values: Any) -> Any:
        results = function(*values)
        return sum(jnp.sum(jnp.sin(r)) for r in results if jnp.issubdtype(r.dtype, jnp.floating))

    fn = jax.grad(total, argnums=floats) if floats else total
    lowered_program, constants = lowered(fn, *arrays)
    check_equalities(lowered_program, [*arrays, *constants], 64)


def test_a_scan_that_stacks_what_it_carries_stacks_nothing_large() -> None:
    arrays = [normal(20), normal(6, 5)]
    program, _ = lowered(jax.grad(carries_a_number), *arrays)
    known = with_rematerialised_operands(program, 100)
    (lean,) = {
        other.op.call
        for whole, other in known.equalities
        if isinstance(whole.op, Opaque) and isinstance(other.op, Opaque) and whole.args == other.args
    }
    first = len(carried(lean.control))
    assert all(np.prod([axis.size for axis in layout]) <= 6 * 5 for layout in lean.out_layouts[first:])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("fn", [loop_in_loop, carries_a_number], ids=lambda fn: fn.__name__)
def test_the_gradient_of_a_loop_keeps_no_residuals_that_do_not_fit(fn) -> None:
    y, xs = normal(800), normal(30, 60)
    gradient = jax.grad(fn)
    small = eqsat.optimize(gradient, budget="800kB")  # 5.8 MB for each residual
    plan = small.plan(y, xs)
    assert plan.original_peak_bytes > 5_800_000
    assert plan.rules_fired["rematerialised-in-loop"] >= 1
    np.testing.assert_allclose(small(y, xs), gradient(y, xs), rtol=1e-4, atol=1e-4)


def test_residuals_that_fit_are_kept() -> None:
    plan = eqsat.optimize(jax.grad(carries_a_number), budget="100MB").plan(normal(800), normal(30, 60))
    assert "rematerialised-in-loop" not in plan.rules_fired


def test_of_two_matrices_that_do_not_fit_together_one_is_kept() -> None:
    """To compute both in every iteration would take much longer; the product of factors is cheap there."""

    def smoothed(x: Any, root: Any, v: Any) -> Any:
        kernel = jnp.exp(-jnp.abs(x[:, None] - x[None]).sum(-1))
        product = jnp.eye(len(v)) - root @ root.T
        return lax.fori_loop(0, 30, lambda _, v: product @ (kernel @ v) / len(v), v)

    arrays = [normal(30, 3), normal(30, 3, seed=1), normal(30)]
    program, constants = lowered(smoothed, *arrays)
    values = [*arrays, *constants]
    assert check_equalities(program, values, 1000, room=2 * 4 * 30**2) == 1, "there is room for both"
    assert check_equalities(program, values, 1000, room=1.5 * 4 * 30**2) == 3
    x, root, v = normal(2000, 3), normal(2000, 3, seed=1) / 50, normal(2000)
    optimized = eqsat.optimize(smoothed, budget="24MB")
    assert 4 * 2000**2 < optimized.plan(x, root, v).peak_bytes <= 24e6
    np.testing.assert_allclose(optimized(x, root, v), smoothed(x, root, v), rtol=1e-3)


def test_loops_over_repeated_rows_are_planned():
    # Inside the loop, the two copies of an entry are an axis that no value has.
    def row_ranges(x):
        kernel = jnp.exp(-jnp.abs(x[:, None] - x))
        return lax.map(lambda row: (row[:, None] - row).max(1), jnp.repeat(kernel, 2, 1))

    x = normal(130)
    optimized = eqsat.optimize(row_ranges, budget="300kB")
    assert optimized.plan(x).changed
    np.testing.assert_allclose(optimized(x), row_ranges(x), rtol=1e-5)


def test_residuals_are_computed_anew_with_what_is_the_same_in_every_iteration() -> None:
    """A scan that is given one value for all iterations, as OTT's Sinkhorn iterations are."""

    def loss(y: Any, xs: Any) -> Any:
        def iteration(c: Any, inputs: Any) -> Any:
            x, weight = inputs
            return c * 0.9 + jnp.tanh(jnp.sin(x[:, None] * c * y) * weight).mean(), None

        return lax.scan(iteration, jnp.float32(1), (xs, jnp.full(len(xs), 2.0)))[0]

    gradient = jax.grad(loss)
    program, constants = lowered(gradient, normal(20), normal(6, 5))
    assert check_equalities(program, [normal(20), normal(6, 5), *constants], 100) > 0
    y, xs = normal(800), normal(30, 60)
    small = eqsat.optimize(gradient, budget="800kB")
    assert small.plan(y, xs).rules_fired["rematerialised-in-loop"] >= 1
    np.testing.assert_allclose(small(y, xs), gradient(y, xs), rtol=1e-4, atol=1e-4)


def test_a_value_computed_inside_a_loop_has_the_forms_that_it_has_outside() -> None:
    """A diagonal is written by a scatter, which needs rows whole; as a choice by index, it does not.

    With the scatter alone, a chunk of columns of the transposed matrix would need all of it computed.
    """

    def iterated(x: Any, v: Any) -> Any:
        k = jnp.exp(-jnp.sum((x[:, None] - x[None]) ** 2, -1))
        k = k.at[jnp.diag_indices(len(x))].set(0)
        k = k / (1 + jnp.abs(x[:, :1]))
        return lax.fori_loop(0, 5, lambda _, v: (k + k.T) @ v / len(v), v)

    x, v = normal(1500, 3), normal(1500)
    optimized = eqsat.optimize(iterated, budget="1MB")
    assert optimized.plan(x, v).peak_bytes <= 1_000_000
    np.testing.assert_allclose(optimized(x, v), jax.jit(iterated)(x, v), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batches", [lambda x, i: x[i], lambda x, i: x[i.reshape(-1)].reshape(*i.shape, -1)])
def test_an_iteration_gathers_its_rows(batches: Callable[[Any, Any], Any]) -> None:
    """Shuffled minibatches are a copy of all data, of which an iteration needs its own rows."""
    x, w = normal(20_000, 16), normal(16)
    order = np.random.default_rng(0).permutation(20_000).astype(np.int32).reshape(20, 1000)

    def epoch(w: Any, x: Any, order: Any) -> Any:
        def step(w: Any, rows: Any) -> Any:
            return w - 0.1 * jax.grad(lambda w: (jnp.tanh(rows @ w) ** 2).mean())(w), None

        return lax.scan(step, w, batches(x, order))[0]

    fixed = x.nbytes + order.nbytes + 2 * w.nbytes
    optimized = eqsat.optimize(epoch, budget=fixed + x.nbytes // 8)
    np.testing.assert_allclose(optimized(w, x, order), jax.jit(epoch)(w, x, order), rtol=1e-4, atol=1e-6)


def test_an_iteration_computes_its_row_of_what_a_call_makes() -> None:
    """No row of a cumulative sum depends on another."""
    x = normal(1500, 3)

    def smoothed(x: Any) -> Any:
        sums = jnp.cumsum(jnp.exp(-jnp.abs(x @ x.T)), axis=1)
        return lax.scan(lambda c, row: (0.9 * c + row[-5:], row.max()), jnp.zeros(5), sums)

    optimized = eqsat.optimize(smoothed, budget="1MB")
    for got, wanted in zip(optimized(x), jax.jit(smoothed)(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_minibatches_of_a_table_that_takes_as_much_are_gathered_one_by_one() -> None:
    """Beside the table, which is there all the time, there is no room for all minibatches."""
    xs, order = normal(64, 600, 12), np.random.default_rng(1).permutation(64 * 600).astype(np.int32)
    orders = np.stack([order, order[::-1]]).reshape(2, 4, -1)

    def trained(xs: Any, orders: Any) -> Any:
        _, table = lax.scan(lambda c, x: (0.9 * c + x, c), jnp.zeros((600, 12)), xs)
        table = table.reshape(-1, 12)

        def step(w: Any, rows: Any) -> Any:
            return w - 0.1 * jax.grad(lambda w: (jnp.tanh(rows @ w) ** 2).mean())(w), None

        return lax.scan(lambda w, i: (lax.scan(step, w, table[i])[0], None), jnp.ones(12), orders)[0]

    fixed = xs.nbytes + orders.nbytes
    optimized = eqsat.optimize(trained, budget=fixed + int(1.6 * xs.nbytes))
    np.testing.assert_allclose(optimized(xs, orders), jax.jit(trained)(xs, orders), rtol=1e-4)


def test_what_a_loop_gives_is_not_computed_in_each_iteration_of_another() -> None:
    """The state is small, and the second loop takes it: it computes the matrix that it reads of that."""

    def centred(x: Any, ys: Any) -> Any:
        mean = lax.scan(lambda s, y: (s + jnp.sin(s * y.sum()), None), x, ys)[0]
        matrix = jnp.tanh(x[:, None] - mean)
        return lax.scan(lambda v, y: (jnp.cos(matrix @ v), None), ys[0], ys)[0]

    x, ys = normal(300), normal(4, 300)
    program, constants = lowered(centred, x, ys)
    assert check_equalities(program, [x, ys, *constants], 1000)
    forms = [form.op for _, form in with_rematerialised_operands(program, 1000).equalities]
    bodies = [body.program for op in forms if isinstance(op, Opaque) for body in op.call.bodies]
    inside = [term.op for body in bodies for term in body.reachable()]
    assert bodies
    assert not any(isinstance(op, Opaque) and op.call.control is not None for op in inside)
