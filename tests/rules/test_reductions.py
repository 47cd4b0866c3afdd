"""Sums, means, products, maxima and minima: of one another, and what can be taken out of them."""

from __future__ import annotations

import pytest

from tests.rules.proving import cannot_prove, fires, optimized, prove

ARRAYS = (
    "x: i k   y: i k   c: i   d: k   s:   z: i j k   n: int32 i k   o: int32 i k   m: bool i k   r: bool i"
    "   w: complex64 i k   b: j k"
)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("sum-of-sums", "sum(sum(z, 2), 1)", "sum(z, (1, 2))"),
        ("sum-of-sums", "sum(sum(z, 0), 1)", "sum(z, (0, 2))"),
        ("sum-of-sums", "sum(sum(n, 0))", "sum(n)"),
        ("sum-of-addition", "sum(x + y, 1)", "sum(x, 1) + sum(y, 1)"),
        ("sum-of-addition", "sum(x, 1) + sum(y, 1)", "sum(y + x, 1)"),
        ("sum-of-addition", "sum(x + d, 1)", "sum(x, 1) + sum(d)"),
        ("sum-of-addition", "sum(n + o, 0)", "sum(n, 0) + sum(o, 0)"),
        ("sum-of-subtraction", "sum(x - y, 1)", "sum(x, 1) - sum(y, 1)"),
        ("sum-of-subtraction", "sum(n - o)", "sum(n) - sum(o)"),
        ("difference-of-sums", "sum(x) - sum(y)", "sum(x - y)"),
        ("sum-of-sums sum-of-addition", "sum(sum(x + y, 0))", "sum(x) + sum(y)"),
        # distributivity
        ("sum-of-outer-product pull-factor", "sum(c[:, None] * d)", "sum(c) * sum(d)"),
        ("sum-of-outer-product", "sum(z * c[:, None, None])", "sum(c * sum(z, (1, 2)))"),
        ("sum-of-matrix-product sum-through-dot", "sum(x @ b.T)", "sum(x, 0) @ sum(b, 0)"),
        (
            "sum-of-masked-constant",
            "sum(where(m, c[:, None], 0), 1)",
            "where(any(m, 1), c * sum(m.astype(float32), 1), 0)",
        ),
        ("sum-of-masked-rows", "sum(where(r[:, None], x, 0), 1)", "where(r, sum(x, 1), 0)"),
        ("sum-of-other-rows", "sum(where(r[:, None], 0, x), 1)", "where(r, 0, sum(x, 1))"),
    ],
)
def test_sums(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("sum-of-sums", "sum(prod(x, 1))", "sum(x)"),
        ("sum-of-sums", "max(sum(x, 1))", "sum(x)"),
        ("sum-of-sums", "sum(sum(x, 1) ** 2)", "sum(x ** 2)"),
        ("sum-of-addition", "max(x + y, 1)", "max(x, 1) + max(y, 1)"),
        ("sum-of-addition", "sum(x, 0) + sum(y, 1)[0]", "sum(x + y, 0)"),
        # a term without the summed axis is summed as often as the axis is long
        ("sum-of-addition shift-out-of-sum", "sum(x + d, 0)", "sum(x, 0) + d"),
        ("sum-of-addition", "sum(x + 1, 1)", "sum(x, 1) + 1"),
        ("sum-of-subtraction", "sum(x - y, 1)", "sum(y, 1) - sum(x, 1)"),
        ("sum-of-subtraction subtrahend-out-of-sum", "sum(x - d, 0)", "sum(x, 0) - d"),
        ("sum-of-subtraction", "min(n - o)", "min(n) - min(o)"),
        ("sum-of-outer-product pull-factor", "sum(x * y)", "sum(x) * sum(y)"),
        ("sum-of-matrix-product", "sum(x @ y.T, 0)", "sum(x, 0) @ sum(y, 0)"),
        ("sum-of-masked-constant", "sum(where(m, x, 0), 1)", "sum(x, 1)"),
        ("sum-of-masked-rows", "sum(where(r[:, None], x, 1), 1)", "where(r, sum(x, 1), 1)"),
    ],
)
def test_what_is_no_such_sum(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("mean-of-means sum-as-mean", "mean(mean(x, 1))", "mean(x)"),
        ("mean-of-addition sum-as-mean", "mean(x + y, 1)", "mean(x, 1) + mean(y, 1)"),
        ("difference-of-means sum-as-mean", "mean(x, 1) - mean(y, 1)", "mean(x - y, 1)"),
        ("shift-out-of-mean sum-as-mean", "mean(x + c[:, None], 1)", "mean(x, 1) + c"),
        ("factor-out-of-mean sum-as-mean", "mean(d * x, 0)", "d * mean(x, 0)"),
        ("divisor-out-of-mean sum-as-mean", "mean(x / s)", "mean(x) / s"),
        ("linear-out-of-mean sum-as-mean", "mean(-x, 1)", "-mean(x, 1)"),
    ],
)
def test_means(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


def test_a_mean_times_the_number_of_entries_is_a_sum() -> None:
    prove("3 * mean(x, 1)", "sum(x, 1)", ARRAYS, "sum-as-mean mean-as-sum")


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        # of other numbers of entries; of a shift that is averaged; of means of unequally many
        ("sum-as-mean", "sum(x, 1) / 5", "mean(x, 1)"),
        ("shift-out-of-mean sum-as-mean", "mean(x + d, 1)", "mean(x, 1) + d[0]"),
        ("factor-out-of-mean sum-as-mean", "mean(d * x, 1)", "mean(d) * mean(x, 1)"),
        ("linear-out-of-mean sum-as-mean", "mean(abs(x), 1)", "abs(mean(x, 1))"),
        ("mean-as-sum sum-as-mean", "5 * mean(x, 1)", "sum(x, 1)"),
    ],
)
def test_what_is_no_such_mean(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("product-of-exponentials-of-all", "prod(exp(x), 1)", "exp(sum(x, 1))"),
        ("logarithm-of-product nonnegative-absolute-value", "log(prod(abs(x), 1))", "sum(log(abs(x)), 1)"),
    ],
)
def test_products(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("maximum-of-maxima", "max(max(z, 2), 0)", "max(z, (0, 2))"),
        ("minimum-of-minima", "min(min(n, 1))", "min(n)"),
        ("maximum-of-increasing", "max(exp(x), 1)", "exp(max(x, 1))"),
        ("minimum-of-increasing", "min(jax.nn.sigmoid(x))", "jax.nn.sigmoid(min(x))"),
        ("minimum-of-roots", "min(sqrt(x), 1)", "sqrt(min(x, 1))"),
        ("minimum-of-logarithms", "min(log(x), 1)", "log(min(x, 1))"),
        ("maximum-of-roots nonnegative-square", "max(sqrt(x ** 2), 1)", "sqrt(max(x ** 2, 1))"),
        ("maximum-of-logarithms nonnegative-square", "max(log(x ** 2), 1)", "log(max(x ** 2, 1))"),
        ("maximum-of-negation", "max(-x, 1)", "-min(x, 1)"),
        ("minimum-of-negation", "min(-x)", "-max(x)"),
        ("shift-out-of-maximum", "max(x + c[:, None], 1)", "max(x, 1) + c"),
        ("shift-out-of-minimum", "min(s + x)", "min(x) + s"),
        ("subtrahend-out-of-maximum", "max(x - d, 0)", "max(x, 0) - d"),
        ("subtrahend-out-of-minimum", "min(x - s)", "min(x) - s"),
        ("minuend-out-of-maximum", "max(1 - x, 1)", "1 - min(x, 1)"),
        ("minuend-out-of-minimum", "min(d - x, 0)", "d - max(x, 0)"),
        ("factor-out-of-maximum positive-constant", "max(2 * x, 1)", "2 * max(x, 1)"),
        (
            "factor-out-of-minimum positive-constant positive-maximum",
            "min(maximum(s, 1) * x)",
            "maximum(s, 1) * min(x)",
        ),
        ("divisor-out-of-maximum positive-constant", "max(x / 8, 1)", "max(x, 1) / 8"),
        ("divisor-out-of-minimum positive-constant", "min(x / 8, 1)", "min(x, 1) / 8"),
        ("maximum-of-maximum-of-two", "max(maximum(x, c[:, None]), 1)", "maximum(max(x, 1), c)"),
        ("minimum-of-minimum-of-two", "min(minimum(n, 3))", "minimum(min(n), 3)"),
        ("maximum-of-minimum-with-bound", "max(minimum(x, 1), 1)", "minimum(max(x, 1), 1)"),
        ("minimum-of-maximum-with-bound", "min(maximum(x, d), 0)", "maximum(min(x, 0), d)"),
    ],
)
def test_maxima_and_minima(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("maximum-of-increasing", "max(cos(x), 1)", "cos(max(x, 1))"),
        # the root of some entry may be NaN where that of the largest is not
        ("maximum-of-increasing maximum-of-roots", "max(sqrt(x), 1)", "sqrt(max(x, 1))"),
        ("maximum-of-increasing maximum-of-logarithms", "max(log(x), 1)", "log(max(x, 1))"),
        ("maximum-of-increasing", "sum(exp(x), 1)", "exp(sum(x, 1))"),
        ("shift-out-of-maximum", "max(x + d, 1)", "max(x, 1) + max(d)"),
        ("factor-out-of-maximum", "max(c[:, None] * x, 1)", "c * max(x, 1)"),
        ("factor-out-of-maximum positive-constant", "max(-2 * x, 1)", "-2 * max(x, 1)"),
        ("factor-out-of-maximum nonnegative-square", "max(s ** 2 * x, 1)", "s ** 2 * max(x, 1)"),
        ("maximum-of-maximum-of-two", "max(minimum(x, c[:, None]), 1)", "maximum(max(x, 1), c)"),
        # -x overflows for the smallest of integers
        ("maximum-of-negation", "max(-n, 1)", "-min(n, 1)"),
    ],
)
def test_what_is_no_such_maximum(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("any-of-not", "any(~m, 1)", "~all(m, 1)"),
        ("all-of-not", "all(~m, 1)", "~any(m, 1)"),
        ("any-of-conjunction", "any(r[:, None] & m, 1)", "any(m, 1) & r"),
        ("all-of-disjunction", "all(m | r[:, None], 1)", "all(m, 1) | r"),
    ],
)
def test_any_and_all(rule: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rule)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("any-of-not", "any(~m, 1)", "~any(m, 1)"),
        ("any-of-conjunction", "any(m & r[:, None], 0)", "any(m, 0) & r[0]"),
        ("all-of-disjunction", "all(m & r[:, None], 1)", "all(m, 1) | r"),
    ],
)
def test_what_is_not_so_of_any_and_all(rule: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rule)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("argmax-of-negation", "argmax(-x, 1)", "argmin(x, 1)"),
        ("argmin-of-negation", "argmin(-x, 0)", "argmax(x, 0)"),
        ("argmin-of-root nonnegative-square", "argmin(sqrt(x ** 2), 1)", "argmin(x ** 2, 1)"),
        ("argmax-of-root nonnegative-square", "argmax(sqrt(x ** 2), 1)", "argmax(x ** 2, 1)"),
        ("argmax-of-logarithm nonnegative-square", "argmax(log(x ** 2), 1)", "argmax(x ** 2, 1)"),
        ("argmin-of-logarithm nonnegative-square", "argmin(log(x ** 2), 1)", "argmin(x ** 2, 1)"),
        ("argmax-of-shifted", "argmax(x + c[:, None], 1)", "argmax(x, 1)"),
        ("argmin-of-shifted", "argmin(x + 1, 1)", "argmin(x, 1)"),
        ("argmax-of-decreased", "argmax(x - d, 0)", "argmax(x, 0)"),
        ("argmin-of-decreased", "argmin(x - d, 0)", "argmin(x, 0)"),
        ("argmax-of-scaled positive-constant", "argmax(x * 2, 1)", "argmax(x, 1)"),
        ("argmin-of-scaled positive-constant", "argmin(x * 2, 1)", "argmin(x, 1)"),
    ],
)
def test_where_the_best_are(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("argmax-of-root", "argmax(sqrt(x), 1)", "argmax(x, 1)"),
        ("argmax-of-shifted", "argmax(x + d, 1)", "argmax(x, 1)"),
        ("argmax-of-scaled positive-constant", "argmax(-2 * x, 1)", "argmax(x, 1)"),
        # exponentials overflow, and the first of what is infinite wins
        ("argmax-of-root argmax-of-logarithm", "argmax(exp(x), 1)", "argmax(x, 1)"),
    ],
)
def test_where_the_best_need_not_be(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


def test_an_argmax_has_the_dtype_that_was_asked_for() -> None:
    prove("lax.argmax(-x, 1, 'uint8')", "lax.argmin(x, 1, 'uint8')", ARRAYS, "argmax-of-negation")


def test_gradients_are_added_like_anything_else() -> None:
    gradient = "sum(jax.vjp(lambda t: sin(t) * t, x)[1](y)[0], 1)"
    prove(gradient, "sum(sin(x) * y, 1) + sum(y * x * cos(x), 1)", ARRAYS, "sum-of-addition")


def test_integers_are_not_shifted_in_a_maximum() -> None:
    assert not fires("shift-out-of-maximum", "max(n + 1, 1)", ARRAYS)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ("shift-out-of-sum", "sum(x + c[:, None], 1)"),
        ("shift-out-of-sum", "sum(1 + x, 1)"),
        ("subtrahend-out-of-sum", "sum(x - d, 0)"),
        ("minuend-out-of-sum", "sum(s - x, 0)"),
    ],
)
def test_a_term_without_the_axis_is_taken_out_of_the_sum(rule: str, expression: str) -> None:
    assert fires(rule, expression, ARRAYS)


