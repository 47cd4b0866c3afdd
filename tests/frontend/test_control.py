"""Control flow as calls with bodies: what they mean, and which axes pass through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from tests.control_programs import CASES
from tests.stages import check_meaning, lowered, normal, ops


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_the_bodies_mean_what_the_primitive_does(name: str) -> None:
    function, arguments = CASES[name]
    program = check_meaning(function, *arguments, rtol=1e-4)
    assert all(op.call.bodies for op in ops(program, Opaque) if op.call.control)


def passing(program: Program) -> set[int]:
    """The lengths of the axes that pass through some call of control flow."""
    calls = [op.call for inner in program.inside() for op in ops(inner, Opaque) if op.call.control]
    return {axis.size for call in calls for axis in call.passing}


def test_a_batch_of_sequences_passes_through_a_scan() -> None:
    program, _ = lowered(
        lambda xs, w: lax.scan(lambda h, x: (jnp.tanh(h @ w + x),) * 2, jnp.zeros((3, 4)), xs),
        normal(6, 3, 4),
        normal(4, 4),
    )
    assert passing(program) == {3}


def test_a_batch_that_is_summed_does_not_pass() -> None:
    program, _ = lowered(
        lambda xs: lax.scan(lambda h, x: (h + x, (h * x).sum()), jnp.zeros(3), xs), normal(6, 3)
    )
    assert passing(program) == set()


def summed(function: Callable[..., Any], *arguments: Any) -> set[int]:
    """The lengths of the axes that some control flow of the function sums over."""
    program, _ = lowered(function, *arguments)
    calls = [op.call for inner in program.inside() for op in ops(inner, Opaque) if op.call.control]
    return {axis.size for call in calls for axis in call.sums}


def test_the_gradient_by_the_weights_of_a_loop_is_a_sum_over_the_batch() -> None:
    def recurrent(w, xs):
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((3, 4)), xs)[0].sum()

    assert summed(jax.grad(recurrent), normal(4, 4), normal(6, 3, 4)) == {3}


@pytest.mark.parametrize(
    "iteration",
    [
        lambda w, x: w + (x @ w) @ x,  # what comes next depends on the sums so far
        lambda w, x: jnp.tanh(w) + x.sum(0),
        lambda w, x: w + 1.0 + x.sum(0),  # every chunk would add the one
        lambda w, x: w + x.max(0),
        lambda w, x: w * x.sum(0),
        lambda w, x: w + x[0],
    ],
)
def test_what_is_carried_and_does_not_add_up_is_not_summed_over_chunks(iteration: Callable[..., Any]) -> None:
    assert summed(
        lambda xs: lax.scan(lambda w, x: (iteration(w, x), None), jnp.zeros(4), xs), normal(6, 3, 4)
    ) <= {4}


TRIANGLE = jnp.tril(normal(4, 4)) + 3 * jnp.eye(4)

LINEAR: dict[str, Callable[..., Any]] = {
    "solve": lambda w: jnp.linalg.solve(TRIANGLE @ TRIANGLE.T, w),
    "triangular solve": lambda w: lax.linalg.triangular_solve(TRIANGLE, w[:, None], left_side=True)[:, 0],
    "gather": lambda w: w[jnp.array([3, 1, 1, 0])],
    "gather out of bounds": lambda w: w.at[jnp.array([3, 1, 9, 0])].get(mode="fill"),
    "gather zeros out of bounds": lambda w: w.at[jnp.array([3, 1, 9, 0])].get(mode="fill", fill_value=0),
    "scatter": lambda w: jnp.zeros(4).at[jnp.array([1, 1, 2, 9])].add(w),
    "concatenate": lambda w: jnp.concatenate([w[1:], jnp.zeros(1)]),
    "pad": lambda w: jnp.pad(w[:2], 1),
    "split": lambda w: w + jnp.split(w, 2)[1][0],
    "cumulative sum": jnp.cumsum,
    "dynamic slice": lambda w: lax.dynamic_slice(jnp.concatenate([w, w]), (jnp.int32(2),), (4,)),
    "dynamic update": lambda w: lax.dynamic_update_slice(w, w[:2], (jnp.int32(1),)),
    "window sum": lambda w: lax.reduce_window(w, 0.0, lax.add, (2,), (1,), "SAME"),
    "convolution": lambda w: jnp.convolve(w, jnp.arange(3.0), "same"),
    "transform": lambda w: jnp.fft.irfft(jnp.fft.rfft(w), 4),
}
"""What iterations may do with a sum so far."""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("hostile", [False, True])
def test_what_is_linear_in_a_sum_adds_up(name: str, hostile: bool) -> None:
    linear = LINEAR[name]

    def total(xs):
        return lax.scan(lambda w, x: (linear(w) + x.sum(0), None), jnp.zeros(4), xs)[0]

    xs = normal(6, 8, 4)
    assert summed(total, xs) == {8}
    if hostile:
        xs[2, 5, 1], xs[1, 0, 3], xs[4, 7, 0] = np.inf, np.nan, -0.0
    # The parts of a sum go through the whole loop, one by one.
    parts = sum(total(xs[:, start : start + 3]) for start in (0, 3, 6))
    np.testing.assert_allclose(parts, total(xs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "iteration",
    [
        lambda w: lax.linalg.triangular_solve(jnp.diag(w + 1), TRIANGLE, left_side=True)[0],
        lambda w: w.at[jnp.array([3, 1, 9, 0])].get(mode="fill", fill_value=2.0),
        lambda w: jnp.concatenate([w[1:], jnp.ones(1)]),
        lambda w: jnp.pad(w[:2], 1, constant_values=1.0),
        lambda w: lax.dynamic_update_slice(w, jnp.ones(2), (jnp.int32(1),)),
        lambda w: jnp.ones(4).at[jnp.array([1, 1, 2, 0])].add(w),
        lambda w: TRIANGLE[0][(w * 4).astype(int)],
        jnp.sort,
        jnp.cumprod,
        lambda w: w * w.sum(),
    ],
)
def test_what_is_not_linear_in_a_sum_does_not_add_up(iteration: Callable[..., Any]) -> None:
    def total(xs):
        return lax.scan(lambda w, x: (iteration(w) + x.sum(0), None), jnp.zeros(4), xs)[0]

    assert summed(total, normal(6, 8, 4)) == set()


def test_a_sum_that_starts_elsewhere_than_at_zero_is_not_summed_over_chunks() -> None:
    def total(start, xs):
        return lax.scan(lambda w, x: (w + x.sum(0), None), start, xs)[0]

    xs = normal(6, 3, 4)
    assert summed(lambda xs: total(jnp.zeros(4), xs), xs) == {3}
    assert summed(lambda xs: total(jnp.ones(4), xs), xs) == set()
    assert summed(total, normal(4), xs) == set()


def test_an_axis_that_a_loop_stacks_its_results_along_is_not_summed_over_by_it() -> None:
    """The sums of rows stand where the entries of rows do: each is of a whole row, not of a chunk of it."""

    def powers(x, weigh):
        sums = lax.scan(lambda c, row: (c, row.sum()), 0.0, x)[1]
        return weigh(sums, x).sum()

    x = normal(5, 5)
    assert summed(lambda x: powers(x, lambda sums, x: sums[:, None] * x), x) == {5}
    assert summed(lambda x: powers(x, lambda sums, x: sums[None, :] * x), x) == set()


def test_branches_that_sum_add_up_if_each_of_them_does() -> None:
    def chosen(p, x, other):
        return lax.cond(p > 0, lambda x: x.sum(0), other, x)

    x = normal(3, 4)
    assert summed(lambda p, x: chosen(p, x, lambda x: -(x**2).sum(0)), jnp.float32(1), x) == {3}
    assert summed(lambda p, x: chosen(p, x, lambda x: jnp.zeros(4)), jnp.float32(1), x) == {3}
    assert summed(lambda p, x: chosen(p, x, lambda x: jnp.ones(4)), jnp.float32(1), x) == set()


def test_what_counts_along_an_axis_keeps_it_whole() -> None:
    program, _ = lowered(
        lambda x: lax.scan(lambda h, _: (h * jnp.arange(3), None), x, None, length=2)[0], normal(3)
    )
    assert passing(program) == set()


def test_what_is_carried_to_another_place_keeps_its_axis_whole() -> None:
    program, _ = lowered(lambda x: lax.scan(lambda h, _: (h.T, None), x, None, length=3)[0], normal(3, 3))
    assert passing(program) == set()


def test_a_batch_passes_through_both_branches_of_a_choice() -> None:
    program, _ = lowered(
        lambda p, x: lax.cond(p > 0, jnp.sin, lambda x: x - x.max(1, keepdims=True), x),
        jnp.float32(1.0),
        normal(5, 3),
    )
    assert passing(program) == {5}


def test_a_known_branch_is_taken_when_planning() -> None:
    program, _ = lowered(lambda x: lax.cond(jnp.array(0) > 1, jnp.sin, jnp.cos, x), normal(3))
    assert len(ops(program, Opaque)) <= 1


def test_keys_are_carried() -> None:
    def draws(key, x):
        def iteration(key, _):
            key, now = jax.random.split(key)
            return key, jax.random.uniform(now, (2,))

        return lax.scan(iteration, key, None, length=3)[1] + x

    lowered(draws, jax.random.key(0), normal(2))


def test_a_loop_of_one_iteration_is_that_iteration() -> None:
    """`lax.map(..., batch_size=len(x))` is such a loop."""

    def step(c: Any, x: Any) -> Any:
        return c + x[0].sum(), (x[0] * c, x[1][:, None])

    program = check_meaning(
        lambda x, y: lax.scan(step, 2.0, (x, y), reverse=True), normal(1, 5), normal(1, 4)
    )
    assert not any(op.call.bodies for op in ops(program, Opaque))


def test_a_loop_of_no_iteration_is_left_as_it_is() -> None:
    check_meaning(lambda x: lax.scan(lambda c, x: (c + x, x), 2.0, x), normal(0))


def test_what_a_loop_captures_is_given_by_the_axes_that_it_has_in_the_end() -> None:
    """Tiles of the rows split their axis after the loop was lowered."""

    def total(speed: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            return state + speed * (jnp.roll(state, 1, 0) - jnp.roll(state, 1, 1)), None

        return lax.scan(step, jnp.ones((64, 64)), length=3)[0].sum()

    program = check_meaning(jax.grad(total), normal(64, 64))
    (given,) = program.inputs
    assert len(given.axes) == 3


@pytest.mark.parametrize("chosen", [0, 1, 5])
def test_a_branch_that_is_known_through_calls_is_inlined(chosen: int) -> None:
    """A choice by a constant that a `jit` is given: the index is clamped, and converted."""

    @jax.jit
    def basis(x: Any, order: Any) -> Any:
        return jax.lax.switch(order, [lambda: x, lambda: jnp.sin(x), lambda: x**2])

    @jax.jit
    def shown(x: Any, outside: Any) -> Any:
        return jax.lax.cond(jnp.logical_not(outside), lambda: x, lambda: 0 * x)

    program = check_meaning(lambda x: shown(basis(x, chosen), False), normal(7))
    assert not any(isinstance(term.op, Opaque) for term in program.reachable())


def test_a_branch_that_a_rounded_float_chooses_is_not_known() -> None:
    scaled = jax.jit(lambda share: share * 3 > 0.3)
    program, _ = lowered(lambda x: jax.lax.cond(scaled(0.1), lambda: x, lambda: 2 * x), normal(7))
    assert any(isinstance(term.op, Opaque) for term in program.reachable())
