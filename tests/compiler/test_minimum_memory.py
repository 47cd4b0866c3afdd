"""The floor: the smallest budget that can be certified, and that there is a plan for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.compiler.minimum_memory import grown, leanest
from eqsat.planning.candidates import Candidate
from eqsat.planning.search_space import prepare
from eqsat.rulesets.selection import rules_for
from eqsat.support.deadline import NO_DEADLINE
from eqsat.targets.cpu import CPU
from tests.rules.exla_loops import INSIDE_LOOPS
from tests.rules.exla_programs import PROGRAMS, Program
from tests.rules.test_exla_programs import check_results
from tests.stages import lowered, normal

SLICES = {
    "exp(A B') v": 0,
    "E' E, E = exp(A B') with a short second axis": 0,
    "argmax of pairwise differences": 0,
    "exp(-sum (x - y)^2) V": 0,
    "(A B') C, C thin": 0,
    "ABCD, best as (A(BC))D": 0,
    "sum exp(.1 A B' + .1)": 0,
    "sin(sin(A B') A') C": 0,
    "gradient of sin(X Y') Z": 0,
    "outer(a, b) v inside a while loop": 0,
    # A column, that column sorted, and the best so far.
    "argmax of pairwise differences, sorted": 3 * 4 * 3001,
    # The solution, the residual, the direction, and its product.
    "conjugate gradients with K before a while loop": 4 * 4 * 3001,
}
"""Programs of eXLA's authors, and bytes of the largest slice that any method must hold, besides results."""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", SLICES)
def test_the_floor_is_near_what_any_method_must_hold(name: str) -> None:
    (program,) = (program for program in [*PROGRAMS, *INSIDE_LOOPS] if program.name == name)
    arguments = program.arguments()
    results = jax.eval_shape(program.function, *arguments)
    fixed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves([arguments, results]))
    floor = eqsat.minimum_budget(program.function, accuracy="rescales")(*arguments)
    assert fixed <= floor <= 1.2 * (fixed + SLICES[name])
    check_plan_at(floor, program, arguments)


def check_plan_at(floor: int, program: Program, arguments: tuple[Any, ...]) -> None:
    """There is a plan for the floor; it is run if that does not take long."""
    small = eqsat.optimize(program.function, budget=floor, accuracy="rescales", max_slowdown=None)
    plan = small.plan(*arguments)
    assert plan.peak_bytes <= floor
    if plan.predicted_seconds < 0.5:
        check_results(program, small(*arguments), arguments)


def test_below_the_floor_is_an_error_that_names_it() -> None:
    def fn(x: Any, y: Any) -> Any:
        return jnp.sort(jnp.sin(x[:, None] * y), 0).sum(0)

    x, y = normal(700), normal(300)
    floor = eqsat.minimum_budget(fn)(x, y)
    assert eqsat.optimize(fn, budget=floor).plan(x, y).peak_bytes <= floor
    with pytest.raises(eqsat.BudgetError) as error:
        eqsat.optimize(fn, budget=floor - 1).plan(x, y)
    assert error.value.smallest_peak == floor


def test_it_takes_the_keywords_of_optimize_but_the_budget() -> None:
    def fn(a: Any, n: int) -> Any:
        return (a @ a.T @ a) ** n

    a = normal(300, 4)
    exact = eqsat.minimum_budget(fn, accuracy="exact", static_argnums=1)(a, 2)
    assert eqsat.minimum_budget(fn, static_argnums=1)(jax.ShapeDtypeStruct(a.shape, a.dtype), 2) <= exact
    with pytest.raises(TypeError, match="takes none"):
        eqsat.minimum_budget(fn, budget="1MB")


def test_the_floor_of_what_is_left_as_it_is_is_what_it_needs() -> None:
    def fn(x: Any) -> Any:
        jax.debug.print("{}", x[0])
        return (x[:, None] * x).sum()

    x = normal(500)
    floor = eqsat.minimum_budget(fn)(x)
    assert not eqsat.optimize(fn, budget=floor).plan(x).changed
    with pytest.raises(eqsat.BudgetError):
        eqsat.optimize(fn, budget=floor - 1).plan(x)


def short_chunks() -> tuple[Candidate, int]:
    """A program in chunks as short as can be, and the bytes of its arguments and results."""

    def sums(x: Any, y: Any) -> Any:
        return jnp.exp(-jnp.abs(x[:, None] - y)).sum(1)

    program, _ = lowered(sums, normal(3000), normal(2000))
    space = prepare(program, rules_for((), "rescales"), program.fixed_bytes + 50_000, CPU)
    return next(one for one in leanest(space, NO_DEADLINE) if one.loops == 1), program.fixed_bytes


