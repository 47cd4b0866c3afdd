"""For devices whose compilers tell, the fastest of the programs that fit is the plan."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.reports.plan import Plan


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


def planned(budget: str, target: str = "h100") -> Plan:
    qkv = [jax.ShapeDtypeStruct((4096, 64), jnp.float32)] * 3
    return eqsat.optimize(attention, budget=budget, target=target).plan(*qkv)


def test_the_estimated_times_are_those_of_the_compiled_programs() -> None:
    plan = planned("60MB")
    assert plan.changed
    assert plan.estimated
    assert "estimated from the compiled programs" in str(plan)
    assert 0 < plan.original_seconds < plan.predicted_seconds  # loops cost launches


def test_the_program_that_is_taken_is_the_fastest_of_those_compared() -> None:
    (step,) = [step for step in planned("60MB").search if "compare" in step.decision]
    times, number = re.fullmatch(r"(.*): number (\d+) is taken", step.outcome).groups()  # type: ignore[union-attr]
    values = [
        float(value) * {"us": 1, "ms": 1000}[unit] for value, unit in re.findall(r"([\d.]+) (\w+)", times)
    ]
    assert len(values) > 1
    assert values[int(number) - 1] <= min(values) / 0.95


def test_a_program_that_is_no_slower_than_the_function_as_written_is_compared_with_no_other() -> None:
    def kernel(x: Any, y: Any, v: Any) -> Any:
        return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1)) @ v

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((20_000, 3), (20_000, 3), (20_000,))]
    plan = eqsat.optimize(kernel, budget="100MB", target="h100").plan(*shapes)
    assert plan.changed
    assert plan.predicted_seconds <= plan.original_seconds
    (step,) = [step for step in plan.search if "compare" in step.decision]
    assert "the function as written" in step.outcome


@pytest.mark.parametrize("target", ["h100", "tpu-v5e"])
def test_a_function_that_fits_has_an_estimate_too(target: str) -> None:
    plan = planned("4GB", target)
    assert plan.estimated
    assert plan.original_seconds > 0


def test_plans_for_the_cpu_are_not_estimated() -> None:
    assert not planned("25MB", "cpu").estimated
