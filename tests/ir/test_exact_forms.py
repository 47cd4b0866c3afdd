"""For results of the same bits, programs know of no tiles and of no batches, and else of what they knew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

import eqsat
from eqsat.ir.control import Scan
from eqsat.ir.exact_forms import is_batched, with_exact_forms
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.ir.tiled_values import tiled_values, with_tiles
from tests.frontend.test_names_batches import BATCHES
from tests.stages import lowered, normal

SAME = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}


def network(x: Any) -> Any:
    first = lax.conv_general_dilated(x, normal(3, 3, 3, 4), **SAME)
    return lax.conv_general_dilated(first, normal(3, 3, 4, 2), **SAME)


def test_a_program_without_tiles() -> None:
    program, _ = lowered(network, normal(1, 96, 8, 3))
    exact = with_exact_forms(program)
    assert list(tiled_values(program))
    assert not list(tiled_values(exact))
    assert exact.outputs == program.outputs
    assert with_tiles(exact) == exact


def test_bodies_of_loops_without_tiles() -> None:
    def steps(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, x: lax.conv_general_dilated(x, normal(3, 3, 3, 3), **SAME), x)

    program, _ = lowered(steps, normal(1, 96, 8, 3))
    exact = with_exact_forms(program)
    assert any(list(tiled_values(inner)) for inner in program.inside(known=True))
    assert not any(list(tiled_values(inner)) for inner in exact.inside(known=True))


def test_a_loop_that_carries_nothing_is_no_batch() -> None:
    def steps(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, x: lax.map(lambda row: jnp.sort(x @ row), x), x)

    program, _ = lowered(steps, normal(9, 9))
    exact = with_exact_forms(program)
    batches = [
        [whole for inner in each.inside(known=True) for whole, _ in inner.equalities if is_batched(whole)]
        for each in (program, exact)
    ]
    assert batches[0]
    assert not batches[1]
    # Sorting has a name in both.
    assert any(inner.equalities for inner in exact.inside(known=True))


@pytest.mark.parametrize("fn", BATCHES)
def test_no_loop_is_a_batch(fn: Callable[..., Any]) -> None:
    program, _ = lowered(fn, normal(9, 3), normal(7, 3))

    def known_loops(program: Program) -> list[Term]:
        wholes = (whole for whole, _ in program.equalities if isinstance(whole.op, Opaque))
        return [whole for whole in wholes if isinstance(whole.op.call.control, Scan)]

    assert known_loops(program)
    assert not known_loops(with_exact_forms(program))


@pytest.mark.parametrize(
    ("step", "batch"),
    [
        (lambda c, row: c + row, True),
        (lambda c, row: jnp.maximum(c - row, row), False),
        (lambda c, row: 0.5 * c + row, False),
        (lambda c, row: row - c, False),
    ],
)
def test_a_recurrence_is_no_batch_though_nothing_else_reads_its_carry(step: Any, batch: bool) -> None:
    """It may be the body of an operation, whose name stays."""
    program, _ = lowered(
        lambda x: lax.scan(lambda c, row: (step(c, row), None), jnp.zeros(3), x)[0], normal(9, 3)
    )
    (output,) = program.outputs
    assert is_batched(output.term) == batch


@pytest.mark.parametrize("accuracy", ["exact", "reassociates"])
def test_a_plan_keeps_the_loop_where_bits_matter(accuracy: str) -> None:
    """Products of one row are summed in another order than those of many."""
    x, y = normal(300, 700), normal(2000, 700)

    def sines(x: Any, y: Any) -> Any:
        return jnp.sort(lax.map(lambda row: jnp.sin(y @ row), x), axis=0)[:3]

    plan = eqsat.optimize(sines, budget="8.5MB", accuracy=accuracy).plan(x, y)
    assert ("lax.scan(iteration" in plan.source) == (accuracy == "exact")
