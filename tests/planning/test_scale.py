"""Long programs: no stage recurses, rules get to their ends, and what is too much in parts is found."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from benchmarks.big_programs import PROGRAMS
from eqsat.backend.emit import emit
from eqsat.engine.cost import CostModel
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.axis import Axis
from eqsat.ir.program import Program
from eqsat.planning import candidate_builder
from eqsat.planning.candidates import Candidate, as_written
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.chunks import _heaviest_in
from eqsat.planning.liveness import largest_stored
from eqsat.planning.loops import TooManyStepsError, build
from eqsat.planning.search_space import SearchSpace, free_bytes, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.nightly import nightly_but
from tests.stages import normal


def lowered(name: str, equations: int) -> Program:
    function, arguments = PROGRAMS[name](equations)
    return lower(trace(function, arguments, {}).closed)[0]


def explored(program: Program, share: float) -> tuple[SearchSpace, int]:
    """The program's e-graph, and a budget of that share of what it needs besides arguments and results."""
    fixed = -free_bytes(program, 0)
    budget = int(fixed + share * (as_written(program, CPU).predicted_peak - fixed))
    return prepare(program, rules_for((), "reassociates"), budget, CPU), budget


def test_a_chain_far_deeper_than_python_may_recurse_is_explored_to_its_end() -> None:
    program = lowered("chain", 3000)
    terms = list(program.reachable())
    assert len(terms) > 3 * sys.getrecursionlimit()
    search, budget = explored(program, 1.0)
    assert search.saturation.stop_reason == "saturated"
    (first, *_) = next(attempts(search, budget))
    assert emit(first.schedule, ["x"], first.makers).source.count("lax.sin") >= 1500


@pytest.mark.parametrize("name", ["gradient of a network", "ode steps", "independent pieces"])
def test_what_is_too_much_in_many_parts_is_found(name: str) -> None:
    search, budget = explored(lowered(name, 300), 0.3)
    assert any(found[0].predicted_peak <= budget for found in attempts(search, budget))


def test_calls_in_calls_are_one_program() -> None:
    program = lowered("nested calls", 300)
    assert sum(1 for _ in program.reachable()) >= 200


def test_bodies_are_looked_into_once_however_many_results_and_levels_there_are() -> None:
    def nested(level, state):
        if level == 0:
            return tuple(jnp.tanh(x) for x in state)
        return lax.fori_loop(0, 2, lambda _, state: nested(level - 1, state), state)

    state = tuple(jnp.ones(n) for n in range(2, 10))
    program, _ = lower(trace(lambda state: nested(12, state), (state,), {}).closed)
    written = as_written(program, CPU)
    largest = largest_stored(written.schedule, CPU)
    assert largest <= written.predicted_peak
    axis = Axis(-1, 2)
    heaviest = _heaviest_in(written.schedule.block, axis, CostModel(CPU, {axis: 1}), {})
    assert heaviest == 1  # nothing has the axis


def steps_of(candidate: Candidate) -> int:
    return sum(len(block.steps) for block in candidate.schedule.block.blocks())


@pytest.mark.nightly
def test_loops_that_do_the_same_again_and_again_are_put_off() -> None:
    """Each step of a path is a loop of its own, that could do all of the steps before once more."""
    search, budget = explored(lowered("ode steps", 3000), 0.2)
    found = [candidate for group in attempts(search, budget) for candidate in group]
    assert any(candidate.predicted_peak <= budget for candidate in found)
    for candidate in found:
        terms = sum(1 for _ in candidate.schedule.program.reachable())
        assert steps_of(candidate) <= max(candidate_builder.FEW_STEPS, candidate_builder.REPEATED * terms)


def test_where_all_loops_do_the_same_again_they_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_builder, "FEW_STEPS", 0)
    monkeypatch.setattr(candidate_builder, "REPEATED", 0)
    search, budget = explored(lowered("ode steps", 100), 0.3)
    assert any(found[0].predicted_peak <= budget for found in attempts(search, budget))
    # In a body of control flow as well, which is looked for on its own.
    function, arguments = PROGRAMS["ode steps"](100)

    def repeated(x: Any, v: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, state: function(*state), (x, v))

    program, _ = lower(trace(repeated, arguments, {}).closed)
    search, budget = explored(program, 0.3)
    assert any(found[0].predicted_peak <= budget for found in attempts(search, budget))


def test_too_many_steps_are_those_outside_of_calls() -> None:
    def body(x: Any, _: Any) -> Any:
        for step in range(50):
            x = jnp.sin(x) * (1.0 + step)
        return x, None

    x = jnp.ones(7)
    inside, _ = lower(trace(lambda x: lax.scan(body, x, None, length=3)[0], (x,), {}).closed)
    block = build(inside, most=10)
    assert sum(len(inner.steps) for inner in block.blocks()) > 100
    outside, _ = lower(trace(lambda x: body(x, None)[0], (x,), {}).closed)
    with pytest.raises(TooManyStepsError):
        build(outside, most=10)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("length", nightly_but({140, 380}, [140, 250, 380, 600]))
def test_chains_of_any_length_are_split(length: int) -> None:
    """Chunks come one op further in a round of the rules; some chains have more ops than there are rounds."""

    def chained(x: Any) -> Any:
        distances = x[:, None] - x
        for step in range(length):
            distances = jnp.abs(distances - step) if step % 2 else distances * 0.99
        return distances.sum(0)

    x = normal(400)
    optimized = eqsat.optimize(chained, budget="200kB")
    assert optimized.plan(x).peak_bytes <= 200_000 < 4 * 400 * 400 // 3
    np.testing.assert_allclose(optimized(x), jax.jit(chained)(x), rtol=1e-4)
