"""Scans over segments: they mean the same as the scans that they stand for, and keep less."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
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
from eqsat.ir.ops import Call, Opaque, Operation
from eqsat.ir.program import Program
from eqsat.ir.term import Term, reachable
from eqsat.planning.rematerialisation import with_rematerialised_operands
from tests.nightly import THOROUGH
from tests.planning.test_rematerialisation import check_equalities
from tests.stages import lowered, normal
from tests.test_random_programs import UNHURRIED

ROWS, WIDTH = 3, 4


def gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    return wraps(loss)(jax.value_and_grad(loss, argnums=(0, 1)))


@gradient
def recurrent(w, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, jnp.sin(jnp.exp(h) * 0.1)

    h, out = lax.scan(step, jnp.zeros((ROWS, WIDTH)), xs)
    return h.sum() + (out**2).sum()


@gradient
def from_the_end(w, xs):
    def step(h, x):
        h = jnp.cos(jnp.exp(jnp.tanh(h @ w + x)))
        return h, None

    return lax.scan(step, jnp.ones((ROWS, WIDTH)), xs, reverse=True)[0].sum()


@gradient
def without_sequences(w, xs):
    def step(h):
        return jnp.tanh(jnp.sin(h @ w) + jnp.exp(-h * h))

    return lax.fori_loop(0, xs.shape[0], lambda _, h: step(h), xs[0]).sum()


@gradient
def checkpointed(w, xs):
    @jax.checkpoint
    def step(h, x):
        return jnp.tanh(jnp.sin(h @ w) + x), None

    return lax.scan(step, jnp.zeros((ROWS, WIDTH)), xs)[0].sum()


@gradient
def two_layers(w, xs):
    def layer(h, x):
        h = jnp.tanh(jnp.sin(h @ w) + jnp.exp(-x))
        return h, h

    zeros = jnp.zeros((ROWS, WIDTH))
    _, first = lax.scan(layer, zeros, xs)
    return lax.scan(layer, zeros, jnp.sin(first) * 2)[1].sum()


@gradient
def two_states(w, xs):
    """A wave: what is carried is the displacement now and before."""

    def step(state, x):
        now, before = state
        later = 2 * now - before + jnp.sin(now @ w) * 0.1 + x
        return (later, now), jnp.cos(later[0])

    zeros = jnp.zeros((ROWS, WIDTH))
    return lax.scan(step, (zeros, zeros), xs)[1].sum()


LOOPS = [recurrent, from_the_end, without_sequences, checkpointed, two_layers, two_states]


def segmented(program: Program, threshold: float, room: float = 0.0, exact: bool = False) -> list[Term]:
    """The results of scans over scans that the program is known to be equal to."""
    known = with_rematerialised_operands(program, threshold, room, exact)
    terms = reachable(other for _, other in known.equalities)
    return [
        term
        for term in terms
        if is_scan(term)
        and isinstance(term.op, Opaque)
        and any(is_scan(inner) for body in term.op.call.bodies for inner in body.program.reachable())
    ]


def is_scan(term: Term) -> bool:
    return isinstance(term.op, Opaque) and isinstance(term.op.call.control, Scan)


def scans(terms: Iterable[Term]) -> dict[Call, Scan]:
    calls = [term.op.call for term in terms if isinstance(term.op, Opaque)]
    return {call: call.control for call in calls if isinstance(call.control, Scan)}


@pytest.mark.parametrize("iterations", [32, 37])
@pytest.mark.parametrize("loop", LOOPS)
def test_segments_mean_the_same(loop: Callable[..., Any], iterations: int) -> None:
    args = normal(WIDTH, WIDTH), normal(iterations, ROWS, WIDTH)
    program, constants = lowered(loop, *args)
    assert check_equalities(program, [*args, *constants], 100)
    # One of the scans saves carries, and another one takes them, in the other direction.
    assert {scan.reverse for scan in scans(segmented(program, 100)).values()} == {False, True}


WITHIN: dict[str, Callable[[Any], Any]] = {
    "every fourth of a row": lambda states: states[:, 3, ::4],
    "places": lambda states: states[:, jnp.array([1, 7, 7]), jnp.array([2, 4, 11])],
    "differences": lambda states: jnp.sum((jnp.roll(states, 1, 2) - states) ** 2, (1, 2)),
    "a window after some": lambda states: jnp.sum(states[50:, 2:-2, 1:] ** 2, (1, 2)),
}


@pytest.mark.parametrize("name", WITHIN)
def test_gradients_of_what_is_read_within_states_keep_to_their_budget(name: str) -> None:
    def loss(speed: Any, source: Any) -> Any:
        def step(state: Any, push: Any) -> Any:
            now, before = state
            around = sum(jnp.roll(now, by, axis) for by in (1, -1) for axis in (0, 1)) - 4 * now
            later = jnp.tanh(2 * now - before + speed * around + push)
            return (later, now), later

        zeros = jnp.zeros(speed.shape)
        return jnp.mean((WITHIN[name](lax.scan(step, (zeros, zeros), source)[1]) - 0.1) ** 2)

    args = 0.1 + abs(normal(24, 24)) / 10, normal(200) / 100
    written = jax.jit(jax.grad(loss, (0, 1)))
    peak = written.lower(*args).compile().memory_analysis().temp_size_in_bytes
    fn = eqsat.optimize(jax.grad(loss, (0, 1)), budget=peak // 5, max_slowdown=None)
    for found, wanted in zip(fn(*args), written(*args), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6 * float(abs(wanted).max()))


def test_what_fits_is_kept() -> None:
    program, _ = lowered(recurrent, normal(WIDTH, WIDTH), normal(36, ROWS, WIDTH))
    assert segmented(program, 100)
    assert not segmented(program, 100, room=1e6)


def test_few_iterations_have_no_segments() -> None:
    program, _ = lowered(recurrent, normal(WIDTH, WIDTH), normal(31, ROWS, WIDTH))
    assert not segmented(program, 100)


def test_results_that_others_read_are_no_residuals() -> None:
    """The states are a result of the program: they are read, and not computed again."""

    def states(w, xs):
        def loss(w):
            def step(h, x):
                h = jnp.tanh(h @ w + x)
                return h, h

            hs = lax.scan(step, jnp.zeros((ROWS, WIDTH)), xs)[1]
            return (hs**2).sum(), hs

        return jax.value_and_grad(loss, has_aux=True)(w)

    args = normal(WIDTH, WIDTH), normal(36, ROWS, WIDTH)
    program, constants = lowered(states, *args)
    check_equalities(program, [*args, *constants], 100)
    whole = program.outputs[1].term
    operands = [arg for term in segmented(program, 100) for arg in term.args]
    splits = [arg for arg in operands if isinstance(arg.op, Operation) and arg.op.spec.name == "split"]
    assert any(arg.args == (whole,) for arg in splits)


def test_sums_of_segments_are_sums_over_rows() -> None:
    """A gradient that segments add up is still a sum over the rows, unless bits have to agree."""
    program, _ = lowered(recurrent, normal(WIDTH, WIDTH), normal(36, ROWS, WIDTH))
    rows = {axis for axis in program.axes() if axis.size == ROWS}

    def sums(exact: bool) -> bool:
        found = scans(segmented(program, 100, exact=exact))
        return any(rows & call.sums for call, scan in found.items() if scan.reverse)

    assert sums(exact=False)
    assert not sums(exact=True)


def long_recurrence(w, xs):
    def loss(w):
        def step(h, x):
            h = jnp.tanh(h @ w + jnp.sin(x))
            return h, None

        return jnp.mean(lax.scan(step, jnp.zeros(w.shape[0]), xs)[0] ** 2)

    return jax.value_and_grad(loss)(w)


@pytest.mark.parametrize("iterations", [1024, 997])
def test_the_gradient_of_a_long_recurrence_fits_where_no_axis_can_be_split(iterations: int) -> None:
    w, xs = normal(128, 128) * 0.1, normal(iterations, 128)
    plain = jax.jit(long_recurrence).lower(w, xs).compile().memory_analysis()
    budget = plain.argument_size_in_bytes + plain.output_size_in_bytes + plain.temp_size_in_bytes // 4
    small = eqsat.optimize(long_recurrence, budget=budget)
    assert small.plan(w, xs).peak_bytes <= budget
    for one, other in zip(long_recurrence(w, xs), small(w, xs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_residuals_that_are_as_large_as_what_layers_pass_on() -> None:
    """No cap on sizes leaves one out and not the other, yet the backward passes run segments again."""

    def train(params, x, y):
        def cell(p, state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ p[0] + h @ p[1], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        def loss(params):
            start = jnp.zeros((16, 64)), jnp.zeros((16, 64))
            _, a = lax.scan(lambda state, x: cell(params[0], state, x), start, x)
            _, a = lax.scan(lambda state, x: cell(params[1], state, x), start, a)
            return jnp.mean((a - y) ** 2)

        return jax.value_and_grad(loss)(params)

    layers = [(normal(64, 256) / 8, normal(64, 256) / 8) for _ in range(2)]
    args = layers, normal(200, 16, 64), normal(200, 16, 64)
    plain = jax.jit(train).lower(*args).compile().memory_analysis()
    budget = plain.argument_size_in_bytes + plain.output_size_in_bytes + plain.temp_size_in_bytes // 5
    plan = eqsat.optimize(train, budget=budget).plan(*args)
    assert plan.peak_bytes <= budget
    assert plan.rules_fired["rematerialised-in-loop"]
    assert "split-summing-call" not in plan.rules_fired


@settings(UNHURRIED, max_examples=10 if THOROUGH else 5)
@given(
    st.integers(32, 40),
    st.booleans(),
    st.lists(
        st.sampled_from(["jnp.tanh(h @ w)", "h * jnp.sin(x)", "jnp.exp(-h * h) + x", "h - x"]), min_size=1
    ),
    st.sampled_from(["None", "h", "jnp.sum(h, 0)", "(h * h)[0]"]),
)
def test_gradients_of_random_loops_mean_the_same(
    iterations: int, reverse: bool, lines: list[str], stacked: str
) -> None:
    source = "".join(f"    h = {line}\n" for line in lines)
    namespace: dict[str, Any] = {"jnp": jnp}
    exec(f"def step(w, h, x):\n{source}    return h, {stacked}\n", namespace)

    def loss(w, xs):
        start = jnp.full((ROWS, WIDTH), 0.5)
        h, out = lax.scan(lambda h, x: namespace["step"](w, h, x), start, xs, reverse=reverse)
        return h.sum() + (0 if out is None else jnp.sin(out).sum())

    args = normal(WIDTH, WIDTH) * 0.3, normal(iterations, ROWS, WIDTH)
    program, constants = lowered(gradient(loss), *args)
    check_equalities(program, [*args, *constants], 50)


@pytest.mark.parametrize(
    ("accuracy", "steps", "reverse", "read"),
    [
        ("reassociates", 200, False, 2),
        ("reassociates", 203, True, 2),
        ("reassociates", 203, False, 2),
        ("exact", 200, True, 2),
        ("exact", 203, False, 2),
    ],
)
def test_segments_that_run_again_end_where_they_ended(
    accuracy: Any, steps: int, reverse: bool, read: int
) -> None:
    """What follows jumps where a float is rounded otherwise: states would be others after some steps.

    XLA divided in one of the runs, and multiplied by a reciprocal in the other one, which lacked a result.
    """

    def gaps(noise: Any) -> Any:
        def step(x: Any, row: Any) -> Any:
            weights = jnp.exp(jnp.sin(x))
            after = weights * 1e4 / weights.sum() % 1 + row
            return after, (x, after, jnp.log(weights.mean()), 1 / jnp.sum(weights**2))

        def gap(later: Any, states: Any) -> Any:
            return states[0], jnp.max(jnp.abs(later - states[1]))

        last, found = lax.scan(step, jnp.ones(300), noise, reverse=reverse)
        return found[read].sum(), lax.scan(gap, last, found[:2], reverse=not reverse)[1]

    noise = normal(steps, 300)
    fn = eqsat.optimize(gaps, budget=noise.nbytes + 120_000, accuracy=accuracy)
    assert not np.any(fn(noise)[1])
