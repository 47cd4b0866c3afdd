"""Parts: where programs are cut, what the parts compute, and that their programs make up the whole one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.ir.interpret import interpret
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from eqsat.planning.candidates import as_written
from eqsat.planning.part_search import searched_by_parts
from eqsat.planning.parts import joined, parts_of
from eqsat.planning.search_space import free_bytes
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal

N = 32
PAIRS = normal(N, N, 4)
WEIGHTS = normal(4, 64), normal(64, 4)
SMALL = PAIRS.nbytes


def rows(z: Any) -> Any:
    scores = jnp.einsum("ijc,ikc->ijk", z, z)
    return z + jnp.einsum("ijk,ikc->ijc", jax.nn.softmax(scores, axis=-1), z)


def columns(z: Any) -> Any:
    scores = jnp.einsum("jic,kic->jki", z, z)
    return z + jnp.einsum("jki,kic->jic", jax.nn.softmax(scores, axis=1), z)


def hidden(z: Any) -> Any:
    return z + jax.nn.relu(z @ WEIGHTS[0]) @ WEIGHTS[1]


def blocks(z: Any) -> Any:
    """Three blocks, of which each can be split along axes along which another can't."""
    return hidden(columns(rows(z)))


def forward_and_back(z: Any) -> Any:
    """The backward pass reads what the forward pass computes: the large values are computed again."""
    return jax.grad(lambda z: jnp.sum(rows(rows(rows(z))) ** 2))(z)


def two_streams(z: Any) -> tuple[Any, Any]:
    first = columns(rows(z))
    return first, hidden(first + rows(jnp.sin(z)))


def returned_as_it_is(z: Any) -> tuple[Any, Any, Any]:
    first = rows(z)
    return z, first, first.T + jnp.sum(columns(first))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    function.__name__: function for function in (blocks, forward_and_back, two_streams, returned_as_it_is)
}


def program_of(fn: Callable[..., Any], *args: Any) -> Program:
    return lowered(fn, *args)[0]


def constants_of(fn: Callable[..., Any], *args: Any) -> list[Any]:
    return lowered(fn, *args)[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_put_together_compute_the_same(name: str) -> None:
    program, constants = lowered(PROGRAMS[name], PAIRS)
    parts = parts_of(program, 6 * SMALL)
    assert len(parts) > 1
    known: set[int] = set()
    for part in parts:
        assert {number for _, number in part.reads} <= known, "a part reads only what earlier ones keep"
        known.update(part.kept)
    again, _ = joined(program, parts, [part.program for part in parts], [{} for _ in parts])
    check_program(again)
    for found, wanted in zip(
        interpret(again, [PAIRS, *constants]), interpret(program, [PAIRS, *constants]), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_blocks_are_cut_apart_between_which_little_is_alive() -> None:
    parts = parts_of(program_of(blocks, PAIRS), 4 * SMALL)
    assert len(parts) == 3
    assert all(output.bytes <= SMALL for part in parts for output in part.program.outputs)


def test_what_is_too_large_to_keep_is_computed_again() -> None:
    program = program_of(forward_and_back, PAIRS)
    parts = parts_of(program, 12 * SMALL)
    assert all(output.bytes <= SMALL for part in parts for output in part.program.outputs)
    computed = [term.number for part in parts for term in part.program.reachable() if term.args]
    assert len(computed) > len(set(computed))


@pytest.mark.parametrize(
    "fn",
    [
        rows,
        lambda z: jnp.exp(z),
        lambda z: jnp.sort(jnp.einsum("ijc,ikc->ijk", z, z), axis=-1)[:, 0],
        lambda z: z,
    ],
)
def test_one_block_is_not_cut(fn: Callable[..., Any]) -> None:
    assert parts_of(program_of(fn, PAIRS), 4 * SMALL) == ()


def test_a_value_and_the_comparison_with_its_maximum_stay_together() -> None:
    def chosen(z: Any) -> Any:
        scores = jnp.einsum("ijc,ikc->ijk", rows(z), z)
        most = jnp.max(scores, axis=-1)
        after = columns(rows(z)) * most[..., None]
        return jnp.sum(jnp.where(scores == most[..., None], 1.0, 0.0), axis=-1), rows(after)

    program = program_of(chosen, PAIRS)
    assert parts_of(program, 6 * SMALL) == ()


def test_control_flow_is_computed_in_one_part() -> None:
    def looped(z: Any) -> Any:
        z = rows(z)
        z, _ = jax.lax.scan(lambda carry, _: (jnp.sin(carry), None), z, None, length=3)
        return hidden(columns(z))

    program = program_of(looped, PAIRS)
    parts = parts_of(program, 6 * SMALL)
    assert len(parts) > 1
    again, _ = joined(program, parts, [part.program for part in parts], [{} for _ in parts])
    np.testing.assert_array_equal(
        interpret(again, [PAIRS, *constants_of(looped, PAIRS)])[0],
        interpret(program, [PAIRS, *constants_of(looped, PAIRS)])[0],
    )


def test_each_part_is_looped_over_an_axis_of_its_own() -> None:
    program, constants = lowered(blocks, PAIRS)
    budget = program.fixed_bytes + 3 * SMALL
    assert as_written(program, CPU).predicted_peak > 2 * budget
    (found,) = searched_by_parts(program, rules_for((), "cancels"), budget, CPU)
    assert found.predicted_peak <= budget
    check_program(found.schedule.program)
    assert len({loop.axis for loop in found.schedule.block.own_loops}) >= 2
    np.testing.assert_allclose(
        interpret(found.schedule.program, [PAIRS, *constants])[0],
        interpret(program, [PAIRS, *constants])[0],
        rtol=1e-9,
    )


def test_nothing_is_found_part_by_part_in_one_block() -> None:
    program = program_of(rows, PAIRS)
    assert searched_by_parts(program, rules_for((), "cancels"), program.fixed_bytes + SMALL, CPU) == []


def test_a_plan_is_found_part_by_part() -> None:
    big = normal(64, 64, 4)
    z = jax.ShapeDtypeStruct(big.shape, big.dtype)
    optimized = eqsat.optimize(blocks, budget=int(6.5 * big.nbytes))
    plan = optimized.plan(z)
    assert plan.peak_bytes <= 6.5 * big.nbytes
    np.testing.assert_allclose(optimized(big), blocks(big), rtol=2e-4, atol=2e-4)


@given(st.integers(0, 30), st.integers(0, 2**31))
@settings(max_examples=20)
def test_any_budget_gives_parts_that_make_up_the_whole(room: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(3)
    steps = [(rows, columns, hidden)[number] for number in order]
    program, constants = lowered(lambda z: steps[2](steps[1](steps[0](z))), PAIRS)
    parts = parts_of(program, room * SMALL // 2)
    if parts:
        again, _ = joined(program, parts, [part.program for part in parts], [{} for _ in parts])
        np.testing.assert_array_equal(
            interpret(again, [PAIRS, *constants])[0], interpret(program, [PAIRS, *constants])[0]
        )
    assert free_bytes(program, program.fixed_bytes + room) == room
