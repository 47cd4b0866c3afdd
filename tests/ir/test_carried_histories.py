"""Of what a scan stacks, the last entry alone and what is only reduced are carries."""

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
from eqsat.ir.carried_histories import with_histories_carried
from eqsat.ir.control import Scan
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from examples.measure import plain_peak
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

X = normal(6, 5)


def stacked(program: Program) -> int:
    """The number of results that scans of a program stack."""
    calls = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque)}
    return sum(
        len(call.out_layouts) - len(call.control.carried) for call in calls if isinstance(call.control, Scan)
    )


def steps(x: Any, reverse: bool = False) -> Any:
    def step(total: Any, row: Any) -> Any:
        return total + row, (jnp.sin(total * row), total > 0, jnp.int32(total))

    return lax.scan(step, jnp.zeros(5), x, reverse=reverse)


def with_steps(x: Any, read: Callable[[Any, Any], Any]) -> Any:
    return read(*steps(x))


CASES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "the last": (lambda x: steps(x)[1][0][-1], 2),
    "by its number": (lambda x: steps(x)[1][0][5], 2),
    "each the last": (lambda x: [entry[-1] for entry in steps(x)[1]], 0),
    "the last, and the carry": (lambda x: with_steps(x, lambda total, rows: (total, rows[1][-1])), 2),
    "the last to be computed": (lambda x: steps(x, reverse=True)[1][0][0], 2),
    "another": (lambda x: steps(x)[1][0][2], 3),
    "the first of a scan in reverse": (lambda x: steps(x, reverse=True)[1][0][-1], 3),
    "all": (lambda x: steps(x)[1][0], 3),
    "the last, and all": (lambda x: with_steps(x, lambda _, rows: (rows[0][-1], rows[0])), 3),
    "two": (lambda x: steps(x)[1][0][-2:], 2),
    "most": (lambda x: steps(x)[1][0][-4:], 3),
    "a part of the last": (lambda x: steps(x)[1][0][-1, :3], 3),
}


def check(function: Callable[[Any], Any], left: int, tolerance: float, x: Any = X) -> None:
    """The results are the same, and so many are stacked."""
    program, constants = lowered(jax.jit(function), x)
    found = with_histories_carried(program)
    check_program(found)
    for before, after in zip(
        interpret(program, [x, *constants]), interpret(found, [x, *constants]), strict=True
    ):
        assert before.dtype == after.dtype
        np.testing.assert_allclose(before, after, rtol=tolerance, atol=tolerance)
    assert stacked(found) == left


@pytest.mark.parametrize("name", CASES)
def test_a_stack_of_which_the_last_entry_is_read_is_a_carry(name: str) -> None:
    check(*CASES[name], tolerance=0)


TARGETS = normal(6, 5)

