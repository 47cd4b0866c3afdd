"""Random programs mean the same after every stage: lowered, optimised, compiled.

Compiling costs a tenth of a second, so a few hundred programs go all the way; thousands are lowered
and run by the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.interpret import interpret
from eqsat.ir.spec import check_program
from examples.measure import plain_peak
from tests.nightly import THOROUGH
from tests.program_text import ProgramText
from tests.random_control import random_loops
from tests.random_programs import bottlenecks, random_programs

MANY = 8 if THOROUGH else 0.35
"""How many times as many examples `make test-all` tries."""

UNHURRIED = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

BUDGETS = st.integers(1, 24).map(lambda twentieths: twentieths / 20)
"""Of what plain JAX needs on top of inputs and outputs."""


def floor(program: ProgramText) -> int:
    """What no rewriting can avoid: the inputs and outputs."""
    widths = {"bool": 1, "bfloat16": 2}
    return sum(v.elements * widths.get(v.dtype, 4) for v in (*program.inputs, *program.outputs))


def check_results(program: ProgramText, arrays: list[np.ndarray], results: Any, plain: Any) -> None:
    """Results are as close to the reference as rounding allows, or nearly as close as plain JAX's."""
    references, tolerances = program.reference(arrays), program.tolerances(arrays)
    assert len(results) == len(references)
    for output, result, other, reference, tolerance in zip(
        program.outputs, results, plain, references, tolerances, strict=True
    ):
        assert (result.shape, result.dtype) == (other.shape, other.dtype)
        if output.exact:
            np.testing.assert_array_equal(np.asarray(result).astype(reference.dtype), reference)
        else:
            error, plain_error = (
                np.max(np.abs(np.asarray(x, np.float64) - reference)) for x in (result, other)
            )
            assert error <= max(tolerance, 2 * plain_error), f"error {error:.1e}, plain {plain_error:.1e}"


def budget_between(low: int, high: int, fraction: float) -> int:
    return max(1, int(low + fraction * (high - low)))


@settings(UNHURRIED, max_examples=int(MANY * 250))
@given(random_programs() | bottlenecks() | random_loops(), st.integers(0, 3))
def test_a_lowered_program_is_well_formed_and_means_the_same(program: ProgramText, seed: int) -> None:
    arrays = program.arrays(seed)
    lowered, constants = lower(trace(program.function(), tuple(arrays), {}).closed)
    check_program(lowered)
    results = interpret(lowered, [*arrays, *constants])
    for result, reference in zip(results, program.reference(arrays), strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-9, atol=1e-9)


@settings(UNHURRIED, max_examples=int(MANY * 25))
@given(random_programs() | bottlenecks() | bottlenecks() | random_loops(), BUDGETS, st.integers(0, 3))
def test_an_optimized_program_keeps_to_the_budget_and_agrees_with_plain_jax(
    program: ProgramText, fraction: float, seed: int
) -> None:
    function, arrays = program.function(), program.arrays(seed)
    before = plain_peak(function, arrays)
    budget = budget_between(floor(program), before, fraction)
    optimized = eqsat.optimize(function, budget=budget)
    refused = None
    try:
        plan = optimized.plan(*arrays)
    except eqsat.BudgetError as error:
        refused = error
    if refused is not None:
        event("refused")
        assert budget < before, "plain JAX fits"
        assert refused.smallest_peak is None or refused.smallest_peak > budget
        return
    event("rewritten" if budget < before else "fits anyway")
    assert plan.peak_bytes <= budget
    # In XLA's order a function may need less; what is left as it was has the options that it is run with.
    assert plan.original_peak_bytes <= before if plan.changed else plan.original_peak_bytes == plan.peak_bytes
    check_results(program, arrays, optimized(*arrays), jax.jit(function)(*arrays))


PAIRWISE: dict[str, Callable[..., jax.Array]] = {
    "sum of a kernel": lambda x, y: jax.numpy.exp(-jax.numpy.abs(x[:, None] - y)).sum(1),
    "largest difference": lambda x, y: (x[:, None] - y).max(0),
    "softmax average": lambda x, y: jax.nn.softmax(x[:, None] * y, axis=1) @ y,
    "nearest": lambda x, y: jax.lax.top_k(-jax.numpy.abs(x[:, None] - y), 3)[1],
    "moments of a product": lambda x, y: ((x[:, None] * y) ** 3).sum((0, 1)),
    "any of a comparison": lambda x, y: (x[:, None] > y).any(1),
}
"""Programs whose only large value is pairwise and splits along either axis."""


@settings(UNHURRIED, max_examples=int(MANY * 12))
@given(st.sampled_from(sorted(PAIRWISE)), st.integers(300, 700), st.integers(300, 700), st.floats(0.15, 0.9))
def test_a_pairwise_program_always_fits_a_fraction(name: str, n: int, m: int, fraction: float) -> None:
    """Here no `BudgetError` is acceptable: 0.15 of the pairwise value is room for many rows of it."""
    rng = np.random.default_rng(n * m)
    arrays = [rng.normal(size=length).astype(np.float32) for length in (n, m)]
    function = PAIRWISE[name]
    budget = int(4 * n * m * fraction)
    plan = eqsat.optimize(function, budget=budget).plan(*arrays)
    assert plan.peak_bytes <= budget
    result = eqsat.optimize(function, budget=budget)(*arrays)
    np.testing.assert_allclose(result, jax.jit(function)(*arrays), rtol=2e-5, atol=1e-6)