def test_chunks_grow_by_what_is_certified_if_far_more_is_predicted() -> None:
    """A program that is predicted to exceed the budget whatever its chunks, and needs 100 bytes a row."""

    shortest, fixed = short_chunks()
    budget = fixed + 50_000

    class Certifying:
        """A compiler to which all programs need 100 bytes a row."""

        def compile(self, candidate: Any, _: float) -> Any:
            (length,) = candidate.schedule.chunks.values()
            certified = SimpleNamespace(scratch=0)
            return SimpleNamespace(candidate=candidate, peak=fixed + 100 * length, certified=certified)

        draft = compile

    compiler: Any = Certifying()
    huge = replace(shortest, predicted_peak=10 * budget)
    found = grown(compiler.compile(huge, 0), budget, compiler, CPU, NO_DEADLINE)
    (length,) = found.candidate.schedule.chunks.values()
    assert found.peak <= budget < fixed + 2.5 * 100 * length


def test_what_is_more_than_its_draft_said_grows_less() -> None:
    shortest, fixed = short_chunks()
    budget = fixed + 50_000
    compiled: list[Any] = []

    class Optimistic:
        """A compiler whose drafts miss that long chunks need far more."""

        def compile(self, candidate: Any, _: float) -> Any:
            compiled.append(self._peak(candidate, 1000))
            return compiled[-1]

        def draft(self, candidate: Any, _: float) -> Any:
            return self._peak(candidate, 100)

        def _peak(self, candidate: Any, long: int) -> Any:
            (length,) = candidate.schedule.chunks.values()
            peak = fixed + (100 if length < 100 else long) * length
            return SimpleNamespace(candidate=candidate, peak=peak, certified=SimpleNamespace(scratch=0))

    compiler: Any = Optimistic()
    huge = replace(shortest, predicted_peak=10 * budget)
    found = grown(compiler.draft(huge, 0), budget, compiler, CPU, NO_DEADLINE)
    assert found.peak <= budget
    assert any(one.peak > budget for one in compiled), "a draft that is off is found out"


def test_where_nothing_fits_no_program_without_what_is_alive_is_looked_for() -> None:
    """Every program holds the factor as a whole, which exceeds the memory for temporaries."""

    def log_determinant(x: Any) -> Any:
        kernel = jnp.exp(-jnp.sum((x[:, None] - x) ** 2, -1)) + jnp.eye(len(x))
        return jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(kernel))))

    x = normal(500, 2)
    factor = 4 * 500**2
    with pytest.raises(eqsat.BudgetError) as error:
        eqsat.optimize(log_determinant, budget=x.nbytes + factor // 2).plan(x)
    assert error.value.smallest_peak is not None
    assert error.value.smallest_peak >= factor
    assert not any("store less than" in step.decision for step in error.value.search)
    enough = eqsat.optimize(log_determinant, budget=error.value.smallest_peak)
    assert enough.plan(x).peak_bytes <= error.value.smallest_peak


def test_whether_anything_fits_follows_from_the_smallest_values_of_loops() -> None:
    def sums(x: Any, y: Any) -> Any:
        return jnp.exp(-jnp.abs(x[:, None] - y)).sum(1)

    program, _ = lowered(sums, normal(3000), normal(2000))
    space = prepare(program, rules_for((), "rescales"), program.fixed_bytes + 50_000, CPU)
    assert not space.fits_nowhere(program.fixed_bytes + 50_000)
    results = sum(output.bytes for output in program.outputs)
    assert space.fits_nowhere(program.fixed_bytes - results)
    assert not space.fits_nowhere(program.fixed_bytes)


def test_loops_in_functions_of_several_results_need_as_little_as_those_of_one() -> None:
    """The compiler's table of the results takes a few bytes, too, which is no memory for temporaries."""

    def fn(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            x, before = carry
            moved = jnp.sin(x[:, None] * before).mean(0)
            return (moved, jnp.cumsum(x)), moved.max()

        (x, _), most = jax.lax.scan(step, (x, jnp.cumsum(x)), length=3)
        return x, most

    x = normal(700)
    one = eqsat.minimum_budget(lambda x: fn(x)[0])(x)
    assert eqsat.minimum_budget(fn)(x) <= 1.1 * one