REDUCED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "sum": (lambda x: steps(x)[1][0].sum(0), 2),
    "mean": (lambda x: steps(x)[1][0].mean(0), 2),
    "of everything": (lambda x: steps(x)[1][0].mean(), 2),
    "largest and least": (lambda x: with_steps(x, lambda _, rows: (rows[0].max(0), rows[0].min())), 2),
    "product of integers": (lambda x: steps(x)[1][2].prod(0), 2),
    "truths": (lambda x: with_steps(x, lambda _, rows: (rows[1].any(0), rows[1].all(0))), 2),
    "how often": (lambda x: steps(x)[1][1].sum(0), 2),
    "of a function": (lambda x: jnp.sum(jnp.exp(steps(x)[1][0]) * 2 + x[0], 0), 2),
    "of differences from rows": (lambda x: jnp.mean((steps(x)[1][0] - TARGETS) ** 2), 2),
    "of two": (lambda x: with_steps(x, lambda _, rows: (rows[0] * rows[2]).sum(0)), 2),
    "and the last": (lambda x: with_steps(x, lambda _, rows: (rows[0].sum(0), rows[0][-1])), 2),
    "of the last three": (lambda x: steps(x)[1][0][3:].mean(0), 2),
    "of every other one": (lambda x: jnp.max(steps(x)[1][0][1:6:2] * x[0], (0, 1)), 2),
    "of two parts": (lambda x: with_steps(x, lambda _, r: (r[0][:2].sum(0), r[0][2:].min(0), r[0][-1])), 2),
    "of parts that meet": (lambda x: with_steps(x, lambda _, r: (r[0][1:] - r[0][:-1]).sum(0)), 3),
    "of a part and all": (
        lambda x: with_steps(x, lambda _, r: (r[0][:2, None] * r[0]).sum((0, 1))),
        3,
    ),
    "of a part and all, one by one": (
        lambda x: with_steps(x, lambda _, r: (r[0][:2, None] * r[0]).sum(0).max(0)),
        3,
    ),
    "of a part and a function of it": (
        lambda x: with_steps(x, lambda _, r: (r[0][:2] * r[0][:2].sum(0)).sum(0)),
        3,
    ),
    "of a part and rows": (lambda x: jnp.sum(steps(x)[1][0][2:] * x[2:], 0), 2),
    "in reverse": (lambda x: steps(x, reverse=True)[1][0].sum(0), 2),
    "of the iterations' numbers": (lambda x: (steps(x)[1][0] * jnp.arange(6.0)[:, None]).sum(0), 2),
    "along the rows alone": (lambda x: steps(x)[1][0].sum(1), 3),
    "variance": (lambda x: steps(x)[1][0].var(0), 3),
    "place of the largest": (lambda x: jnp.argmax(steps(x)[1][0], 0), 2),
    "and all": (lambda x: with_steps(x, lambda _, rows: (rows[0].sum(0), rows[0])), 3),
}


@pytest.mark.parametrize("name", REDUCED)
def test_a_stack_that_is_only_reduced_is_a_carry(name: str) -> None:
    check(*REDUCED[name], tolerance=1e-12)


MIXING, READOUT, WEIGHTS = normal(5, 5), normal(5, 3), normal(6)


LONG = normal(40, 5)
SEEN = normal(20, 5, seed=1)


def lagged(read: Callable[[Any], Any], reverse: bool = False, result: int = 0) -> Callable[[Any], Any]:
    """What is read of one of the stacked results of a long scan."""
    return lambda x: read(steps(x, reverse)[1][result])


LAGGED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "squared jumps": (lagged(lambda h: ((h[1:] - h[:-1]) ** 2).mean(0)), 2),
    "crossings": (lagged(lambda h: ((h[1:] > 0) & (h[:-1] <= 0)).sum(0)), 2),
    "products two apart, after some": (lagged(lambda h: (h[8:-1] * h[6:-3]).sum()), 2),
    "second differences": (lagged(lambda h: jnp.abs(h[2:] - 2 * h[1:-1] + h[:-2]).max(0)), 2),
    "of every fourth": (lagged(lambda h: (h[3::4] * h[2::4]).sum(0)), 2),
    "in reverse": (lagged(lambda h: (h[1:] * h[:-1] ** 2).sum(0), reverse=True), 2),
    "truths": (lagged(lambda h: (h[1:] != h[:-1]).sum(0), result=1), 2),
    "numbers": (lagged(lambda h: (h[1:] * h[:-1]).sum(0), result=2), 2),
    "two distances": (lagged(lambda h: ((h[1:] * h[:-1]).sum(0), (h[2:] * h[:-2]).min(0), h.max(0))), 2),
    "of a part": (lagged(lambda h: (h[10:][1:] * h[10:][:-1]).sum(0)), 2),
    "of every third of a part": (lagged(lambda h: (h[4::3][2:] * h[4::3][1:-1]).sum(0)), 3),
    "far apart": (lagged(lambda h: (h[3:] * h[:-3]).sum(0)), 3),
    "of other steps": (lagged(lambda h: (h[:20] * h[::2]).sum(0)), 3),
    "and rows": (lambda x: lagged(lambda h: ((h[1:] - h[:-1]) * x[1:]).sum(0))(x), 2),
    "and rows of other iterations": (lambda x: lagged(lambda h: ((h[1:] - h[:-1]) * x[:-1]).sum(0))(x), 2),
    "distances from what was observed": (lagged(lambda h: jnp.mean((h[3::4] - SEEN[:10]) ** 2)), 2),
    "from one that was observed": (lagged(lambda h: jnp.sum((h[20:] - SEEN[5]) ** 2 * SEEN[:, :1], 0)), 2),
    "observed, in reverse": (lagged(lambda h: ((h[7:27] - SEEN) * h[6:26]).sum(0), reverse=True), 2),
    "of two, after some": (lambda x: with_steps(x, lambda _, r: (r[0][9:] * r[2][9:]).sum(0)), 2),
    "of two, one apart": (lambda x: with_steps(x, lambda _, r: jnp.where(r[1][:-1], r[0][1:], 1).prod(0)), 2),
    "of two, each later": (
        lambda x: with_steps(x, lambda _, r: ((r[0][1:] * r[2][:-1]).sum(0), (r[0][:-1] * r[2][1:]).sum(0))),
        2,
    ),
    "and their mean": (lagged(lambda h: ((h[1:] - h[1:].mean(0)) ** 2).sum(0)), 3),
    "and one entry": (lagged(lambda h: (h[1:] - h[:-1] + h[4]).sum(0)), 3),
    "with other names": (lagged(lambda h: (h[1:, :, None] * h[:-1, None, :]).sum(0)), 2),
    "each with each": (lagged(lambda h: (h[1:, None] * h[None, :-1]).sum((0, 1))), 3),
}


