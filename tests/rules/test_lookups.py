"""Entries at given indices: of one-hot products, and of computed tables."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.rules.proving import cannot_prove, fires, optimized, prove
from tests.stages import normal

ARRAYS = (
    "b: int32 j   i: int32 i   c: int32 k   v: n   u: n   s:   t: n k   r: n k   w: k   a: i k   m: n k   "
    "g: n i   d: n l k   e: n k"
)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        (
            "one-hot-choice one-hot-product add-zero",
            "jax.nn.one_hot(b, 11) @ t",
            "sum(where(b[:, None, None] == arange(11)[:, None], t, 0), 1)",
        ),
        ("look-up-of-map", "exp(t)[b]", "exp(t[b])"),
        ("look-up-of-map", "(-t)[3]", "-(t[3])"),
        ("look-up-of-both", "(t + r)[b]", "t[b] + r[b]"),
        ("look-up-of-first", "(t / w)[b]", "t[b] / w"),
        ("look-up-of-second", "(w ** t)[b]", "w ** t[b]"),
        ("look-up-of-map look-up-of-second", "exp(s - t)[b]", "exp(s - t[b])"),
        ("look-up-of-first look-up-of-three", "where(t > s, t, r)[b]", "where(t[b] > s, t[b], r[b])"),
        ("look-up-of-three-but-first", "where(w > s, t, r)[b]", "where(w > s, t[b], r[b])"),
        ("look-up-of-first look-up-of-three-but-second", "where(t > s, r, w)[b]", "where(t[b] > s, r[b], w)"),
        ("look-up-of-first look-up-of-three-but-third", "where(t > s, w, r)[b]", "where(t[b] > s, w, r[b])"),
        ("look-up-of-first look-up-of-first-of-three", "where(t > s, w, s)[b]", "where(t[b] > s, w, s)"),
        ("look-up-of-second-of-three", "where(w > s, w, r)[b]", "where(w > s, w, r[b])"),
        ("look-up-of-third-of-three", "where(w > s, t, w)[b]", "where(w > s, t[b], w)"),
        ("look-up-of-reduction", "max(t, 1)[b]", "max(t[b], 1)"),
        ("look-up-of-product", "(a @ m.T)[:, 3]", "a @ m[3]"),
        ("look-up-of-batched-product", "einsum('nlk,nk->nl', d, e)[b]", "einsum('jlk,jk->jl', d[b], e[b])"),
        # by two indices: first along one axis, then along the other
        (
            "look-up-of-map look-up-of-first look-up-of-second",
            "exp(v[:, None] - u)[b[:, None], i]",
            "exp(v[b][:, None] - u[i])",
        ),
    ],
)
def test_identities(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("look-up-of-product", "(a @ m.T)[3]", "a @ m[3]"),
        ("look-up-of-map", "exp(t)[b]", "exp(t)[b] * 1"),
        ("look-up-of-reduction", "max(t, 0)[c]", "max(t[b], 0)"),
    ],
)
def test_what_is_not_so(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        # indices from other places
        ("one-hot-product", "(v[:7, None] == arange(11)).astype(float32) @ v"),
        ("one-hot-product", "(b[:, None] != arange(11)).astype(float32) @ v"),
    ],
)
def test_what_is_left_alone(rule: str, expression: str) -> None:
    assert not fires(rule, expression, ARRAYS)


def test_a_look_up_in_a_product_needs_one_row_of_it() -> None:
    plan = optimized("(x @ y.T)[17]", "x: 1999 16   y: 2111 16", 400_000)
    assert "look-up-of-product" in plan.rules_fired
    assert "lax.scan" not in plan.source


def test_a_one_hot_matrix_is_not_made() -> None:
    plan = optimized("jax.nn.one_hot(b, 3001) @ t", "b: int32 500   t: 3001 16", 400_000)
    assert set(plan.rules_fired) == {"one-hot-product"}


def kernel_matrix(x: jax.Array) -> jax.Array:
    return jnp.exp(-jnp.sum((x[:, None] - x) ** 2, -1) / 2)


def test_rows_of_a_matrix_that_loops_look_up_are_computed_where_they_are() -> None:
    """A greedy choice of points: each is the farthest from those before."""

    def chosen(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrix = jnp.pad(kernel_matrix(x), ((0, 1), (0, 1)))

        def further(state: Any, _: None) -> tuple[Any, jax.Array]:
            places, count = state
            pairs = matrix[places[:, None], places]
            nearest = jnp.max(matrix[places], 0)[:-1] + jnp.sum(pairs)
            place = jnp.argmin(nearest)
            return (places.at[count].set(place), count + 1), nearest[place]

        state = jnp.full(5, len(x)).at[0].set(0), jnp.int32(1)
        (places, _), values = jax.lax.scan(further, state, None, 4)
        return places, values

    x = normal(700, 3)
    optimised = eqsat.optimize(chosen, budget="200kB")
    assert optimised.plan(x).original_peak_bytes > 1_900_000
    for one, other in zip(optimised(x), chosen(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    ("mode", "value"), [("fill", np.nan), ("clip", np.inf), ("promise_in_bounds", -0.0), ("clip", np.nan)]
)
def test_what_is_looked_up_is_right_for_any_table(mode: str, value: float) -> None:
    """Bit for bit, beside entries that are not finite, and with indices that are out of bounds."""
    x = normal(300, 2)
    x[7], x[0, 1], x[299] = value, value, value
    rows = np.array([7, 3, 299, 0], np.int32)
    if mode != "promise_in_bounds":
        rows = np.concatenate([rows, np.array([300, 2**31 - 1, -301, -(2**31)], np.int32)])

    def entries(x: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        table = abs(x[:, 0, None] + x[:, 1]) * 3
        at = {"mode": mode, "wrap_negative_indices": False}
        return table.at[rows].get(**at), table.at[rows[:, None], rows].get(**at)

    optimised = eqsat.optimize(entries, budget="60kB", accuracy="exact")
    assert "look-up-of-map" in optimised.plan(x, rows).rules_fired
    for one, other in zip(optimised(x, rows), jax.jit(entries)(x, rows), strict=True):
        np.testing.assert_array_equal(one, other)
