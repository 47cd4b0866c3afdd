"""A scan that goes through what another one stacks runs in it, and gives the same, bit for bit."""

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
from eqsat.ir.control import Scan
from eqsat.ir.fused_scans import with_fused_scans
from eqsat.ir.interpret import interpret
from eqsat.ir.lean_loops import with_lean_loops
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from tests.ir.test_carried_histories import stacked
from tests.stages import before_and_after, lowered, normal

STEPS, WIDTH = 30, 5
X, W = normal(STEPS, WIDTH), normal(WIDTH, WIDTH)


def scans(program: Program) -> int:
    """The number of scans that a program runs."""
    calls = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque)}
    return sum(isinstance(call.control, Scan) for call in calls)


def layer(x: Any, weight: Any = 1.0, reverse: bool = False) -> tuple[Any, Any]:
    def step(state: Any, row: Any) -> tuple[Any, Any]:
        state = jnp.sin(weight * state + row)
        return state, state

    return lax.scan(step, jnp.zeros(x.shape[1:], x.dtype), x, reverse=reverse)


def two_results(x: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        state = state * 0.5 + row
        return state, (jnp.cos(state), state > row)

    return lax.scan(step, jnp.zeros(WIDTH), x)


def filtered(x: Any) -> Any:
    values, signs = two_results(x)[1]

    def step(carry: Any, given: Any) -> Any:
        count, total = carry
        value, sign, row, number = given
        return (count + sign, total + value * row), (number * count, total)

    start = jnp.zeros(WIDTH, jnp.int32), jnp.zeros(WIDTH)
    return lax.scan(step, start, (values, signs, x * 2, jnp.arange(STEPS)))


def of_two_functions(x: Any) -> Any:
    """Both read the same row, of which all iterations have all."""
    values, signs = two_results(x)[1]

    def step(total: Any, given: Any) -> Any:
        return jnp.sin(total) + given[0] - given[1], None

    return lax.scan(step, jnp.zeros(WIDTH), (values * x[3], jnp.where(signs, x[3], 0.5)))[0]


def products_of_matrices(x: Any) -> Any:
    """Both scans contract the same axes in their bodies."""

    def step(state: Any, row: Any) -> Any:
        state = jnp.tanh(state @ W + row)
        return state, state

    first = lax.scan(step, jnp.zeros((3, WIDTH)), jnp.broadcast_to(x[:, None], (STEPS, 3, WIDTH)))[1]
    return lax.scan(step, jnp.ones((3, WIDTH)), first)[1][-1]


def of_integers(x: Any) -> Any:
    bits = (x * 100).astype(jnp.int32)
    first = lax.scan(lambda s, b: (s * 31 + b, s ^ b), jnp.int32(7), bits[:, 0])[1]
    return lax.scan(lambda s, b: (s * 33 + b, s), jnp.int32(3), first)


# How many scans are left, and how many results these stack.
FUSED: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "two layers": (lambda x: layer(layer(x)[1])[0], 1, 0),
    "of which all is read": (lambda x: layer(layer(x)[1]), 1, 1),
    "three layers": (lambda x: layer(layer(layer(x)[1], 0.5)[1], 2.0)[0], 1, 0),
    "functions between": (lambda x: layer(jnp.exp(layer(x)[1]) * x[0] - x, x[3])[0], 1, 0),
    "the first one's last state": (lambda x: (lambda last, all: (layer(all)[0], last))(*layer(x)), 1, 0),
    "in reverse": (lambda x: layer(layer(x, reverse=True)[1], reverse=True)[0], 1, 0),
    "of two results and rows": (filtered, 1, 2),
    "of functions of two results": (of_two_functions, 1, 0),
    "of which one is read": (lambda x: layer(two_results(x)[1][0])[0], 1, 0),
    "products of matrices": (products_of_matrices, 1, 0),
    "integers": (of_integers, 1, 1),
    "two that read one": (lambda x: (lambda h: (layer(h)[0], layer(h * 2)[0]))(layer(x)[1]), 1, 0),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_scan_over_what_another_one_stacks_runs_in_it(name: str) -> None:
    function, left, stacks = FUSED[name]
    _, found = before_and_after(with_fused_scans, jax.jit(function), X)
    assert scans(found) == left
    assert stacked(with_lean_loops(found)) == stacks


def doubled(x: Any) -> Any:
    values = layer(x)[1] * 3 + x
    return layer(values)[0], jnp.sum(values == values.max(0), 0)


APART: dict[str, Callable[[Any], Any]] = {
    "begins with the first one's last state": lambda x: (
        lambda last, all: lax.scan(lambda s, r: (jnp.sin(s + r), None), last, all)[0]
    )(*layer(x)),
    "needs the mean of all": lambda x: (lambda h: layer(h - h.mean(0))[0])(layer(x)[1]),
    "in the other direction": lambda x: layer(layer(x)[1], reverse=True)[0],
    "of some": lambda x: layer(layer(x)[1][1:])[0],
    "of other iterations": lambda x: layer(layer(x)[1][::-1])[0],
    "sorted": lambda x: layer(jnp.sort(layer(x)[1], 0))[0],
    "of which each iteration is a result": lambda x: lax.map(lambda row: jnp.sort(row), x.repeat(2, 1)),
    "that is a result": lambda x: (lambda h: (layer(h)[0], h))(layer(x)[1]),
    "that is read whole as well": lambda x: (lambda h: (layer(h)[0], jnp.sort(h, 0)))(layer(x)[1]),
    "a function of which is compared": doubled,
    "small": lambda x: layer(layer(x[:, :1])[1] * jnp.ones(20))[0] + (x[:, :, None] * x[:, None]).sum(),
}


@pytest.mark.parametrize("name", APART)
def test_other_scans_stay_apart(name: str) -> None:
    program, _ = lowered(jax.jit(APART[name]), X)
    assert scans(with_fused_scans(program)) == scans(program)


def test_backward_passes_of_layers_are_fused_too() -> None:
    """They read what the forward passes stack, which stay apart, for a function of it is read."""
    gradient = jax.jit(jax.grad(lambda x: layer(jnp.sin(layer(x)[1]))[0].sum()))
    before, after = before_and_after(with_fused_scans, gradient, X)
    assert (scans(before), scans(after)) == (4, 3)


NUMBERS = st.floats(width=32)


@given(st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=4, max_size=4), st.sampled_from([*FUSED]))
@settings(max_examples=60, derandomize=True)
def test_all_numbers_stay_the_same(rows: list[list[float]], name: str) -> None:
    """Infinities and NaN pass from one scan to the other as they passed before."""
    x = np.resize(np.float32(rows), X.shape)
    program, constants = lowered(jax.jit(FUSED[name][0]), x)
    found = with_fused_scans(program)
    check_program(found)
    with np.errstate(all="ignore"):
        both = interpret(program, [x, *constants]), interpret(found, [x, *constants])
    for before, after in zip(*both, strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_layers_of_a_recurrent_network_stack_nothing() -> None:
    steps, batch, width = 301, 16, 64
    frequencies = np.linspace(1, 3, batch * width, dtype="float32").reshape(batch, width)

    def layer(weight: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            state = jnp.tanh(state @ weight + x)
            return state, state

        return lax.scan(step, jnp.zeros((batch, width)), x)[1]

    def network(first: Any, second: Any, times: Any) -> Any:
        states = layer(second, layer(first, jnp.sin(times[:, None, None] * frequencies)))
        return states[-1], states.mean(0)

    args = (
        normal(width, width) / 8,
        normal(width, width, seed=1) / 8,
        np.linspace(0, 9, steps, dtype="float32"),
    )
    plain = jax.jit(network)
    found = eqsat.optimize(network, budget="150KB")
    assert plain.lower(*args).compile().memory_analysis().temp_size_in_bytes > 2_000_000
    assert found.plan(*args).peak_bytes <= 150_000
    for one, other in zip(found(*args), plain(*args), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