def test_the_sum_of_a_matrix_product_needs_no_product() -> None:
    plan = optimized("sum(abs(x) @ abs(y).T)", "x: 1999 16   y: 2111 16", 400_000)
    assert plan.original_peak_bytes > 40 * plan.peak_bytes


def test_the_nearest_distance_needs_one_root_for_each_point() -> None:
    plan = optimized("sqrt(sum((x[:, None] - y) ** 2, -1)).min(1)", "x: 211 32   y: 199 32", 150_000)
    assert plan.source.index("reduce_min") < plan.source.index("lax.sqrt")


@pytest.mark.parametrize(
    ("rule", "expression", "fired"),
    [
        ("maximum-of-outer-sum", "max(v[:, None] + w)", True),
        ("minimum-of-outer-sum", "min(v[:, None] + w)", True),
        ("maximum-of-outer-difference", "max(v[:, None] - w)", True),
        ("minimum-of-outer-difference", "min(v[:, None] - w)", True),
        ("sum-of-outer-sum", "sum(v[:, None] + w)", True),
        ("sum-of-outer-difference", "sum(v[:, None] - w)", True),
        # of columns alone, or of what both have along both axes
        ("maximum-of-outer-sum", "max(v[:, None] + w, 0)", False),
        ("minimum-of-outer-sum", "min(t + t, 1)", False),
        ("maximum-of-outer-difference", "max(t - t.T)", False),
        ("minimum-of-outer-difference", "min(v[:, None] - w, 1)", False),
        ("sum-of-outer-sum", "sum(t + w)", False),
        ("sum-of-outer-difference", "sum(v[:, None] - w, 0)", False),
    ],
)
def test_over_rows_and_columns_at_once(rule: str, expression: str, fired: bool) -> None:
    assert fires(rule, expression, "v: i   w: p   t: i p") == fired
