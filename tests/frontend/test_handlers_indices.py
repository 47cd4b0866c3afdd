"""Indices that count along a dimension make rows a batch, with the same results, also out of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.frontend.lower import lower
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque

N, M, K = 40, 30, 3


def dimension_numbers(function: Callable[..., Any], *args: Any) -> list[Any]:
    """Returns those of all gathers and scatters in the lowered function."""
    program, _ = lower(jax.make_jaxpr(function)(*args))
    calls = [term.op.call for term in program.known() if isinstance(term.op, Opaque)]
    return [call.params["dimension_numbers"] for call in calls if "dimension_numbers" in call.params]


def entries(x: Any, labels: Any) -> Any:
    return x[jnp.arange(len(x)), labels]


def columns(x: Any, labels: Any) -> Any:
    return x.T[labels, jnp.arange(len(x))]


def several(x: Any, labels: Any) -> Any:
    return x[jnp.arange(len(x))[:, None], jnp.stack([labels, labels - 1, labels + 5], 1)]


def of_fewer(x: Any, labels: Any) -> Any:
    return jnp.concatenate([x, x])[jnp.arange(len(x)), labels]


def slices(x: Any, labels: Any) -> Any:
    return jnp.stack([x, -x], 2)[jnp.arange(len(x)), labels]


def clipped(x: Any, labels: Any) -> Any:
    return x.at[jnp.arange(len(x)), labels].get(mode="clip")


def filled(x: Any, labels: Any) -> Any:
    return x.at[jnp.arange(len(x)), labels].get(mode="fill", fill_value=7)


def one_by_one(x: Any, labels: Any) -> Any:
    return jax.vmap(lambda row, label: x[row, label])(jnp.arange(len(x)), labels)


def columns_one_by_one(x: Any, labels: Any) -> Any:
    return jax.vmap(lambda row, label: x.T[label, row])(jnp.arange(len(x)), labels)


def windows(x: Any, labels: Any) -> Any:
    """Three entries of each row, from a place that is moved inside."""
    table = jnp.stack([x, -x], 0)

    def three(row: Any, label: Any) -> Any:
        return jax.lax.dynamic_slice(table, (0, row, label), (2, 1, 3))

    return jax.vmap(three)(jnp.arange(len(x)), labels)


def added(x: Any, labels: Any) -> Any:
    return x.at[jnp.arange(len(x)), labels].add(2)


def written(x: Any, labels: Any) -> Any:
    return x.at[jnp.arange(len(x)), labels].set(x[:, 0])


def largest(x: Any, labels: Any) -> Any:
    return x.at[jnp.arange(len(x)), labels].max(x[:, 1])


TAKING = [entries, columns, several, slices, clipped, filled, one_by_one, columns_one_by_one, windows]
FUNCTIONS = [*TAKING, of_fewer, added, written, largest]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_rows_are_a_batch(function: Callable[..., Any]) -> None:
    found = dimension_numbers(function, jnp.zeros((N, M)), jnp.zeros(N, jnp.int32))
    assert found
    assert all(numbers.operand_batching_dims for numbers in found)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, labels: x[jnp.arange(len(x)) + 1, labels],
        lambda x, labels: x[jnp.arange(len(x))[::-1], labels],
        lambda x, labels: x[labels, labels],
        lambda x, labels: x[:M][jnp.arange(N), labels],  # more indices than rows: those are out of bounds
        lambda x, labels: x.at[jnp.arange(M), labels[:M]].add(1.0),  # the rows below stay as they are
    ],
)
def test_other_indices_stay(function: Callable[..., Any]) -> None:
    found = dimension_numbers(function, jnp.zeros((N, M)), jnp.zeros(N, jnp.int32))
    assert found
    assert not any(numbers.operand_batching_dims for numbers in found)


LABELS = st.lists(st.integers(-2 * M, 2 * M), min_size=N, max_size=N)


@settings(max_examples=30)
@given(
    function=st.sampled_from(FUNCTIONS),
    labels=LABELS,
    dtype=st.sampled_from([jnp.float32, jnp.int8, jnp.complex64]),
    shift=st.sampled_from([0.0, -0.0, float("inf"), float("nan")]),
)
def test_results_are_the_same(
    function: Callable[..., Any], labels: list[int], dtype: Any, shift: float
) -> None:
    x = jnp.asarray((np.arange(N * M).reshape(N, M) % 100 - 50).astype(dtype))
    if dtype == jnp.float32:
        x = x.at[::7].set(shift)
    indices = jnp.asarray(labels, jnp.int32)
    program, constants = lower(jax.make_jaxpr(function)(x, indices))
    (found,) = interpret(program, [x, indices, *constants])
    np.testing.assert_array_equal(np.asarray(function(x, indices)), np.asarray(found))


@pytest.mark.parametrize("function", TAKING)
def test_a_table_that_is_computed_is_never_whole(function: Callable[..., Any]) -> None:
    n, m = 400, 300
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.standard_normal(length), jnp.float32) for length in (n, m))
    labels = jnp.asarray(rng.integers(-2 * m, 2 * m, n), jnp.int32)

    def of_products(x: Any, y: Any, labels: Any) -> Any:
        return function(x[:, None] * y, labels)

    optimized = eqsat.optimize(of_products, budget="60KB")
    plan = optimized.plan(x, y, labels)
    assert plan.peak_bytes < 60_000 < 4 * n * m
    np.testing.assert_array_equal(optimized(x, y, labels), jax.jit(of_products)(x, y, labels))


def test_rows_that_loops_follow_through_a_computed_table_are_a_batch() -> None:
    n, m = 300, 400

    def followed(x: Any, y: Any) -> Any:
        table = ((x[:, None] * y) % 7).astype(jnp.int32)

        def steps(row: Any) -> Any:
            def step(state: Any) -> Any:
                place, count, large = state
                return place + table[row, place] - 2, count + 1, large + (table[row, place] > 3)

            return jax.lax.while_loop(lambda s: (s[0] > 0) & (s[0] < m) & (s[1] < 50), step, (m // 2, 0, 0))

        return jax.vmap(steps)(jnp.arange(n))

    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.integers(0, 7, length), jnp.float32) for length in (n, m))
    optimized = eqsat.optimize(followed, budget="100KB")
    assert optimized.plan(x, y).peak_bytes < 100_000 < 4 * n * m
    for found, wanted in zip(optimized(x, y), jax.jit(followed)(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.nightly
def test_losses_of_labels_are_computed_in_chunks() -> None:
    """With the labels' logits by `logits[jnp.arange(n), labels]`, and the gradient."""

    def loss(hidden: Any, head: Any, labels: Any) -> Any:
        logits = hidden @ head
        picked = logits[jnp.arange(len(labels)), labels]
        return jnp.mean(jax.nn.logsumexp(logits, 1) - picked)

    rng = np.random.default_rng(0)
    hidden = jnp.asarray(rng.standard_normal((2_000, 16)), jnp.float32)
    head = jnp.asarray(rng.standard_normal((16, 2_500)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 2_500, 2_000))
    step = jax.value_and_grad(loss, (0, 1))
    optimized = eqsat.optimize(step, budget="4MB")
    assert optimized.plan(hidden, head, labels).original_peak_bytes > 40_000_000
    for a, b in zip(
        jax.tree.leaves(step(hidden, head, labels)),
        jax.tree.leaves(optimized(hidden, head, labels)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
