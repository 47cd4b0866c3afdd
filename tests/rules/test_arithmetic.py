"""Numbers, signs, powers, exponentials, choices, and what is not negative."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.rulesets.selection import rules_for
from tests.rules.proving import cannot_prove, fires, optimized, prove

ARRAYS = "x: i k   y: i k   c: i   d: k   s:   n: int32 i k   m: bool i k   u: uint8 i k   z: complex64 i k"
POSITIVE = "abs(x) + 1"


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("add-zero", "x + 0", "x"),
        ("add-zero", "z + 0", "z"),
        ("subtract-zero", "x - 0", "x"),
        ("times-one", "1 * x", "x"),
        ("times-one", "x * ones(3)", "x"),
        ("divided-by-one", "x / 1", "x"),
        ("max-with-lowest", "maximum(x, -inf)", "x"),
        ("min-with-highest", "clip(x, None, inf)", "x"),
        ("times-minus-one", "x * -1", "-x"),
        ("times-minus-one", "-1 * n", "-n"),
        ("double-negation", "-(-x)", "x"),
        ("negated-difference", "-(x - y)", "y - x"),
        ("add-negation", "x + (-y)", "x - y"),
        ("subtract-negation", "x - (-y)", "x + y"),
        ("product-with-negation", "(-x) * y", "-(x * y)"),
        ("product-with-negation", "x * (-y)", "-(y * x)"),
        ("quotient-of-negation", "-x / y", "-(x / y)"),
        ("square-of-negation", "(-x) ** 2", "x ** 2"),
        ("absolute-value-of-negation", "abs(-x)", "abs(x)"),
        ("product-with-itself", "x * x", "x ** 2"),
        ("product-with-itself", "n * n", "n ** 2"),
        ("product-with-itself", "z * z", "z ** 2"),
        ("square-of-absolute-value", "abs(x) ** 2", "x ** 2"),
        ("absolute-value-of-nonnegative nonnegative-square", "abs(x ** 2)", "x ** 2"),
        ("max-of-nonnegative nonnegative-exponential", "maximum(exp(x), 0)", "exp(x)"),
        ("choice-of-the-same", "where(m, x, x)", "x"),
        ("choice-by-negation", "where(~m, x, y)", "where(m, y, x)"),
        ("choice-within-true-choice", "where(m, where(m, x, y), 0)", "where(m, x, 0)"),
        ("choice-within-false-choice", "where(m, 0, where(m, x, y))", "where(m, 0, y)"),
        ("sum-of-choices", "where(m, x, 0) + where(m, 0, y)", "where(m, x, y)"),
        ("sum-of-choices", "where(m, 0, n) + where(m, n, 0)", "where(m, n, n)"),
        ("difference-of-choices", "where(m, 0, x) - where(m, y, 0)", "where(m, -y, x)"),
        ("negative-difference-of-choices", "where(m, x, 0) - where(m, 0, y)", "where(m, x, -y)"),
    ],
)
def test_exactly(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("product-with-itself cube", "x * x * x", "x ** 3"),
        ("fourth-power", "(x ** 2) ** 2", "x ** 4"),
        ("power-two", "jax.numpy.power(x, 2.0)", "x ** 2"),
        ("power-half nonnegative-square nonnegative-sum", "sum(x ** 2, 1) ** 0.5", "sqrt(sum(x ** 2, 1))"),
        ("power-minus-half nonnegative-absolute-value", "abs(x) ** -0.5", "lax.rsqrt(abs(x))"),
        (
            "power-by-logarithm positive-sum nonnegative-square positive-constant",
            "jax.numpy.power(x ** 2 + 1, y)",
            "exp(y * log(x ** 2 + 1))",
        ),
        ("power-three-halves nonnegative-exponential", "exp(x) ** 1.5", "exp(x) * sqrt(exp(x))"),
        ("power-minus-three-halves nonnegative-exponential", "exp(x) ** -1.5", "lax.rsqrt(exp(x)) ** 3"),
        ("power-five-halves nonnegative-exponential", "exp(x) ** 2.5", "exp(x) ** 2 * sqrt(exp(x))"),
        ("power-minus-five-halves nonnegative-exponential", "exp(x) ** -2.5", "lax.rsqrt(exp(x)) ** 5"),
        ("root-of-square", "sqrt(x ** 2)", "abs(x)"),
        ("square-of-root nonnegative-square nonnegative-sum", "sqrt(sum(x ** 2, 1)) ** 2", "sum(x ** 2, 1)"),
        (
            "product-with-itself square-of-root nonnegative-absolute-value",
            "sqrt(abs(x)) * sqrt(abs(x))",
            "abs(x)",
        ),
        ("product-of-exponentials", "exp(x) * exp(y)", "exp(x + y)"),
        ("product-of-exponentials", "exp(c)[:, None] * exp(d)", "exp(c[:, None] + d)"),
        ("quotient-of-exponentials", "exp(x) / exp(y)", "exp(x - y)"),
        ("reciprocal-of-exponential", "1 / exp(x)", "exp(-x)"),
        ("square-of-exponential", "exp(x) ** 2", "exp(2 * x)"),
        ("exponential-of-logarithm nonnegative-absolute-value", "exp(log(abs(x)))", "abs(x)"),
        (
            "logarithm-of-scaled-exponential nonnegative-absolute-value",
            "log(exp(x) * abs(y))",
            "x + log(abs(y))",
        ),
        ("logarithm-of-root", "log(sqrt(x))", "0.5 * log(x)"),
        ("logarithm-of-reciprocal", "log(1 / x)", "-log(x)"),
        (
            "logarithm-of-outer-product nonnegative-absolute-value",
            "log(abs(c)[:, None] * d)",
            "log(abs(c))[:, None] + log(d)",
        ),
        (
            "logarithm-of-outer-quotient nonnegative-absolute-value",
            "log(abs(c)[:, None] / d)",
            "log(abs(c))[:, None] - log(d)",
        ),
        ("sigmoid", "1 / (1 + exp(-x))", "jax.nn.sigmoid(x)"),
        ("max-of-increasing", "maximum(exp(x), exp(y))", "exp(maximum(x, y))"),
        ("min-of-increasing", "minimum(tanh(x), tanh(d))", "tanh(minimum(x, d))"),
    ],
)
def test_but_for_rounding(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("add-zero", "x + 1", "x"),
        ("subtract-zero", "0 - x", "x"),
        ("divided-by-one", "1 / x", "x"),
        ("max-with-lowest", "minimum(x, -inf)", "x"),
        ("negated-difference", "-(x - y)", "x - y"),
        ("product-with-itself", "x * y", "x ** 2"),
        ("square-of-root", "sqrt(x) ** 2", "x"),
        ("absolute-value-of-nonnegative nonnegative-constant nonnegative-sum-of-two", "abs(x + 1)", "x + 1"),
        ("max-of-nonnegative nonnegative-square", "maximum(x, 0)", "x"),
        ("max-of-nonnegative nonnegative-square", "maximum(x ** 2, 1)", "x ** 2"),
        ("product-of-exponentials", "exp(x) + exp(y)", "exp(x + y)"),
        ("product-of-exponentials", "exp(x) * exp(y)", "exp(x * y)"),
        # the minus sign is another function's; 1.5 is not 1
        ("sigmoid", "1 / (1 + exp(x))", "jax.nn.sigmoid(x)"),
        ("sigmoid", "1 / (1.5 + exp(-x))", "jax.nn.sigmoid(x)"),
        ("exponential-of-logarithm", "exp(log(x))", "x"),
        # a product of negative numbers has a logarithm
        ("logarithm-of-outer-product", "log(c[:, None] * d)", "log(c)[:, None] + log(d)"),
        # roots of some numbers are NaN, and a cosine is no increasing function
        ("max-of-increasing", "maximum(sqrt(x), sqrt(y))", "sqrt(maximum(x, y))"),
        ("max-of-increasing", "maximum(cos(x), cos(y))", "cos(maximum(x, y))"),
        ("max-of-increasing", "maximum(-x, -y)", "-maximum(x, y)"),
        ("choice-within-true-choice", "where(m, where(~m, x, y), 0)", "where(m, x, 0)"),
        ("choice-by-negation", "where(m, x, y)", "where(m, y, x)"),
        ("sum-of-choices", "where(m, x, 0) + where(m, y, 0)", "where(m, x, y)"),
        # powers of what may be negative, or 0 to the 0
        ("power-by-logarithm nonnegative-square", "jax.numpy.power(x ** 2, y)", "exp(y * log(x ** 2))"),
        ("power-minus-half", "x ** -1.5", "lax.rsqrt(x)"),
        ("power-three-halves power-five-halves", "x ** 3.5", "x ** 3 * sqrt(x)"),
        ("power-minus-three-halves power-minus-five-halves", "x ** -3.5", "lax.rsqrt(x) ** 7"),
        ("sum-of-choices", "where(m, x, 1) + where(m, 0, y)", "where(m, x, y)"),
        ("difference-of-choices", "where(m, 0, x) - where(m, y, 0)", "where(m, y, x)"),
    ],
)
def test_what_is_not_so(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        # integers: a division rounds towards 0, unsigned numbers have no sign, squares overflow
        ("quotient-of-negation", "lax.div(-n, n)"),
        ("absolute-value-of-negation", "abs(-u)"),
        ("nonnegative-square", "abs(n ** 2)"),
        # complex numbers have another square
        ("square-of-absolute-value", "abs(z) ** 2 + z ** 2"),
        ("nonnegative-square", "z ** 2"),
    ],
)
def test_what_is_only_so_for_other_numbers(rule: str, expression: str) -> None:
    assert not fires(rule, expression, ARRAYS)


@pytest.mark.parametrize(
    ("rules", "expression"),
    [
        ("nonnegative-exponential nonnegative-product nonnegative-square", "exp(x) * y ** 2"),
        ("nonnegative-square nonnegative-mean sum-as-mean", "mean(x ** 2, 1)"),
        (
            "nonnegative-square nonnegative-constant nonnegative-quotient nonnegative-sum",
            "sum(x ** 2, 1) / 3",
        ),
        ("nonnegative-square nonnegative-contraction", "x ** 2 @ d ** 2"),
        ("nonnegative-absolute-value nonnegative-sum-of-two nonnegative-root", "abs(x) + sqrt(abs(y))"),
        ("nonnegative-square nonnegative-maximum", "max(x ** 2, 1)"),
        ("nonnegative-square nonnegative-minimum", "min(x ** 2, 1)"),
        ("nonnegative-square nonnegative-product-of-all", "prod(x ** 2, 1)"),
        ("nonnegative-constant nonnegative-maximum-of-two", "maximum(x, 0)"),
        (
            "nonnegative-sigmoid nonnegative-square nonnegative-minimum-of-two",
            "minimum(jax.nn.sigmoid(x), y ** 2)",
        ),
        ("nonnegative-constant nonnegative-square nonnegative-choice", "where(m, x ** 2, 0)"),
        ("nonnegative-indicator", "(x > y).astype(float32)"),
        ("nonnegative-fourth-power", "x ** 4"),
        (
            "positive-constant positive-sum nonnegative-square positive-root nonnegative-if-positive",
            "sqrt(x ** 2 + 1)",
        ),
        ("positive-constant positive-maximum nonnegative-if-positive", "maximum(x, 1e-6)"),
        (
            "positive-constant positive-maximum nonnegative-product nonnegative-quotient"
            " nonnegative-if-positive",
            "2 * maximum(x, 1) / maximum(y, 1)",
        ),
    ],
)
def test_what_is_known_not_to_be_negative(rules: str, expression: str) -> None:
    prove(f"abs({expression})", expression, ARRAYS, f"absolute-value-of-nonnegative {rules}")


def test_powers_of_few_digits_keep_them() -> None:
    """By logarithms, these would be off by an eighth."""
    x, p = jnp.linspace(0, 10, 300, dtype=jnp.bfloat16), jnp.bfloat16(5.3)
    found = eqsat.optimize(lambda x, p: jnp.power(x * x + 1, p))
    expected = np.asarray(x * x + 1, np.float64) ** np.float64(p)
    np.testing.assert_allclose(np.asarray(found(x, p), np.float64), expected, rtol=2e-2)


def test_softmax_is_not_negative() -> None:
    prove(
        "abs(softmax(x))",
        "softmax(x)",
        ARRAYS,
        "absolute-value-of-nonnegative max-with-lowest softmax nonnegative-softmax",
    )


def test_the_check_of_the_degrees_of_freedom_of_a_variance_goes_away() -> None:
    prove(
        "var(x, 1)",
        "sum((x - sum(x, 1, keepdims=True) / 3) ** 2, 1) / (float32(3) - 0)",
        ARRAYS,
        "known-choice",
    )
    # with as many entries as degrees of freedom there is none
    assert not fires("known-choice", "var(x, 1, ddof=3)", ARRAYS)


def test_pairwise_relative_entropies_are_a_matrix_product() -> None:
    expression = "sum(abs(p)[:, None] * log(abs(p)[:, None] / abs(q)), -1)"
    plan = optimized(expression, "p: 211 32   q: 199 32", 600_000, "cancels")
    assert "logarithm-of-outer-quotient" in plan.rules_fired


DEFAULT = " ".join(compiled.name for compiled in rules_for((), "reassociates"))


@pytest.mark.parametrize(
    ("expression", "other"),
    [
        ("abs(sqrt(x))", "sqrt(x)"),  # of -0 it is -0
        ("(x + 0.0) * y", "x * y"),  # -0 + 0 is 0
        ("-(x - y)", "y - x"),
    ],
)
def test_signs_of_zero_are_kept_by_default(expression: str, other: str) -> None:
    cannot_prove(expression, other, ARRAYS, DEFAULT)


@pytest.mark.parametrize("wrapping", ["abs(n) + abs(n)", "abs(n) * abs(n)", "sum(abs(n), 1)"])
def test_integers_that_wrap_are_not_taken_to_be_nonnegative(wrapping: str) -> None:
    cannot_prove(f"abs({wrapping})", wrapping, ARRAYS, DEFAULT)


ABOVE = "nonnegative-square positive-constant positive-sum nonzero-if-positive"


@pytest.mark.parametrize(
    ("rules", "expression", "fired"),
    [
        (f"choice-of-zero {ABOVE}", "where(x ** 2 + 1 == 0, 1, x ** 2 + 1)", True),
        (f"choice-of-nonzero {ABOVE}", "where(x ** 2 + 1 != 0, x ** 2 + 1, 1)", True),
        (f"choice-of-zero {ABOVE} nonzero-negative", "where(-(x ** 2 + 1) == 0, 1, x)", True),
        # an exponential and a square may underflow
        (f"choice-of-zero {ABOVE}", "where(exp(x) == 0, 1, exp(x))", False),
        (f"choice-of-nonzero {ABOVE}", "where(x ** 2 != 0, x ** 2, 1)", False),
    ],
)
def test_what_is_not_zero(rules: str, expression: str, fired: bool) -> None:
    rule, given = rules.split(" ", 1)
    assert fires(rule, expression, ARRAYS, given) == fired
