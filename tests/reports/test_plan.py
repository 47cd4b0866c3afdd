"""Plans as records: kept as text, and where in the source things are from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from tests.kernels import SMALL, V, X, Y, kernel
from tests.stages import normal

LINES = Path(__file__).read_text().splitlines()


def line_of(text: str) -> int:
    """The number of the first line of this file that has the text."""
    return next(number for number, line in enumerate(LINES, 1) if text in line)


def test_a_plan_can_be_kept_as_text() -> None:
    plan = SMALL.plan(X, Y, V)
    restored = eqsat.Plan.from_json(plan.to_json())
    assert restored == plan
    assert str(restored) == str(plan)


def test_a_kept_plan_has_no_constants() -> None:
    plan = eqsat.optimize(lambda x: kernel(x, jnp.asarray(Y), jnp.asarray(V)), budget="1MB").plan(X)
    assert len(plan.constants) == 2
    assert eqsat.Plan.from_json(plan.to_json()).constants == ()


@pytest.mark.parametrize("text", ["", "{}", '{"budget_bytes": "many"}', "[]", '{"no_field": 1}'])
def test_text_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        eqsat.Plan.from_json(text)


def gradient_of_loop(w: Any, x: Any) -> Any:
    def iteration(state: Any, row: Any) -> Any:
        distances = jnp.abs(w[:, None] - row[None, :])  # the large array of the loop
        return state + jnp.sum(jnp.exp(-distances)), None

    return jax.lax.scan(iteration, 0.0, x)[0]


def test_what_is_too_big_is_traced_to_the_source_through_loops_and_gradients() -> None:
    args = normal(3_000), normal(4, 2_000)
    plan = eqsat.optimize(jax.grad(gradient_of_loop), budget="4MB").plan(*args)
    assert plan.too_big
    assert all(tensor.bytes > 3_900_000 for tensor in plan.too_big)
    places = {tensor.place.line: tensor.place for tensor in plan.too_big if tensor.place}
    first = line_of("the large array of the loop")
    scan = line_of("jax.lax.scan(iteration")
    assert set(places) == {first, first + 1, scan}
    assert places[first].function.endswith("iteration")
    assert any(tensor.place and tensor.place.gradient for tensor in plan.too_big)
    (stacked, *_) = plan.too_big
    assert str(stacked) == "float32[w.0:3000, x.0:4, x.1:2000]"
    assert str(plan.loops[-1].places[0]).endswith(f"test_plan.py:{first} in iteration, its gradient")


def test_memory_over_time_ends_at_the_predicted_figures() -> None:
    plan = SMALL.plan(X, Y, V)
    assert max(step.bytes for step in plan.after.steps) == plan.after.peak_bytes
    assert plan.after.seconds == pytest.approx(plan.predicted_seconds)
    assert plan.before.seconds == pytest.approx(plan.original_seconds)
    assert [loop.label for loop in plan.loops] == [
        plan.loops[step.loop].label for step in plan.after.steps if step.loop >= 0
    ]


def test_what_two_loops_compute_is_told_with_its_cost() -> None:
    def fn(x: Any, z: Any, y: Any) -> Any:
        gram = jnp.exp(-jnp.abs(x[:, None] - z[None, :])).cumsum(1)  # needed by both products, in whole rows
        return gram @ jnp.sort(gram.T @ y)

    plan = eqsat.optimize(fn, budget="400kB").plan(normal(3_000), normal(300), normal(3_000))
    again = [loop for loop in plan.loops if loop.recomputes]
    assert len(again) == 1
    assert "exp" in {tensor.op for tensor in again[0].recomputes}
    assert 0 < again[0].recompute_seconds <= again[0].seconds
    assert re.search(r"computes again what does not fit: .*exp", str(plan))


def test_the_page_is_a_page(tmp_path: Path) -> None:
    """However long the names are and however many things there are to tell."""

    def fn(parameters: Any, v: Any) -> Any:
        total = v
        for name in parameters:
            total = total + jnp.exp(-jnp.abs(parameters[name][:, None] - v[None, :])) @ total
        return total

    parameters = {f"a_rather_long_name_for_a_layer_{number}": normal(900, seed=number) for number in range(9)}
    lines = str(eqsat.optimize(fn, budget="300kB").plan(parameters, normal(900))).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100
