"""The test programs of eXLA reach their best forms.

Whether one is reached is seen in what runs: the certified peak, the largest array in it, the work of its
contractions, all loops included, and the axes that are looped over.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import eqsat
from tests.rules.exla_loops import INSIDE_LOOPS
from tests.rules.exla_programs import PROGRAMS, Program
from tests.rules.reached import largest_array, multiplications


def check_results(program: Program, results: Any, arguments: tuple[Any, ...]) -> None:
    """The results are as near to those in double precision as plain JAX's are, or as rounding allows."""
    plain = jax.jit(program.function)(*arguments)
    with jax.enable_x64(True):
        wide = [np.asarray(a, np.float64) for a in arguments]
        exact = jax.tree.map(np.asarray, jax.jit(program.function)(*wide))
    leaves = zip(*(jax.tree.leaves(tree) for tree in (results, plain, exact)), strict=True)
    for result, expected, reference in leaves:
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        if not np.issubdtype(result.dtype, np.inexact):
            np.testing.assert_array_equal(result, expected)
            continue
        scale = np.max(np.abs(reference), initial=0)
        error, plain_error = (np.max(np.abs(a - reference), initial=0) for a in (result, expected))
        assert error <= max(2 * plain_error, 1e-5 * scale)


def named(programs: list[Program]) -> list[Any]:
    return [pytest.param(program, id=program.name) for program in programs]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("program", named(PROGRAMS))
def test_it_reaches_its_best_form(program: Program) -> None:
    arguments = program.arguments()
    small = eqsat.optimize(program.function, budget=program.budget, accuracy="rescales")
    plan = small.plan(*arguments)
    assert plan.peak_bytes <= program.budget
    assert (plan.original_peak_bytes <= program.budget) == program.fits
    assert plan.changed or program.fits
    assert largest_array(plan, arguments) <= program.largest
    assert multiplications(plan, arguments) <= program.multiplications
    # What is large has two long axes: it may be tiled where that is predicted to be faster.
    assert {loop.size for loop in plan.loops} == set(program.over)
    check_results(program, small(*arguments), arguments)


@pytest.mark.parametrize("program", named(INSIDE_LOOPS))
def test_it_reaches_its_best_form_inside_a_loop(program: Program) -> None:
    arguments = program.arguments()
    small = eqsat.optimize(program.function, budget=program.budget, accuracy="rescales")
    plan = small.plan(*arguments)
    assert plan.peak_bytes <= program.budget < plan.original_peak_bytes
    assert largest_array(plan, arguments) <= program.largest
    check_results(program, small(*arguments), arguments)
