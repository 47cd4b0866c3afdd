"""Sorting, and selecting the best entries."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.nightly import nightly_but
from tests.rules.proving import can_stream, cannot_prove, fires, prove

ARRAYS = (
    "x: i n   y: i n   c: i   v: n   s:   i: int32 i n   u: uint8 i n   b: int32 j   t: n k   r: n k"
    "   z: complex64 i n   a: i k   m: n k"
)


LEAST, GREATEST = "argmin(where(x != x, inf, x), 1)", "argmax(where(x != x, -inf, x), 1)"


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("sort-of-sort", "sort(sort(x))", "sort(x)"),
        ("sort-of-reverse", "sort(x[:, ::-1])", "sort(x)"),
        ("reverse-of-reverse", "x[:, ::-1][:, ::-1] + 1", "x + 1"),
        ("reduction-of-sort", "sum(sort(x), 1)", "sum(x, 1)"),
        ("reduction-of-sort", "max(sort(i), 1)", "max(i, 1)"),
        ("reduction-of-reverse", "sum(x[:, ::-1], 1)", "sum(x, 1)"),
        (
            "numbers-of-sorted",
            "sum((~isnan(sort(x))).astype(int32).astype(float32), 1)",
            "sum((~isnan(x)).astype(float32), 1)",
        ),
        # the largest
        ("head-of-descending", "sort(x)[:, ::-1][:, :2]", "lax.top_k(x, 2)[0]"),
        ("head-of-descending", "sort(i, descending=True)[:, :4]", "lax.top_k(i, 4)[0]"),
        ("head-of-descending", "sort(v)[-3:]", "lax.top_k(v, 3)[0][::-1]"),
        (
            "head-of-sorted-negation double-negation",
            "-sort(-x)[:, :2]",
            "lax.top_k(where(x != x, -inf, x), 2)[0]",
        ),
        # the smallest
        ("head-of-sorted", "sort(x)[:, :2]", "-lax.top_k(where(x != x, -inf, -x), 2)[0]"),
        ("head-of-sorted-integers", "sort(i)[:, :2]", "~lax.top_k(~i, 2)[0]"),
        ("head-of-sorted-integers", "sort(u)[:, :2]", "~lax.top_k(~u, 2)[0]"),
        # where they are
        ("head-of-argsort", "argsort(x)[:, :2]", "lax.top_k(where(x != x, -inf, -x), 2)[1]"),
        ("head-of-argsort-of-integers", "argsort(i)[:, :2]", "lax.top_k(~i, 2)[1]"),
        ("head-of-argsort-of-negation", "argsort(-x)[:, :2]", "lax.top_k(where(x != x, -inf, x), 2)[1]"),
        # one entry
        ("least-of-sorted-integers", "sort(i)[:, 0]", "min(i, 1)"),
        ("greatest-of-sorted", "sort(x)[:, -1]", "max(x, 1)"),
        ("place-of-least", "argsort(x)[:, 0]", f"where(any(x < inf, 1), {LEAST}, argmax(x == inf, 1))"),
        ("place-of-least-integer", "argsort(i)[:, 0]", "argmin(i, 1)"),
        (
            "place-of-greatest",
            "argsort(-x)[:, 0]",
            f"where(any(x > -inf, 1), {GREATEST}, argmax(x == -inf, 1))",
        ),
        ("best-of-best", "lax.top_k(x, 3)[0][:, 0]", "max(x, 1)"),
        ("place-of-best", "lax.top_k(x, 3)[1][:, 0]", "argmax(x, 1)"),
        # of functions
        ("best-of-increasing", "lax.top_k(exp(x), 2)[0]", "exp(lax.top_k(x, 2)[0])"),
        (
            "best-of-roots nonnegative-square",
            "lax.top_k(sqrt(x ** 2), 2)[0]",
            "sqrt(lax.top_k(x ** 2, 2)[0])",
        ),
        (
            "places-of-best-of-roots nonnegative-square",
            "lax.top_k(sqrt(x ** 2), 2)[1]",
            "lax.top_k(x ** 2, 2)[1]",
        ),
        (
            "places-of-best-of-negated-roots nonnegative-square",
            "lax.top_k(-sqrt(x ** 2), 2)[1]",
            "lax.top_k(-(x ** 2), 2)[1]",
        ),
        ("best-of-sorted", "lax.top_k(sort(x), 2)[0]", "lax.top_k(x, 2)[0]"),
        ("best-of-shifted", "lax.top_k(x + c[:, None], 2)[0]", "lax.top_k(x, 2)[0] + c[:, None]"),
        ("places-of-best-of-shifted", "lax.top_k(x + s, 2)[1]", "lax.top_k(x, 2)[1]"),
        ("best-of-decreased", "lax.top_k(x - c[:, None], 2)[0]", "lax.top_k(x, 2)[0] - c[:, None]"),
        ("places-of-best-of-decreased", "lax.top_k(x - 1, 2)[1]", "lax.top_k(x, 2)[1]"),
        ("best-of-scaled positive-constant", "lax.top_k(2 * x, 2)[0]", "2 * lax.top_k(x, 2)[0]"),
        ("places-of-best-of-scaled positive-constant", "lax.top_k(2 * x, 2)[1]", "lax.top_k(x, 2)[1]"),
    ],
)
def test_identities(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("sort-of-sort", "sort(sort(x, 0), 1)", "sort(x, 1)"),
        ("reduction-of-sort", "sum(sort(x, 0), 1)", "sum(x, 1)"),
        (
            "numbers-of-sorted",
            "sum((~isnan(sort(x, 0))).astype(int32).astype(float32), 1)",
            "sum((~isnan(x)).astype(float32), 1)",
        ),
        ("head-of-descending", "sort(x)[:, :2]", "lax.top_k(x, 2)[0]"),
        ("head-of-descending", "sort(x)[:, ::-1][:, :2]", "lax.top_k(x, 2)[0][:, ::-1]"),
        ("head-of-descending", "sort(x)[:, 2:]", "lax.top_k(x, 9)[0]"),
        ("head-of-sorted-negation", "sort(-x)[:, :2]", "lax.top_k(x, 2)[0]"),
        ("head-of-argsort-of-negation", "argsort(-x)[:, :2]", "lax.top_k(-x, 2)[1]"),
        ("greatest-of-sorted", "sort(x)[:, -2]", "max(x, 1)"),
        ("least-of-sorted", "sort(x)[:, 1]", "min(where(x != x, inf, x), 1)"),
        ("best-of-best", "lax.top_k(x, 3)[0][:, 1]", "max(x, 1)"),
        ("best-of-increasing", "lax.top_k(cos(x), 2)[0]", "cos(lax.top_k(x, 2)[0])"),
        ("places-of-best-of-roots", "lax.top_k(sqrt(x), 2)[1]", "lax.top_k(x, 2)[1]"),
        ("best-of-shifted", "lax.top_k(x + v, 2)[0]", "lax.top_k(x, 2)[0] + v[:2]"),
        ("places-of-best-of-shifted", "lax.top_k(x + v, 2)[1]", "lax.top_k(x, 2)[1]"),
        ("best-of-scaled positive-constant", "lax.top_k(-2 * x, 2)[0]", "-2 * lax.top_k(x, 2)[0]"),
    ],
)
def test_what_is_not_so(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        # complex numbers have an order where they are sorted, and none where the largest are selected
        ("head-of-descending", "sort(z)[:, ::-1][:, :2]"),
        ("head-of-sorted", "sort(z)[:, :2]"),
        ("greatest-of-sorted", "sort(z)[:, -1]"),
        # indices from other places
        ("entries-at-best-places", "take_along_axis(y, lax.top_k(x, 2)[1], 1)"),
    ],
)
def test_what_is_left_alone(rule: str, expression: str) -> None:
    assert not fires(rule, expression, ARRAYS)


PLACES = "choice-of-negative nonnegative-places nonnegative-argmax nonnegative-argmin"


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ("entries-at-best-places", "v[lax.top_k(v, 2)[1]]"),
        ("entry-at-argmax", "take_along_axis(x, argmax(x, 1)[:, None], 1)"),
        ("entry-at-argmin", "take_along_axis(x, argmin(x, 1, keepdims=True), 1)"),
        ("head-of-descending-argsort", "argsort(x)[:, ::-1][:, :3]"),
        ("head-of-descending-argsort", "argsort(i)[:, ::-1][:, :3]"),
    ],
)
def test_what_is_found(rule: str, expression: str) -> None:
    """Whatever programs the rule makes mean the same, which is checked whenever it is run."""
    assert fires(rule, expression, ARRAYS, given=PLACES)


Function = Callable[[jax.Array], jax.Array]

SELECTING: dict[str, Function] = {
    "descending": lambda x: jnp.sort(x)[:, ::-1][:, :5],
    "last": lambda x: jnp.sort(x)[:, -5:],
    "of the negation": lambda x: -jnp.sort(-x)[:, :5],
    "ascending": lambda x: jnp.sort(x)[:, :5],
    "places of the smallest": lambda x: jnp.argsort(x)[:, :5],
    "places of the largest": lambda x: jnp.argsort(-x)[:, :5],
    "places in descending order": lambda x: jnp.argsort(x)[:, ::-1][:, :5],
    "the smallest": lambda x: jnp.sort(x)[:, 0],
    "the largest": lambda x: jnp.sort(x)[:, -1],
    "the place of the smallest": lambda x: jnp.argsort(x)[:, 0],
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize("dtype", nightly_but({"float32"}, ["float32", "int8"]))
def test_the_best_are_selected_and_not_sorted(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (3, 4001)).astype(dtype)  # with many ties, and the smallest integer
    if dtype == "float32":
        x[0, ::7], x[1, ::3], x[2, 5] = np.nan, -np.inf, np.inf
    selecting = SELECTING[name]
    chosen = eqsat.optimize(selecting, budget="1MB", accuracy="rescales")
    (_, program) = chosen.plan(x).source.split("def optimized")
    assert "sort(" not in program
    np.testing.assert_array_equal(chosen(x), selecting(x))


def test_nearest_neighbours_are_found_in_one_pass() -> None:
    rules = "head-of-argsort split-selection chunk-map chunk-reduction"
    can_stream(
        "argsort(sum((p[:, None] - q) ** 2, -1), 1)[:, :2]", "p: i k   q: n k", "n", rules, one_pass=True
    )
