"""Operands of short reductions are copied with the reduced axes before the longest one, where that pays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.machine import CPU, GPU, Machine
from eqsat.planning.blocks import Turning
from eqsat.planning.candidates import as_written
from eqsat.planning.liveness import simulate
from tests.stages import lowered, normal


def distances(x: Any, y: Any) -> Any:
    return jnp.sum(jnp.abs(x[:, None] - y), axis=-1)


def turned(fn: Any, *args: Any, machine: Machine = CPU) -> list[Turning]:
    program, _ = lowered(fn, *args)
    return list(as_written(program, machine).turned.values())


def test_points_are_turned_for_a_sum_over_their_coordinates() -> None:
    x, y = normal(300, 10), normal(400, 10)
    (turning,) = turned(distances, x, y)
    assert turning.last.size == 400
    assert {axis.size for axis in turning.reduced} == {10}
    assert turning.bytes == 4 * 400 * 10
    (other,) = turned(distances, y, x)
    assert other.last.size == 400, "the longest axis comes last, whichever argument has it"


def test_what_is_computed_of_the_points_as_it_goes_is_turned_with_them() -> None:
    (turning,) = turned(lambda x, y, s: distances(x / s, y / s), normal(300, 10), normal(400, 10), normal(10))
    assert turning.bytes == 4 * 400 * 10
    assert len(turning.members) >= 3


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
def test_nothing_is_turned_where_that_does_not_pay(fn: Any, shapes: list[Any], why: str) -> None:
    assert not turned(fn, *(normal(*shape) for shape in shapes)), why


def test_nothing_is_turned_on_a_machine_without_lanes() -> None:
    assert not turned(distances, normal(300, 10), normal(400, 10), machine=GPU)


def test_copies_count_while_the_reduction_runs() -> None:
    program, _ = lowered(distances, normal(300, 10), normal(400, 10))
    written = as_written(program, CPU)
    assert simulate(written.schedule, CPU)[1].peak == 4 * (300 * 400 + 400 * 10)


@settings(deadline=None, max_examples=8, derandomize=True)
@given(
    st.integers(17, 60),
    st.integers(17, 60),
    st.integers(2, 12),
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


def test_the_source_has_the_copy() -> None:
    x, y, v = normal(2000, 10), normal(3000, 10), normal(3000)
    plan = eqsat.optimize(lambda x, y, v: jnp.exp(-distances(x, y)) @ v, budget="2MB").plan(x, y, v)
    assert "lax.optimization_barrier(jnp.transpose(y, (1, 0)))" in plan.source
