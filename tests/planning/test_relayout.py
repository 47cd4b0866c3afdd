"""Operands of short reductions are copied with the reduced axes before the longest one, where that pays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.backend.relayout import COPY, COPYING
from eqsat.planning.blocks import Relayout
from eqsat.planning.candidates import as_written, scheduled
from eqsat.planning.liveness import Simulator, simulate
from eqsat.planning.loops import build, is_free
from eqsat.targets.cpu import CPU
from eqsat.targets.gpu import GPU
from eqsat.targets.machine import Machine
from tests.stages import lowered, normal


def distances(x: Any, y: Any) -> Any:
    return jnp.sum(jnp.abs(x[:, None] - y), axis=-1)


def relaid(fn: Any, *args: Any, machine: Machine = CPU) -> list[Relayout]:
    program, _ = lowered(fn, *args)
    return list(as_written(program, machine).relayouts.values())


def test_points_are_transposed_for_a_sum_over_their_coordinates() -> None:
    x, y = normal(300, 10), normal(400, 10)
    (relayout,) = relaid(distances, x, y)
    assert relayout.last.size == 400
    assert {axis.size for axis in relayout.reduced} == {10}
    assert relayout.bytes == 4 * 400 * 10
    (other,) = relaid(distances, y, x)
    assert other.last.size == 400, "the longest axis comes last, whichever argument has it"


def test_what_is_computed_of_the_points_as_it_goes_is_transposed_with_them() -> None:
    (relayout,) = relaid(
        lambda x, y, s: distances(x / s, y / s), normal(300, 10), normal(400, 10), normal(10)
    )
    assert relayout.bytes == 4 * 400 * 10
    assert len(relayout.members) >= 3


@pytest.mark.parametrize(
    ("fn", "shapes", "why"),
    [
        (lambda x: jnp.sum(jnp.abs(x), -1), [(300, 10)], "each entry is read once"),
        (distances, [(300, 100), (400, 100)], "long reductions store what they read"),
        (distances, [(5, 10), (400, 10)], "each entry is read five times"),
        (distances, [(300, 10), (6, 10)], "the one copied would be x, whose entries are read six times"),
        (lambda x, y: jnp.sum(x * y[None], 0), [(30, 50), (50,)], "what is reduced comes first already"),
    ],
)
def test_nothing_is_transposed_where_that_does_not_pay(fn: Any, shapes: list[Any], why: str) -> None:
    assert not relaid(fn, *(normal(*shape) for shape in shapes)), why


def test_nothing_is_transposed_on_a_machine_without_lanes() -> None:
    assert not relaid(distances, normal(300, 10), normal(400, 10), machine=GPU)


def test_copies_count_while_the_reduction_runs() -> None:
    program, _ = lowered(distances, normal(300, 10), normal(400, 10))
    written = as_written(program, CPU)
    assert simulate(written.schedule, CPU)[1].peak == 4 * (300 * 400 + 400 * 10)


def test_copies_that_are_made_before_a_loop_count_in_all_of_it() -> None:
    program, _ = lowered(
        lambda x, y, v: distances(x, y) @ v, normal(300, 10), normal(400, 10), normal(400, 200)
    )
    whole = build(program)
    inside = replace(whole, steps=tuple(step for step in whole.steps if not is_free(step.results[0])))
    simulator = Simulator(CPU, {})
    without = simulator.peak(inside, {})
    assert simulator.peak(inside, {}, in_loop=True) == without + 4 * 400 * 10
    assert simulator.block(inside, {}, in_loop=True).peak == without + 4 * 400 * 10


@pytest.mark.nightly
@settings(max_examples=4, derandomize=True)
@given(
    st.integers(17, 60),
    st.integers(17, 60),
    st.sampled_from([2, 3, 7, 12, 40, 66]),
    st.sampled_from(["sum", "max", "both", "weighted", "batch"]),
    st.floats(0.2, 0.9),
)
def test_results_stay_the_same(n: int, m: int, d: int, kind: str, share: float) -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        apart = jnp.abs(x[..., :, None, :] - y[..., None, :, :])
        match kind:
            case "max":
                pairs = apart.max(-1)
            case "both":
                pairs = apart.max(-1) - apart.sum(-1)
            case "weighted":
                pairs = jnp.sum(apart * jnp.arange(1.0, d + 1), -1) + jnp.sum(y**2, -1)
            case _:
                pairs = apart.sum(-1)
        return jnp.exp(-pairs) @ v

    batch = (3,) if kind == "batch" else ()
    x, y, v = normal(*batch, n, d), normal(*batch, m, d), abs(normal(m))
    pairs = 4 * n * m * (3 if batch else 1)
    budget = int(x.nbytes + y.nbytes + v.nbytes + fn(x, y, v).nbytes + y.nbytes + share * pairs)
    optimized = eqsat.optimize(fn, budget=budget)
    assert optimized.plan(x, y, v).peak_bytes <= budget
    np.testing.assert_allclose(optimized(x, y, v), jax.jit(fn)(x, y, v), rtol=2e-5)


def searched(n: int, m: int, d: int, budget: str) -> Any:
    """The plan of a search for the nearest of m points to n others, by sums of d differences."""
    x, y = normal(n, d), normal(m, d)
    optimized = eqsat.optimize(lambda x, y: jax.lax.top_k(-distances(x, y), 3), budget=budget)
    for found, wanted in zip(optimized(x, y), jax.lax.top_k(-distances(x, y), 3), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
    return optimized.plan(x, y)


@pytest.mark.nightly
def test_long_sums_are_added_up_for_a_tile_of_points_that_is_copied_once() -> None:
    """What is summed over is split into chunks that are computed as they go, and points fill the cache."""
    plan = searched(50, 20_000, 128, "14MB")
    points, coordinates = plan.loops
    assert (coordinates.size, coordinates.chunk) == (128, 32)
    assert points.size == 20_000
    assert points.chunk > 500
    outer, inner = plan.source.split("def chunk_of_")[1:]
    assert "in_order(" in outer.split("# sum over")[0], "the tile is copied before the loop over coordinates"
    assert "in_order(" not in inner.split("return")[0]


def test_copies_that_do_not_fit_are_not_made() -> None:
    program, _ = lowered(distances, normal(10, 30), normal(3000, 30))
    block = build(program)
    whole = scheduled(program, block, {}, math.inf, CPU)
    assert whole.relayouts
    tight = scheduled(program, block, {}, whole.predicted_peak - 1, CPU)
    assert not tight.relayouts
    assert tight.predicted_peak < whole.predicted_peak


def test_a_copy_in_a_loop_is_one() -> None:
    """XLA fuses a transposition into the sum that reads it, barrier or not; but not what a branch gives."""
    names: dict[str, Any] = {"lax": jax.lax, "jnp": jnp}
    exec(COPYING, names)

    def total(x: Any, y: Any) -> Any:
        def iteration(number: Any, total: Any) -> Any:
            chunk = jax.lax.dynamic_slice_in_dim(y, 100 * number, 100)
            chunk = names[COPY](chunk, (1, 0), 100 * number)
            return total + jnp.exp(-jnp.sum(jnp.abs(x[:, :, None] - chunk), axis=1)).sum()

        return jax.lax.fori_loop(0, 4, iteration, 0.0)

    x, y = normal(50, 10), normal(400, 10)
    np.testing.assert_allclose(total(x, y), jnp.exp(-distances(x, y)).sum(), rtol=1e-5)
    options = eqsat.compiler_options()
    text = jax.jit(total).lower(x, y).compile(options).as_text()
    fused = [part for part in text.split("\n\n") if "reduce(" in part and "abs(" in part]
    assert fused
    assert not any(word in part for part in fused for word in ("transpose(", "copy(")), fused


def test_the_source_has_the_copy() -> None:
    x, y, v = normal(2000, 10), normal(3000, 10), normal(3000)
    plan = eqsat.optimize(lambda x, y, v: jnp.exp(-distances(x, y)) @ v, budget="2MB").plan(x, y, v)
    assert "lax.optimization_barrier(jnp.transpose(y, (1, 0)))" in plan.source
