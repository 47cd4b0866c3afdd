"""What is predicted to lie where a result will be is what XLA puts there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.backend.certificate import certify
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.planning.candidates import as_written
from eqsat.planning.liveness import simulate
from eqsat.targets.cpu import CPU
from tests.stages import normal


@pytest.mark.parametrize("columns", [300, 500, 700, 2_000])
def test_a_result_s_place_is_used_before_it_is_written(columns: int) -> None:
    """The 2 MB of the matrix are in the result's 1.2 MB in no case, and in its 2, 2.8 or 8 in all."""

    def function(x: Any, y: Any) -> Any:
        matrix = jnp.exp(x[:, None] + x)
        largest = jnp.max(matrix @ matrix[:, :3])
        return jnp.sin(y[:, None] * y[:columns]) + largest

    args = normal(707), normal(1_000)
    shapes = [jax.ShapeDtypeStruct(arg.shape, arg.dtype) for arg in args]
    predicted = as_written(lower(trace(function, args, {}).closed)[0], CPU).predicted_peak
    certified = certify(lambda *given: (function(*given),), shapes).peak
    assert predicted == pytest.approx(certified, rel=0.1)


def test_what_lies_where_a_result_will_be_is_alive_but_takes_no_memory() -> None:
    def function(x: Any, y: Any) -> Any:
        matrix = jnp.exp(x[:, None] + x)
        return jnp.sin(y[:, None] * y[:700]) + jnp.max(matrix @ matrix[:, :3])

    schedule = as_written(lower(trace(function, (normal(707), normal(1_000)), {}).closed)[0], CPU).schedule
    (result,) = (output.term for output in schedule.program.outputs)
    _, usage = simulate(schedule, CPU)
    hosted = {term.bytes for term, _ in usage.live_or_hosted} - {term.bytes for term, _ in usage.live}
    assert hosted == {4 * 707**2}
    assert max(size for _, size in usage.live) == result.bytes


def test_a_training_step_needs_little_more_than_its_results() -> None:
    """Gradients and activations lie where the new weights and their moments will be."""

    def step(weights: Any, first: Any, second: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return jnp.mean(jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]) ** 2)

        gradients = jax.grad(loss)(weights)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
        second = [0.99 * s + 0.01 * g**2 for s, g in zip(second, gradients, strict=True)]
        moved = [w - m / jnp.sqrt(s + 1e-6) for w, m, s in zip(weights, first, second, strict=True)]
        return moved, first, second

    weights = [normal(256, 256) / 16, normal(256, 256) / 16]
    args = weights, [0 * w for w in weights], [0 * w for w in weights], normal(2_000, 256)
    arguments, results = 6 * weights[0].nbytes + args[3].nbytes, 6 * weights[0].nbytes
    plan = eqsat.optimize(step, budget=arguments + results + 600_000).plan(*args)
    assert plan.changed
    (loop,) = plan.loops
    assert loop.size == 2_000
    assert loop.chunk >= 100, "else what is computed for every chunk takes longer"