@pytest.mark.parametrize("name", LAGGED)
def test_entries_of_several_iterations_are_read_without_all_in_between(name: str) -> None:
    check(*LAGGED[name], tolerance=1e-6, x=LONG)


@settings(max_examples=25 if THOROUGH else 8, derandomize=True)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True),
    st.integers(2, 60),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(["int8", "uint32", "float32", "float16"]),
    st.sampled_from(["max", "min", "count", "sum"]),
    st.booleans(),
    st.booleans(),
)
def test_random_parts_of_histories_mean_the_same(
    starts: list[int], most: int, stride: int, reverse: bool, dtype: str, kind: str, two: bool, rows: bool
) -> None:
    count = min(most, (76 - max(starts)) // stride)
    rng = np.random.default_rng(most)
    x = rng.integers(-100, 100, (80, 3)).astype(dtype)
    if dtype.startswith("float"):
        x.flat[rng.integers(0, x.size, 12)] = [np.nan, np.inf, -np.inf, -0.0] * 3

    def function(x: Any) -> Any:
        h = lax.scan(lambda s, row: (row, (row * s + row, s)), jnp.ones_like(x[0]), x, reverse=reverse)[1]
        parts = [
            h[two * number % 2][start : start + stride * (count - 1) + 1 : stride]
            for number, start in enumerate(starts)
        ]
        value = jnp.where(x[:count] > 0, parts[0], x[80 - count :]) if rows else parts[0]
        for part in parts[1:]:
            value = jnp.where(value > part, value, part - value)
        if kind == "count":
            return (value > parts[-1]).sum(0)
        if kind == "sum" and dtype.startswith("float"):
            return jnp.isfinite(value).sum(0)
        return getattr(value, kind)(0)

    program, constants = lowered(jax.jit(function), x)
    found = with_histories_carried(program)
    check_program(found)
    assert stacked(found) == 1 + (max(starts) - min(starts) > 80 // 16)
    (wanted,), (result,) = interpret(program, [x, *constants]), interpret(found, [x, *constants])
    np.testing.assert_array_equal(wanted, result)
    np.testing.assert_array_equal(eqsat.optimize(function, budget="1GB")(x), jax.jit(function)(x))


def test_the_spikes_of_a_population_are_counted_as_they_come() -> None:
    def spikes(x: Any) -> Any:
        def step(v: Any, t: Any) -> Any:
            v = jnp.sin(1.1 * v + t) + 0.1 * v.mean()
            return v, v

        v = lax.scan(step, x, jnp.arange(2_000.0))[1][500:]
        crossed = (v[1:] > 0) & (v[:-1] <= 0)
        return crossed.sum(0), jnp.abs(v[1:] - v[:-1]).mean(0)

    x = normal(500)
    optimized = eqsat.optimize(spikes, budget="200kB")
    assert optimized.plan(x).peak_bytes <= 200_000 < plain_peak(spikes, [x])
    for found, wanted in zip(optimized(x), jax.jit(spikes)(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def states(x: Any) -> Any:
    """States whose entries depend on one another."""

    def step(state: Any, row: Any) -> Any:
        state = jnp.tanh(state @ MIXING + row)
        return state, state

    return lax.scan(step, jnp.zeros(5), x)[1]


COMPUTED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "the mean of a readout": (lambda x: jnp.mean((states(x) @ READOUT[:, 0] - WEIGHTS) ** 2), 0),
    "the loss of a readout of a batch": (
        lambda x: jnp.mean((jax.vmap(states)(x * jnp.arange(17.0)[:, None, None]) @ READOUT - 1) ** 2),
        0,
    ),
    "a readout of one row by a large matrix": (lambda x: jnp.mean((states(x) @ READOUT) ** 2), 1),
    "the largest length": (lambda x: jnp.sqrt(jnp.sum(states(x) ** 2, 1)).max(), 0),
    "weighted by the iterations' numbers": (lambda x: jnp.einsum("t,td->d", WEIGHTS, states(x)), 0),
    "products with rows": (lambda x: jnp.einsum("td,td->", TARGETS, states(x)), 0),
    "products with rows and a column": (lambda x: jnp.einsum("td,d,td->", TARGETS, X[0], states(x)), 0),
    "products of narrow floats": (
        lambda x: lax.dot_general(
            WEIGHTS.astype(jnp.bfloat16),
            states(x).astype(jnp.bfloat16),
            (((0,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        ),
        1,
    ),
    "second moments": (lambda x: with_states(x, lambda states: states.T @ states), 1),
    "the readout of the last half": (lambda x: (states(x)[3:] @ READOUT[:, 1]).max(0), 0),
    "products of the last half": (lambda x: jnp.einsum("td,td->d", TARGETS[3:], states(x)[3:]), 0),
    "a readout that depends on the states": (
        lambda x: with_states(x, lambda states: (states @ states.sum(0)).max()),
        1,
    ),
    "distances of all pairs": (
        lambda x: with_states(x, lambda states: jnp.sum((states[:, None] - states[None]) ** 2)),
        1,
    ),
    "a sum of what may be cut": (
        lambda x: jax.vmap(lambda x: steps(x)[1][0])(x * jnp.arange(17.0)[:, None, None]).sum(0).max(),
        3,
    ),
    "a sum of few that may be cut": (lambda x: steps(x)[1][0].sum(1).max(), 2),
}


def with_states(x: Any, read: Callable[[Any], Any]) -> Any:
    return read(states(x))


@pytest.mark.parametrize("name", COMPUTED)
def test_what_an_iteration_computes_of_its_entry_is_reduced(name: str) -> None:
    check(*COMPUTED[name], tolerance=1e-12)


def test_exact_sums_keep_their_order_and_extremes_need_none() -> None:
    def read(x: Any) -> Any:
        return with_steps(x, lambda _, rows: (rows[0].sum(0), rows[2].sum(0), rows[1].any(0)))

    program, _ = lowered(jax.jit(read), X)
    assert stacked(with_histories_carried(program)) == 0
    assert stacked(with_histories_carried(program, exact=True)) == 1


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint32", "complex64"])
def test_hostile_entries_are_reduced_as_in_plain_jax(dtype: str) -> None:
    rng = np.random.default_rng(0)
    numbers = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3.5, 6e4])
    if dtype in ("int8", "uint32"):
        numbers = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 8, dtype=np.int64)
    # Columns of each number alone, of few, and of all.
    columns = [
        rng.choice(numbers[: 1 + n % 8], 60) if n % 3 else np.full(60, numbers[n % 8]) for n in range(2000)
    ]
    x = jnp.asarray(np.stack(columns, 1)).astype(dtype)
    real, whole = dtype != "complex64", dtype in ("int8", "uint32")

    def doubled(x: Any) -> Any:
        return lax.scan(lambda carry, row: (carry, row[::-1] + row[::-1]), 0, x)[1]

    def reduced(x: Any) -> Any:
        rows = doubled(x)
        extremes = (rows.max(0), rows.min(0)) if real else ()
        return rows.sum(0), (rows != 0).all(0), *((rows.prod(0),) if whole else ()), *extremes

    wanted = list(jax.jit(reduced)(x))
    if real:  # XLA's extremes lose NaN of some lengths, and NumPy's none.
        rows = np.asarray(doubled(x), np.float64)
        wanted[-2:] = jnp.asarray(rows.max(0)).astype(dtype), jnp.asarray(rows.min(0)).astype(dtype)
    optimized = eqsat.optimize(reduced, budget=int(0.8 * plain_peak(reduced, (x,))))
    assert optimized.plan(x).changed
    for one, other in zip(optimized(x), wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(
            np.asarray(one, np.complex128), np.asarray(other, np.complex128), rtol=1e-2
        )


def test_batches_of_a_loop_that_is_reduced_as_a_whole_are_still_taken_in_chunks() -> None:
    def largest(x: Any, w: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            state = jnp.tanh(row[:, None] * w + state)
            return state, jnp.sort(state, 1)[:, -1]

        return lax.scan(step, jnp.zeros((x.shape[1], len(w))), x)[1].max()

    x, w = normal(10, 3000), normal(200)
    state = 4 * 3000 * 200
    optimized = eqsat.optimize(largest, budget=x.nbytes + w.nbytes + state // 4)
    assert optimized.plan(x, w).peak_bytes <= x.nbytes + w.nbytes + state // 4
    np.testing.assert_allclose(optimized(x, w), jax.jit(largest)(x, w), rtol=1e-6)


def test_the_mean_of_a_long_history_is_in_a_budget_without_it() -> None:
    def averaged(x: Any, y: Any) -> Any:
        def step(weights: Any, _: Any) -> Any:
            weights = weights - 0.1 * x.T @ (x @ weights - y) / len(x)
            return weights, weights

        return lax.scan(step, jnp.zeros((x.shape[1], y.shape[1])), None, length=200)[1].mean(0)

    x, y = normal(16, 3000), normal(16, 2)
    history = 200 * 3000 * 2 * 4
    optimized = eqsat.optimize(averaged, budget="600kB")
    assert optimized.plan(x, y).peak_bytes <= 600_000 < history
    np.testing.assert_allclose(optimized(x, y), jax.jit(averaged)(x, y), rtol=1e-4, atol=1e-6)


def test_the_labels_of_k_means_are_not_kept_for_every_iteration() -> None:
    def labels(points: Any) -> Any:
        def step(centres: Any, _: Any) -> Any:
            nearest = jnp.argmin(jnp.sum((points[:, None] - centres) ** 2, -1), 1)
            weights = jax.nn.one_hot(nearest, 8)
            return (weights.T @ points) / jnp.maximum(weights.sum(0), 1)[:, None], nearest

        centres, found = lax.scan(step, points[:8], None, length=50)
        return centres, found[-1]

    points = normal(4000, 3)
    optimized = eqsat.optimize(labels, budget="300kB")
    plan = optimized.plan(points)
    assert plan.peak_bytes <= 300_000 < 50 * 4 * 4000
    for one, other in zip(optimized(points), jax.jit(labels)(points), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def long_sum(x: Any) -> Any:
    return lax.scan(lambda c, row: (c, 2 * row), jnp.float32(0), x)[1].sum()


def test_long_sums_are_compensated() -> None:
    """As a plain carry in single precision, 3 million times 0.2 come to 581,550."""
    x = np.full(3_000_000, 0.1, np.float32)
    optimized = eqsat.optimize(long_sum, budget=x.nbytes + 10_000)
    assert abs(float(optimized(x)) / 600_000 - 1) < 2e-7


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [(np.inf, 1, np.inf), (-np.inf, 1, -np.inf), (np.inf, -np.inf, np.nan), (np.nan, 1, np.nan)],
)
def test_compensated_sums_of_infinities_are_infinite(first: float, second: float, wanted: float) -> None:
    x = np.full(5_000, 0.1, np.float32)
    x[1_000], x[3_000] = first, second
    optimized = eqsat.optimize(long_sum, budget=x.nbytes + 5_000)
    np.testing.assert_equal(float(optimized(x)), wanted)
    assert "is_finite" in optimized.plan(x).source
