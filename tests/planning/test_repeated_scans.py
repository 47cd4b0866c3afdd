"""Statistics of a history that need others first: the scan runs once for each of them, and stacks nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.ir.control import Scan
from eqsat.ir.ops import Call
from eqsat.ir.program import Program
from eqsat.ir.term import reachable
from eqsat.planning.rematerialisation import with_rematerialised_operands
from tests.planning.test_rematerialisation import check_equalities
from tests.planning.test_segmented_scans import scans
from tests.stages import lowered, normal

STEPS, WIDTH = 20, 5


def walk(x: Any, xs: Any) -> tuple[Any, Any]:
    def step(state: Any, x: Any) -> Any:
        state = state + jnp.sin(state * x)
        return state, (state, jnp.cos(state))

    return lax.scan(step, x, xs)


def variance(x: Any, xs: Any) -> Any:
    return jnp.var(walk(x, xs)[1][0], 0)


def moments(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    return states.mean(0), states.std(0), states.max(0), states[-1]


def skewness(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    return jnp.mean(((states - states.mean(0)) / states.std(0)) ** 3, 0)


def from_the_last(x: Any, xs: Any) -> Any:
    last, (states, _) = walk(x, xs)
    return last, jnp.mean((states - last) ** 2, 0)


def of_two_histories(x: Any, xs: Any) -> Any:
    states, others = walk(x, xs)[1]
    return jnp.sum((states - states.mean(0)) * (others - others.mean(0)), 0)


def one_of_which_is_needed(x: Any, xs: Any) -> Any:
    states, others = walk(x, xs)[1]
    return jnp.var(states, 0), others


def lagged(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    middle = states.mean(0)
    return jnp.sum((states[1:] - middle) * (states[:-1] - middle), 0)


def autocorrelation(x: Any, xs: Any) -> Any:
    deviations = walk(x, xs)[1][0]
    deviations = deviations - deviations.mean(0)
    return jnp.sum(deviations[1:] * deviations[:-1], 0) / jnp.sum(deviations**2, 0)


def last_of_a_function(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    return jnp.tanh(states)[-1], jnp.var(states, 0)


def second_moments(x: Any, xs: Any) -> Any:
    """Each iteration adds a matrix to a matrix: if the history fits, one product is faster."""
    states = walk(x, xs)[1][0]
    return states.T @ states


def covariance(x: Any, xs: Any) -> Any:
    return jnp.cov(walk(x, xs)[1][0].T)


def lagged_covariance(x: Any, xs: Any) -> Any:
    """As in time-lagged independent component analysis, after a burn-in."""
    states = walk(x, xs)[1][0][4:]
    deviations = states - states.mean(0)
    return deviations[1:].T @ deviations[:-1], deviations.T @ deviations


def in_reverse(x: Any, xs: Any) -> Any:
    states = lax.scan(lambda s, x: (s + jnp.sin(s * x), s), x, xs, reverse=True)[1]
    return jnp.var(states, 0)


def of_all_entries(x: Any, xs: Any) -> Any:
    return jnp.var(walk(x, xs)[1][0])


PASSES: dict[Callable[..., Any], int] = {
    variance: 2,
    moments: 2,
    skewness: 3,
    from_the_last: 2,
    of_two_histories: 2,
    one_of_which_is_needed: 2,
    lagged: 2,
    autocorrelation: 2,
    last_of_a_function: 2,
    second_moments: 1,
    covariance: 2,
    lagged_covariance: 2,
    in_reverse: 2,
    of_all_entries: 2,
}


def passes(program: Program) -> dict[Call, Scan]:
    """The scans that the forms of what is read are results of."""
    known = with_rematerialised_operands(program, 100)
    before = scans(program.known())
    after = scans(reachable(form for _, form in known.equalities))
    return {call: scan for call, scan in after.items() if call not in before}


@pytest.mark.parametrize("function", PASSES)
def test_passes_mean_the_same_and_stack_nothing(function: Callable[..., Any]) -> None:
    args = normal(WIDTH), normal(STEPS, WIDTH)
    program, constants = lowered(jax.jit(function), *args)
    assert check_equalities(program, [*args, *constants], 100)
    found = passes(program)
    assert len(found) == PASSES[function]
    stacked = sum(len(call.out_layouts) - len(scan.carried) for call, scan in found.items())
    assert stacked == (function is one_of_which_is_needed)


def small(x: Any, xs: Any) -> Any:
    return jnp.var(walk(x[:1], xs[:, :1])[1][0])


def read_whole(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    return jnp.var(states, 0), jnp.sort(states, 0)


def compared_with_the_largest(x: Any, xs: Any) -> Any:
    """In another loop, the largest might be rounded otherwise, and then none would equal it."""
    states = walk(x, xs)[1][0]
    return jnp.sum(states == states.max(0), 0)


def of_which_a_function_is_compared(x: Any, xs: Any) -> Any:
    """So might the largest sum of a product and a state."""
    states = walk(x, xs)[1][0]
    values = jnp.tanh(states) * 3 + states
    return jnp.sum(values == values.max(0), 0)


def in_six_passes(x: Any, xs: Any) -> Any:
    states = walk(x, xs)[1][0]
    middle = states.mean(0)
    for _ in range(5):
        middle = jnp.mean(jnp.tanh(states - middle), 0)
    return middle


@pytest.mark.parametrize(
    "function",
    [small, read_whole, compared_with_the_largest, of_which_a_function_is_compared, in_six_passes],
    ids=lambda f: f.__name__,
)
def test_a_scan_does_not_run_again(function: Callable[..., Any]) -> None:
    program, _ = lowered(jax.jit(function), normal(WIDTH), normal(STEPS, WIDTH))
    assert not passes(program)


def test_floats_are_not_added_up_otherwise_where_bits_count() -> None:
    program, _ = lowered(jax.jit(variance), normal(WIDTH), normal(STEPS, WIDTH))
    assert not with_rematerialised_operands(program, 100, exact=True).equalities


def test_floats_do_not_run_again_where_bits_count() -> None:
    """Another run may round otherwise; a run of integers may not."""

    def below_the_largest(x: Any, xs: Any) -> Any:
        states = walk(x, xs)[1][0]
        return (states.max(0) - states).max(0)

    def of_integers(x: Any, xs: Any) -> Any:
        states = lax.scan(lambda s, x: (s * 5 + x, s * 5 + x), x, xs)[1]
        return (states.max(0) ^ states).max(0)

    arrays = normal(WIDTH), normal(STEPS, WIDTH)
    program, _ = lowered(jax.jit(below_the_largest), *arrays)
    assert passes(program)
    assert not with_rematerialised_operands(program, 100, exact=True).equalities
    program, _ = lowered(jax.jit(of_integers), *(np.int32(9 * array) for array in arrays))
    assert with_rematerialised_operands(program, 100, exact=True).equalities


NUMBERS = st.floats(width=32, allow_subnormal=False)


@pytest.fixture(scope="module", params=[variance, from_the_last], ids=lambda function: function.__name__)
def planned(request: Any) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """A function as JAX compiles it and as it is planned for half of its memory, and its second argument."""
    steps = np.full((200, WIDTH), 1e-3, "float32")
    fast = jax.jit(request.param)
    plain = fast.lower(np.zeros(WIDTH, "float32"), steps).compile().memory_analysis()
    exists = plain.argument_size_in_bytes + plain.output_size_in_bytes
    found = eqsat.optimize(request.param, budget=exists + plain.temp_size_in_bytes // 2)
    assert found.plan(np.zeros(WIDTH, "float32"), steps).peak_bytes < exists + plain.temp_size_in_bytes
    return fast, found, steps


@given(st.lists(NUMBERS, min_size=WIDTH, max_size=WIDTH))
@settings(max_examples=60, derandomize=True)
def test_the_plan_agrees_for_all_numbers(planned: Any, x: list[float]) -> None:
    """Squares overflow, and infinities have no differences, in the plan where they do in JAX."""
    fast, found, steps = planned
    state = np.float32(x)
    # What is subtracted is a mean: of 200 sums, each rounds by half a digit at most.
    sizes = np.where(np.isfinite(state), np.abs(np.float64(state)), 0)
    rounded = (len(steps) * 2.0**-24 * sizes) ** 2
    both = jax.tree.map(np.float64, (found(state, steps), fast(state, steps)))
    for one, other in zip(*map(jax.tree.leaves, both), strict=True):
        for found_entry, entry, error in zip(one, other, rounded, strict=True):
            if error > np.finfo(np.float32).max and not np.isnan(entry):
                # One mean may be exact, and the square of the other one's error overflow.
                assert not np.isnan(found_entry)
                continue
            np.testing.assert_allclose(found_entry, entry, rtol=1e-4, atol=error)


def test_the_variance_of_a_long_history_fits() -> None:
    def simulated(x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            state = state + 0.01 * jnp.sin(3 * state)
            return state, state

        states = lax.scan(step, x, None, length=1000)[1]
        return states.mean(0), states.std(0)

    x = np.linspace(0.1, 0.9, 2000, dtype="float32")
    found = eqsat.optimize(simulated, budget="200KB")
    plain = jax.jit(simulated)
    assert plain.lower(x).compile().memory_analysis().temp_size_in_bytes > 7_000_000
    assert found.plan(x).peak_bytes <= 200_000
    for one, other in zip(found(x), plain(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_the_last_of_a_function_fits_beside_a_variance() -> None:
    def simulated(x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            state = state + 0.01 * jnp.sin(3 * state) - 0.001 * state.mean()
            return state, state

        states = lax.scan(step, x, None, length=1000)[1]
        return jnp.tanh(states)[-1], jnp.var(states, 0)

    x = np.linspace(0.1, 0.9, 2000, dtype="float32")
    found = eqsat.optimize(simulated, budget="100KB")
    assert found.plan(x).peak_bytes <= 100_000
    for one, other in zip(found(x), jax.jit(simulated)(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_the_gradient_of_a_skewness_after_a_burn_in_fits() -> None:
    def loss(x: Any) -> Any:
        def step(state: Any, time: Any) -> Any:
            state = state + 0.05 * jnp.sin(x * time) - 0.01 * jnp.tanh(state + jnp.roll(state, 1))
            return state, state

        states = lax.scan(step, x, jnp.arange(1000) / 40)[1][100:]
        deviations = (states - states.mean(0)) / states.std(0)
        return jnp.sum((jnp.mean(deviations**3, 0) - 1) ** 2)

    x = np.linspace(0.3, 0.9, 500, dtype="float32")
    plain, found = jax.jit(jax.grad(loss)), eqsat.optimize(jax.grad(loss), budget="600KB")
    assert plain.lower(x).compile().memory_analysis().temp_size_in_bytes > 3_900_000
    assert found.plan(x).peak_bytes <= 600_000
    one, other = found(x), plain(x)
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


def pendulums(x: Any, speed: Any) -> tuple[Any, Any]:
    """400 states of coupled pendulums, and their speeds."""

    def step(state: Any, _: Any) -> Any:
        x, speed = state
        speed = speed - 0.02 * (jnp.sin(x) - 0.5 * (jnp.roll(x, 1, 0) - x) + 0.1 * x.mean(0))
        return (x + 0.02 * speed, speed), (x + 0.02 * speed, speed)

    return lax.scan(step, (x, speed), None, length=400)[1]


def energies(x: Any, speed: Any) -> Any:
    states, speeds = pendulums(x, speed)
    return jnp.mean(jnp.sum(speeds**2 / 2 - jnp.cos(states), -1), -1)


def displacements(x: Any, speed: Any) -> Any:
    states, _ = pendulums(x, speed)
    return jnp.mean(jnp.sum((states - states[0]) ** 2, -1), -1)


def drift_of_the_largest(x: Any, speed: Any) -> Any:
    states, speeds = pendulums(x, speed)
    each = speeds**2 / 2 - jnp.cos(states)
    return jnp.max(jnp.abs(each - each[0]), (0, 1)), states[50], states[::80].sum(0)


OBSERVABLES = [energies, displacements, drift_of_the_largest]


@pytest.mark.parametrize("observed", OBSERVABLES)
def test_what_is_observed_of_every_state_needs_no_history(observed: Callable[..., Any]) -> None:
    x, speed = normal(700, 3), normal(700, 3, seed=1)
    found = eqsat.optimize(observed, budget="150KB")
    assert jax.jit(observed).lower(x, speed).compile().memory_analysis().temp_size_in_bytes > 3_300_000
    assert found.plan(x, speed).peak_bytes <= 150_000
    for one, other in zip(jax.tree.leaves(found(x, speed)), jax.tree.leaves(observed(x, speed)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def energies_after_a_while(x: Any, speed: Any) -> Any:
    _, speeds = pendulums(x, speed)
    return jnp.mean(jnp.sum(speeds[100:] ** 2, -1), -1)


def displacements_after_a_while(x: Any, speed: Any) -> Any:
    states = pendulums(x, speed)[0][100::3]
    return jnp.mean(jnp.sum((states - states[0]) ** 2, -1), -1)


FITTED = [energies, displacements, energies_after_a_while, displacements_after_a_while]


@pytest.mark.parametrize("observed", FITTED)
def test_the_gradient_of_a_fit_to_what_was_observed_needs_no_history(observed: Callable[..., Any]) -> None:
    """The derivative by each state reads what was observed of that state, beside the state itself."""
    x, speed = normal(700, 3), normal(700, 3, seed=1)
    seen = 0.1 * normal(400)

    def loss(x: Any, speed: Any) -> Any:
        found = observed(x, speed)
        return jnp.mean((found - seen[: len(found)]) ** 2)

    gradient = jax.value_and_grad(loss, (0, 1))
    plain, found = jax.jit(gradient), eqsat.optimize(gradient, budget="1MB")
    assert plain.lower(x, speed).compile().memory_analysis().temp_size_in_bytes > 9_000_000
    assert found.plan(x, speed).peak_bytes <= 1_000_000
    leaves = zip(jax.tree.leaves(found(x, speed)), jax.tree.leaves(plain(x, speed)), strict=True)
    for one, other in leaves:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * np.abs(other).max())


def test_two_slices_of_one_array_are_not_taken_for_each_other() -> None:
    """The differences of a + b need b[1:] and b[:-1], beside those of a history."""

    def differences(xs: Any) -> Any:
        states = lax.scan(lambda state, x: (state + x, state + x), jnp.zeros(3), xs)[1]
        steps = jnp.diff(states + xs, axis=0)
        return jnp.einsum("ti,tj->ij", steps, steps), states.T @ states

    xs = normal(127, 3)
    memory = jax.jit(differences).lower(xs).compile().memory_analysis()
    fixed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    small = eqsat.optimize(differences, budget=fixed + memory.temp_size_in_bytes // 2, max_slowdown=None)
    for one, other in zip(differences(xs), small(xs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
