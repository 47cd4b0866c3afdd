"""What nothing reads of a loop or a choice leaves it; all else stays, and has the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.ir.control import Control, Scan, Switch, While
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from eqsat.ir.unused_results import without_unused_results
from tests.random_control import random_loops
from tests.stages import lowered, normal

X = normal(6, 5)


def calls(program: Program, kind: type[Control]) -> Iterator[Call]:
    """Yields the calls of a kind of control flow, outer before inner."""
    seen = set()
    for part in program.inside():
        for term in part.reachable():
            op = term.op
            if isinstance(op, Opaque) and isinstance(op.call.control, kind) and op.call.id not in seen:
                seen.add(op.call.id)
                yield op.call


def trimmed(fn: Callable[..., Any], *args: Any, keep: Sequence[int] | None = None) -> Program:
    """Lowers a function, trims its program, and checks that this means the same."""
    program, constants = lowered(fn, *args)
    if keep is not None:
        program = replace(program, outputs=tuple(program.outputs[number] for number in keep))
    fewer, replaced = without_unused_results(program)
    check_program(fewer)
    for output in program.outputs:
        assert output.term.number in replaced
    arrays = [*jax.tree.leaves(args), *constants]
    for before, after in zip(interpret(program, arrays), interpret(fewer, arrays), strict=True):
        np.testing.assert_array_equal(before, after)
    return fewer


def statistics(x: Any) -> Any:
    """The final sum, of a scan that has a maximum besides, and stacks the sines and all sums."""

    def step(carry: Any, row: Any) -> Any:
        total, largest = carry
        return (total + row, jnp.maximum(largest, row * total)), (jnp.sin(row), total)

    return lax.scan(step, (jnp.zeros(5), jnp.zeros(5)), x)


def test_a_scan_keeps_the_carry_and_what_is_stacked_that_is_read() -> None:
    (call,) = calls(trimmed(lambda x: statistics(x)[0][0], X), Scan)
    assert call.control is not None
    assert len(call.out_layouts) == 1
    (call,) = calls(trimmed(lambda x: statistics(x)[1][0], X), Scan)
    assert isinstance(call.control, Scan)
    assert (call.control.carried, len(call.out_layouts)) == ((), 1)


def test_a_carry_that_another_one_needs_stays() -> None:
    (call,) = calls(trimmed(lambda x: statistics(x)[0][1], X), Scan)
    assert isinstance(call.control, Scan)
    assert len(call.control.carried) == 2
    assert len(call.out_layouts) == 2


def test_operands_that_nothing_reads_any_more_are_not_computed() -> None:
    def program(x: Any) -> Any:
        table = jnp.exp(x @ x.T)
        return lax.scan(lambda c, row: (c + row.sum(), row @ table), 0.0, x @ x.T)[0]

    found = trimmed(program, X)
    assert "exp" not in {getattr(term.op, "name", "") for term in found.reachable()}


def test_a_while_loop_keeps_what_its_condition_reads() -> None:
    def program(x: Any) -> Any:
        def step(state: Any) -> Any:
            count, y, z = state
            return count + 1, jnp.cos(y), jnp.sin(z) + y

        return lax.while_loop(lambda state: state[0] < 3, step, (0, x, x))[1]

    (call,) = calls(trimmed(program, X), While)
    assert isinstance(call.control, While)
    assert len(call.control.carried) == 2


def test_a_choice_keeps_the_results_that_are_read() -> None:
    def program(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: (x + 1, jnp.sin(x)), lambda x: (x, jnp.cos(x)), x)[0]

    (call,) = calls(trimmed(program, np.bool_(True), X), Switch)
    assert len(call.out_layouts) == 1


def test_loops_inside_of_loops_are_looked_at_too() -> None:
    def program(x: Any) -> Any:
        return lax.scan(lambda c, row: (statistics(x * row)[0][0] + c, statistics(x)[1][1]), jnp.zeros(5), x)[
            0
        ]

    outer, inner = calls(trimmed(program, X), Scan)
    assert (len(outer.out_layouts), len(inner.out_layouts)) == (1, 1)


def test_what_is_all_read_stays_as_it_is() -> None:
    program = trimmed(statistics, X)
    (call,) = calls(program, Scan)
    assert len(call.out_layouts) == 4
    assert without_unused_results(program)[0] is program


@settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))
@given(random_loops(), st.data())
def test_random_loops_without_some_of_their_results_mean_the_same(program: Any, data: st.DataObject) -> None:
    count = len(program.outputs)
    keep = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=count, unique=True))
    arrays = program.arrays(np.random.default_rng(0))
    trimmed(program.function(), *arrays, keep=keep)


@pytest.mark.parametrize("length", [0, 1])
def test_short_loops(length: int) -> None:
    trimmed(lambda x: statistics(x[:length])[0][0], X)


def saving(y: Any, times: Any) -> Any:
    """A solver that saves its state at given times: in every step, an inner loop saves what is due."""

    def save(state: Any) -> Any:
        time, y, saved, count = state
        return time, y, saved.at[count].set(y), count + 1

    def step(state: Any) -> Any:
        time, y, saved, count = state
        state = time + 0.1, jnp.sin(1.1 * y), saved, count
        return lax.while_loop(lambda s: (s[3] < len(times)) & (times[s[3]] <= s[0]), save, state)

    start = 0.0, y, jnp.full((len(times), *y.shape), jnp.inf), 0
    return lax.while_loop(lambda s: s[0] < times[-1], step, start)


def test_inner_loops_need_what_the_results_that_are_read_need() -> None:
    """That a loop counts what it saves needs nothing of what is saved."""
    fewer = trimmed(lambda y, times: saving(y, times)[3], X, jnp.linspace(0.0, 3.0, 7))
    outer, inner = calls(fewer, While)
    assert {layout for call in (outer, inner) for layout in call.out_layouts} == {()}


def test_batches_of_solvers_that_check_how_they_ended_keep_to_their_budget() -> None:
    """Whether all went well is one number for all: it would take another run that saves all states."""

    def mean(ys: Any, times: Any) -> Any:
        def one(y: Any) -> Any:
            _, _, saved, count = saving(y, times)
            saved = lax.cond(count < len(times), lambda s: s * jnp.nan, lambda s: s, saved)
            return jnp.mean(saved**2, 0)

        return jax.vmap(one)(ys)

    args = normal(128, 16), jnp.linspace(0.0, 10.0, 400)
    memory = jax.jit(mean).lower(*args).compile().memory_analysis()
    fixed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    small = eqsat.optimize(mean, budget=fixed + memory.temp_size_in_bytes // 8, max_slowdown=None)
    np.testing.assert_allclose(small(*args), jax.jit(mean)(*args), rtol=1e-5)
