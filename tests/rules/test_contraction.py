"""The order of contractions, and what can be taken out of them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.rules.proving import cannot_prove, fires, optimized, prove

MATRICES = "a: i k   b: k j   c: j m   v: j   w: i"
SUMS = "x: i k   y: i k   c: i   d: k   e: k   s:   b: k j   t: i j k   u: i l   v: l k"
INTEGERS = "x: int32 i k   y: int32 i k   c: int32 i   b: int32 k j"
COMPLEX = "x: complex64 i k   y: complex64 i k   c: complex64 i   b: complex64 k j"
WIDENED = "x: int8 i k   b: int8 k j"


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        # (A B) C = A (B C), with matrices and vectors on either side, and along a batch
        ("reassociate", "(a @ b) @ c", "a @ (b @ c)"),
        ("reassociate", "(a @ b) @ v", "a @ (b @ v)"),
        ("reassociate", "w @ (a @ b)", "(w @ a) @ b"),
        ("reassociate", "a @ (b @ c)", "(a @ b) @ c"),
    ],
)
def test_associativity(rules: str, left: str, right: str) -> None:
    prove(left, right, MATRICES, rules)


def test_contractions_of_the_same_axis_are_not_reassociated() -> None:
    # b has the axis that the outer contraction is over: (sum_k a_ik b_ik) c_i summed over i.
    arrays = "a: i k   b: i k   c: i"
    cannot_prove("(a * b).sum(1) @ c", "((a.T @ c) * b).sum()", arrays, "reassociate sum-of-product")


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("sum-of-product", "sum(x * y, 1)", "einsum('ik,ik->i', x, y)"),
        ("sum-of-product", "sum(x * d, 1)", "x @ d"),
        ("sum-of-product", "sum(d * x, 1)", "x @ d"),
        ("sum-of-product", "sum(x[:, :, None] * b, 1)", "einsum('ik,kj->ij', x, b)"),
        ("pull-factor", "sum(c[:, None] * x, 1)", "c * sum(x, 1)"),
        ("pull-factor", "sum(x * s, 1)", "s * sum(x, 1)"),
        ("pull-factor", "sum(s * x, 0)", "s * sum(x, 0)"),
        ("pull-factor", "sum(d * x, 0)", "d * sum(x, 0)"),
        ("pull-divisor", "sum(x / c[:, None], 1)", "sum(x, 1) / c"),
        ("pull-divisor", "sum(x / s, (0, 1))", "sum(x, (0, 1)) / s"),
        ("pull-negation", "sum(-x, 1)", "-sum(x, 1)"),
        ("pull-negation", "-sum(x)", "sum(-x)"),
        ("pull-factor-from-dot", "(c[:, None] * x) @ b", "c[:, None] * (x @ b)"),
        ("pull-factor-from-dot", "b.T @ (x * s).T", "s * (x @ b).T"),
        ("pull-factor-from-dot", "x @ (d * s)", "s * (d @ x.T)"),
        ("pull-divisor-from-dot", "(x / c[:, None]) @ b", "(x @ b) / c[:, None]"),
        ("pull-divisor-from-dot", "x @ (d / s)", "(d @ x.T) / s"),
        ("pull-negation-from-dot", "(-x) @ b", "-(x @ b)"),
        ("pull-negation-from-dot", "-(b.T @ x.T)", "(x @ -b).T"),
        ("sum-through-dot", "sum(x @ b, 0)", "sum(x, 0) @ b"),
        ("sum-through-dot", "sum(x @ b, 1)", "sum(b, 1) @ x.T"),
        ("sum-of-diagonal-contraction", "sum(einsum('ijk,ik->ij', t, x), 0)", "einsum('ijk,ik->j', t, x)"),
        ("move-factor", "(x * d) @ e", "x @ (d * e)"),
        ("move-factor", "einsum('ijk,k->ij', d * t, e)", "einsum('ijk,k->ij', t, d * e)"),
    ],
)
def test_what_is_taken_out(rule: str, left: str, right: str) -> None:
    prove(left, right, SUMS, rule)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        # a term that has not got the axis
        ("dot-of-shifted", "(x + c[:, None]) @ b", "x @ b + c[:, None] * sum(b, 0)"),
        ("dot-of-shifted", "b.T @ (x + s).T", "(x @ b + s * sum(b, 0)).T"),
        ("dot-of-decreased", "(x - c[:, None]) @ b", "x @ b - c[:, None] * sum(b, 0)"),
        ("dot-of-complement", "(1 - x) @ b", "1 * sum(b, 0) - x @ b"),
        # a term with fewer axes
        ("dot-of-addition", "(x + d) @ b", "x @ b + d @ b"),
        ("dot-of-difference", "(x - d) @ b", "x @ b - d @ b"),
        ("dot-of-negative-difference", "(d - x) @ b", "d @ b - x @ b"),
        # a term of low rank
        ("dot-of-low-rank-sum", "(u @ v + x) @ b", "u @ (v @ b) + x @ b"),
        ("dot-of-low-rank-sum", "(x + u @ v) @ d", "u @ (v @ d) + x @ d"),
        ("dot-of-low-rank-difference", "(x - u @ v) @ b", "x @ b - u @ (v @ b)"),
    ],
)
def test_contractions_of_sums(rule: str, left: str, right: str) -> None:
    prove(left, right, SUMS, rule)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        # both terms are as large as the sum; a product is not of low rank
        ("dot-of-addition", "(x + y) @ b"),
        ("dot-of-difference", "(x - y) @ b"),
        ("dot-of-negative-difference", "(x - y) @ b"),
        ("dot-of-shifted", "(x + y) @ b"),
        ("dot-of-decreased", "(x - d) @ b"),
        ("dot-of-complement", "(x - y) @ b"),
        ("dot-of-low-rank-sum", "(x @ b @ b.T + x) @ b"),
        ("dot-of-low-rank-difference", "(x - x @ b @ b.T) @ b"),
        # the other operand is larger
        ("move-factor", "(d * e) @ b"),
    ],
)
def test_contractions_of_sums_that_are_left_alone(rule: str, expression: str) -> None:
    assert not fires(rule, expression, SUMS)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        # the factor, the divisor, the other operand has the summed axis
        ("pull-factor", "sum(d * x, 1)", "d * sum(x, 1)[:, None]"),
        ("pull-factor", "sum(c[:, None] * x, (0, 1))", "sum(c * sum(x, (0, 1)))"),
        ("pull-divisor", "sum(x / d, 1)", "sum(sum(x, 1)[:, None] / d, 1)"),
        ("pull-divisor", "sum(d / x, 0)", "d / sum(x, 0)"),
        ("pull-factor-from-dot", "(x * d) @ b", "(x @ b) * sum(d)"),
        ("pull-divisor-from-dot", "(x / d) @ b", "(x @ b) / sum(d)"),
        ("sum-of-product", "sum(x * y, 1)", "einsum('ik,ik->k', x, y)"),
        ("sum-of-product", "sum(x * s, 1)", "einsum('ik,k->i', x, s * ones(3))"),
        ("sum-through-dot", "sum(einsum('ik,ik->i', x, y))", "sum(x, 0) @ sum(y, 0)"),
        # what is pulled out of a sum of absolute values is not the sign
        ("pull-negation", "sum(abs(-x), 1)", "-sum(abs(x), 1)"),
        ("pull-negation-from-dot", "(-x) @ -b", "-(x @ b)"),
    ],
)
def test_what_stays(rule: str, left: str, right: str) -> None:
    cannot_prove(left, right, SUMS, rule)


def test_a_reduction_other_than_a_sum_keeps_its_factors() -> None:
    for kind in ("max", "prod", "min"):
        cannot_prove(f"{kind}(s * x, 1)", f"s * {kind}(x, 1)", SUMS, "pull-factor")


ADDED = (
    "p: 70   q: 90   r: 70 90   s:   x: 70 3   y: 90 3   u: 70 25   v: 590 25   w: 590"
    "   h: 2 70   g: 2 90   a: 2 70 3   b: 2 90 3   few: 50 3   f: 50"
)
BATCH = "einsum('lik,ljk->lij', a, b)"


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ("sums-into-negative-product", "p[:, None] + q - 2 * (x @ y.T)"),
        ("sums-into-negative-product", "q[:, None] + p - (y @ x.T) * s"),
        ("sums-into-negative-product", f"h[:, :, None] + g[:, None] - 2 * {BATCH}"),
        ("sums-into-product", "p[:, None] + q + x @ y.T"),
        ("sums-into-product", f"{BATCH} + (g[:, None] + h[:, :, None])"),
        ("sum-before-negative-product", "p[:, None] - 2 * (x @ y.T) + q"),
        ("sum-before-negative-product", "p[:, None] + (q - (x @ y.T) * s)"),
        ("sum-before-product", "p[:, None] + x @ y.T + q"),
        ("sum-before-product", "x @ y.T + q + p[:, None]"),
    ],
)
def test_what_is_added_to_a_product_is_in_it(rule: str, expression: str) -> None:
    assert fires(rule, expression, ADDED)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        # one term for each pair, a factor for each row, one row, many coordinates, few points
        ("sums-into-negative-product", "r + q - 2 * (x @ y.T)"),
        ("sums-into-negative-product", "p[:, None] + q - p[:, None] * (x @ y.T)"),
        ("sums-into-negative-product", "s + q - 2 * (x[0] @ y.T)"),
        ("sums-into-negative-product", "p[:, None] + w - 2 * (u @ v.T)"),
        ("sums-into-negative-product", "f[:, None] + f - 2 * (few @ few.T)"),
        ("sums-into-product", "f[:, None] + f + few @ few.T"),
        ("sums-into-product", "r + q + x @ y.T"),
        ("sums-into-product", "s + q + x[0] @ y.T"),
        ("sums-into-product", "p[:, None] + w + u @ v.T"),
        ("sum-before-negative-product", "r - 2 * (x @ y.T) + q"),
        ("sum-before-negative-product", "p[:, None] - p[:, None] * (x @ y.T) + q"),
        ("sum-before-product", "r + x @ y.T + q"),
        ("sum-before-product", "p[:, None] + u @ v.T + w"),
    ],
)
def test_what_stays_beside_a_product(rule: str, expression: str) -> None:
    assert not fires(rule, expression, ADDED)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ("sums-into-negative-product", "p[:, None] + q - s * wide(x, y.T)"),
        ("sums-into-product", "p[:, None] + q + wide(x, y.T)"),
        ("sum-before-product", "p[:, None] + wide(x, y.T) + q"),
    ],
)
@pytest.mark.parametrize(("dtype", "is_one"), [("bfloat16", False), ("float32", True)])
def test_numbers_of_one_dtype_are_not_appended_to_those_of_another(
    rule: str, expression: str, dtype: str, is_one: bool
) -> None:
    # JAX would make both of them wide, or round the numbers that are appended.
    arrays = f"p: 70   q: 90   s:   x: {dtype} 70 3   y: {dtype} 90 3"
    assert fires(rule, expression, arrays) == is_one


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "expression",
    [
        "exp(p[:, None] - 2 * x @ y.T + q).sum(1)",  # squared distances, as they are written out
        "exp(p[:, None] + q - 2 * (x @ y.T)).sum(1)",
        "jax.nn.sigmoid(x @ y.T + p[:, None] + q).sum(0)",  # a factorisation with biases
    ],
)
@pytest.mark.parametrize("width", [2, 3])
def test_sums_that_are_exponentiated_come_out_of_the_product(expression: str, width: int) -> None:
    arrays = f"p: 1499   q: 1201   x: 1499 {width}   y: 1201 {width}"
    assert "jnp.append" in optimized(f"({expression}) * 0.001", arrays, 1_000_000, "cancels").source


@pytest.mark.one_in(3)
@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_what_is_not_finite_stays_in_its_row(value: str) -> None:
    def pairs(x: Any, y: Any, p: Any, q: Any) -> Any:
        return jnp.exp(jnp.minimum(p[:, None] + q - 2 * (x @ y.T), 9)).sum(1)

    rng = np.random.default_rng(0)
    x, y, p, q = (rng.normal(size=shape).astype(np.float32) for shape in ((999, 3), (1201, 3), 999, 1201))
    p[17] = float(value)
    small = eqsat.optimize(pairs, budget=500_000, accuracy="cancels")
    assert "jnp.append" in small.plan(x, y, p, q).source
    # As jit fuses this, its minimum of NaN and 9 is 9.
    np.testing.assert_allclose(small(x, y, p, q), pairs(x, y, p, q), rtol=1e-4)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("pull-factor", "sum(c[:, None] * x, 1)", "c * sum(x, 1)"),
        ("pull-factor-from-dot", "(c[:, None] * x) @ b", "c[:, None] * (x @ b)"),
        ("pull-negation", "sum(-x, 1)", "-sum(x, 1)"),
        ("sum-through-dot", "sum(x @ b, 0)", "sum(x, 0) @ b"),
        ("sum-of-product", "sum(x * y, 1)", "einsum('ik,ik->i', x, y)"),
        ("dot-of-shifted", "(x + c[:, None]) @ b", "x @ b + c[:, None] * sum(b, 0)"),
    ],
)
def test_what_is_true_of_integers(rule: str, left: str, right: str) -> None:
    prove(left, right, INTEGERS, rule)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        # an integer division rounds every term
        ("pull-divisor", "sum(lax.div(x, full_like(x, 4)), 1)", "lax.div(sum(x, 1), full_like(c, 4))"),
        (
            "pull-divisor-from-dot",
            "lax.div(x, full_like(x, 4)) @ b",
            "lax.div(x @ b, full((5, 7), 4, x.dtype))",
        ),
    ],
)
def test_what_is_only_done_with_real_floats(rule: str, left: str, right: str) -> None:
    prove(left, right, SUMS, rule)
    cannot_prove(left, right, INTEGERS, rule)
    cannot_prove(left, right, COMPLEX, rule)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("sum-through-dot", "widened(x, b).sum(0)", "widened(x.sum(0, dtype=int8)[None], b)[0]"),
        ("pull-negation-from-dot", "widened(-x, b)", "-widened(x, b)"),
        ("pull-factor-from-dot", "widened(x[0, 0] * x, b)", "x[0, 0].astype(int32) * widened(x, b)"),
    ],
)
def test_a_widening_contraction_is_left_alone(rule: str, left: str, right: str) -> None:
    """Its operands' dtype is too narrow for what would be computed before it."""
    cannot_prove(left, right, WIDENED, rule)


def test_a_product_with_ones_is_a_sum() -> None:
    prove("x @ ones(3)", "sum(x, 1)", SUMS, "times-one")


def test_a_low_rank_matrix_is_not_made_for_a_product_with_it() -> None:
    plan = optimized("(x[:, :8] @ x[:, 8:].T + x[:, 0]) @ y", "x: 1999 16   y: 1999 2", 500_000)
    assert plan.original_peak_bytes > 20 * plan.peak_bytes
    assert "lax.scan" not in plan.source
