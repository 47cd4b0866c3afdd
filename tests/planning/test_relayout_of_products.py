"""What is stored for a product has the axis that is summed over last: its operands are copied for that."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.planning.blocks import Relayout
from eqsat.planning.candidates import as_written
from eqsat.targets.cpu import CPU
from eqsat.targets.gpu import GPU
from eqsat.targets.machine import Machine
from tests.stages import lowered, normal


def pulled(x: Any, y: Any, w: Any) -> Any:
    """The weighted sum of the differences from all points, for each point."""
    return jnp.einsum("nm,nmd->nd", w, jnp.sin(x[:, None] - y))


def relaid(fn: Any, *args: Any, machine: Machine = CPU) -> list[Relayout]:
    program, _ = lowered(fn, *args)
    return list(as_written(program, machine).relayouts.values())


def test_points_are_transposed_for_what_is_summed_over_them() -> None:
    (relayout,) = relaid(pulled, normal(50, 3), normal(400, 3), normal(50, 400))
    assert relayout.last.size == 400
    assert relayout.bytes == 4 * 400 * 3


@pytest.mark.parametrize(
    ("fn", "shapes", "why"),
    [
        (pulled, [(5, 3), (400, 3), (5, 400)], "each entry is read five times"),
        (lambda x, w: jnp.einsum("nm,nmd->nd", w, jnp.sin(x)), [(50, 400, 3), (50, 400)], "read once"),
        (
            lambda x, y, w: jnp.einsum("nm,ndm->nd", w, jnp.sin(x[:, :, None] - y)),
            [(50, 3), (3, 400), (50, 400)],
            "points are the last axis already",
        ),
        (lambda x, y, w: jnp.sin(x[:, None] - y) @ w, [(50,), (400,), (400,)], "vectors have no order"),
    ],
)
def test_nothing_is_transposed_where_that_does_not_pay(fn: Any, shapes: list[Any], why: str) -> None:
    assert not relaid(fn, *(normal(*shape) for shape in shapes)), why


def test_nothing_is_transposed_on_a_machine_without_lanes() -> None:
    assert not relaid(pulled, normal(50, 3), normal(400, 3), normal(50, 400), machine=GPU)


def test_a_gradient_by_chunks_multiplies_with_differences_in_that_order() -> None:
    def kernel(x: Any, y: Any, v: Any) -> Any:
        return jnp.exp(-0.5 * jnp.sum((x[:, None] - y) ** 2, -1)) @ v

    def gradient(x: Any, y: Any, v: Any, cotangent: Any) -> Any:
        return jax.vjp(kernel, x, y, v)[1](cotangent)

    args = normal(3000, 3), normal(3000, 3), normal(3000), normal(3000)
    optimized = eqsat.optimize(gradient, budget="1MB", accuracy="rescales")
    plan = optimized.plan(*args)
    assert "transposed_" in plan.source
    assert '"ac,abc->ab"' in plan.source or '"ca,cba->cb"' in plan.source
    for found, wanted in zip(optimized(*args), jax.jit(gradient)(*args), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
