"""Sums of sums and of differences."""

from __future__ import annotations

import pytest

from tests.rules.proving import cannot_prove, prove

ARRAYS = "x: i k   y: i k   d: k   z: i j k   n: int32 i k   o: int32 i k"


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("sum-of-sums", "sum(sum(z, 2), 1)", "sum(z, (1, 2))"),
        ("sum-of-sums", "sum(sum(z, 0), 1)", "sum(z, (0, 2))"),
        ("sum-of-sums", "sum(sum(n, 0))", "sum(n)"),
        ("sum-of-addition", "sum(x + y, 1)", "sum(x, 1) + sum(y, 1)"),
        ("sum-of-addition", "sum(x, 1) + sum(y, 1)", "sum(y + x, 1)"),
        ("sum-of-addition", "sum(x + d, 1)", "sum(x, 1) + sum(d)"),
        ("sum-of-addition", "sum(n + o, 0)", "sum(n, 0) + sum(o, 0)"),
        ("sum-of-subtraction", "sum(x - y, 1)", "sum(x, 1) - sum(y, 1)"),
        ("sum-of-subtraction", "sum(x) - sum(y)", "sum(x - y)"),
        ("sum-of-subtraction", "sum(n - o)", "sum(n) - sum(o)"),
        ("sum-of-sums sum-of-addition", "sum(sum(x + y, 0))", "sum(x) + sum(y)"),
    ],
)
def test_sums(rule: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rule)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("sum-of-sums", "sum(prod(x, 1))", "sum(x)"),
        ("sum-of-sums", "max(sum(x, 1))", "sum(x)"),
        ("sum-of-sums", "sum(sum(x, 1) ** 2)", "sum(x ** 2)"),
        ("sum-of-addition", "max(x + y, 1)", "max(x, 1) + max(y, 1)"),
        ("sum-of-addition", "sum(x, 0) + sum(y, 1)[0]", "sum(x + y, 0)"),
        # a term without the summed axis is summed as often as the axis is long
        ("sum-of-addition", "sum(x + d, 0)", "sum(x, 0) + d"),
        ("sum-of-addition", "sum(x + 1, 1)", "sum(x, 1) + 1"),
        ("sum-of-subtraction", "sum(x - y, 1)", "sum(y, 1) - sum(x, 1)"),
        ("sum-of-subtraction", "sum(x - d, 0)", "sum(x, 0) - d"),
        ("sum-of-subtraction", "min(n - o)", "min(n) - min(o)"),
    ],
)
def test_what_is_no_such_sum(rule: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rule)


def test_gradients_are_added_like_anything_else() -> None:
    gradient = "sum(jax.vjp(lambda t: sin(t) * t, x)[1](y)[0], 1)"
    prove(gradient, "sum(sin(x) * y, 1) + sum(y * x * cos(x), 1)", ARRAYS, "sum-of-addition")
