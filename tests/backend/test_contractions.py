"""Contractions as source: what long ones look like, and that they round as well as sums do."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.contractions import contraction_text
from eqsat.backend.layout import Emitted
from eqsat.backend.pieces import Pieces
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Dot

BATCH, COLUMNS = Axis(0, 3), Axis(1, 33)
PRIME, EVEN, SHORT = Axis(25, 20_011), Axis(25, 20_000), Axis(25, 500)

WELL = 1e-6
"""Of the largest entry: what sums of these lengths are off by, in single precision, and a bit."""


def written(left: tuple[Axis, ...], right: tuple[Axis, ...], dtype: str = "float32", **kept: Any) -> Emitted:
    op = Dot(frozenset(left) & frozenset(right) - {BATCH}, dtype)
    return contraction_text(op, Emitted("a", left), Emitted("b", right), [dtype] * 2, **kept)


def error(found: Emitted, left: tuple[Axis, ...], right: tuple[Axis, ...]) -> float:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(size=[axis.size for axis in order]).astype(np.float32) for order in (left, right))

    def product(a: Any, b: Any) -> Any:
        return eval(found.text, {"jnp": jnp, "lax": jax.lax, "a": a, "b": b})

    letters = {axis: chr(97 + place) for place, axis in enumerate(dict.fromkeys((*left, *right)))}
    spelled = ["".join(letters[axis] for axis in order) for order in (left, right, found.order)]
    wanted = np.einsum(f"{spelled[0]},{spelled[1]}->{spelled[2]}", a.astype(float), b.astype(float))
    return float(np.abs(np.asarray(jax.jit(product)(a, b)) - wanted).max() / np.abs(wanted).max())


def temporary_bytes(left: tuple[Axis, ...], right: tuple[Axis, ...]) -> int:
    text = written(left, right, chunked={}).text
    shapes = [jax.ShapeDtypeStruct([axis.size for axis in order], jnp.float32) for order in (left, right)]
    lowered = jax.jit(
        lambda a, b: eval(text, {"jnp": jnp, "lax": jax.lax, "a": a, "b": b}),
        compiler_options=eqsat.compiler_options(),
    ).lower(*shapes)
    return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("axis", [PRIME, EVEN])
@pytest.mark.parametrize(
    ("vector", "matrix"),
    [
        ("k", "kc"),  # one vector, one matrix
        ("bk", "bkc"),  # a matrix for each of several vectors
        ("kb", "bkc"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_long_product_with_a_vector_rounds_as_a_sum_does(
    axis: Axis, vector: str, matrix: str, swapped: bool
) -> None:
    axes = {"b": BATCH, "c": COLUMNS, "k": axis}
    left, right = (tuple(axes[letter] for letter in word) for word in (vector, matrix))
    if swapped:
        left, right = right, left
    assert error(written(left, right, chunked={}), left, right) < WELL


@pytest.mark.parametrize("vector", ["jk", "kj", "bjk", "kbj"])
@pytest.mark.parametrize("outer", [37, 32])
def test_a_long_product_along_several_axes_rounds_as_a_sum_does(vector: str, outer: int) -> None:
    axes = {"b": BATCH, "c": COLUMNS, "k": Axis(8, 331), "j": Axis(7, outer)}
    matrix = tuple(axes[letter] for letter in ("bjkc" if "b" in vector else "jkc"))
    order = tuple(axes[letter] for letter in vector)
    assert error(written(order, matrix, chunked={}), order, matrix) < WELL


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((SHORT,), (SHORT, COLUMNS)),  # rounds well enough as it is
        ((PRIME,), (COLUMNS, PRIME)),  # adds up several at a time
        ((PRIME,), (PRIME,)),
        ((BATCH, PRIME), (PRIME, COLUMNS)),  # a product of matrices
        ((PRIME,), (COLUMNS, PRIME, BATCH)),  # of which XLA makes a product of matrices, or a copy
    ],
)
def test_no_other_product_is_divided(left: tuple[Axis, ...], right: tuple[Axis, ...]) -> None:
    text = written(left, right, chunked={}).text
    assert "reshape" not in text
    assert "stack" not in text


def test_a_vector_is_made_two_rows_only_if_it_is_very_long() -> None:
    prime = Axis(3, 3_001)
    assert "stack" not in written((prime,), (prime, COLUMNS), chunked={}).text
    assert "stack" in written((PRIME,), (PRIME, COLUMNS), chunked={}).text


def test_products_in_double_precision_are_not_divided() -> None:
    text = written((PRIME,), (PRIME, COLUMNS), "float64", chunked={}).text
    assert text.startswith("jnp.einsum")
    assert "stack" not in text


@pytest.mark.parametrize(("outer", "inner"), [(401, 1_009), (400, 1_000)])
@pytest.mark.parametrize("vector", ["jk", "kj"])
def test_very_long_rows_times_a_vector_round_as_a_sum_does(outer: int, inner: int, vector: str) -> None:
    axes = {"c": Axis(1, 3), "j": Axis(7, outer), "k": Axis(8, inner)}
    order, matrix = (tuple(axes[letter] for letter in word) for word in (vector, "cjk"))
    assert error(written(order, matrix, chunked={}), order, matrix) < WELL


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [("jk", "cjk"), ("jk", "jkc"), ("ajk", "cjk"), ("jka", "cjk"), ("ajk", "jkc"), ("jka", "jkc")],
)
def test_nothing_is_moved_for_a_product_over_several_neighbouring_axes(
    left: str, right: str, swapped: bool
) -> None:
    axes = {"a": Axis(2, 40), "c": Axis(1, 300), "j": Axis(7, 30), "k": Axis(8, 40)}
    words = (right, left) if swapped else (left, right)
    first, second = (tuple(axes[letter] for letter in word) for word in words)
    assert temporary_bytes(first, second) < 4 * 300 * 30 * 40 // 2


@pytest.mark.parametrize(("outer", "inner"), [(101, 103), (40, 3_001), (3_001, 40)])
@pytest.mark.parametrize("columns", [2, 3, 33])
@pytest.mark.parametrize(
    ("vector", "matrix"), [("jk", "jck"), ("jk", "kcj"), ("bjk", "jbkc"), ("kj", "bjck")]
)
def test_a_product_over_axes_that_are_no_neighbours_rounds_as_a_sum_does(
    vector: str, matrix: str, columns: int, outer: int, inner: int
) -> None:
    axes = {"b": BATCH, "c": Axis(1, columns), "j": Axis(7, outer), "k": Axis(8, inner)}
    order, other = (tuple(axes[letter] for letter in word) for word in (vector, matrix))
    assert error(written(order, other, chunked={}), order, other) < WELL


def test_a_matrix_is_not_copied_to_contract_axes_that_are_no_neighbours() -> None:
    rows, columns, inner = Axis(7, 100), Axis(1, 30), Axis(8, 200)
    assert temporary_bytes((rows, inner), (rows, columns, inner)) < 4 * 100 * 30 * 200 // 10


def test_where_sums_keep_the_order_xla_gives_them_nothing_is_changed() -> None:
    outer, inner = Axis(7, 40), Axis(8, 50)
    operands = (outer, inner), (COLUMNS, outer, inner)
    assert "reshape" not in written(*operands).text
    assert "reshape" in written(*operands, chunked={}).text


def test_blocks_divide_all_chunks() -> None:
    chunked = {EVEN: Pieces.of(EVEN).with_chunks(4_800)}  # the last of five has 800 rows
    text = written((EVEN,), (EVEN, COLUMNS), chunked=chunked, lengths={EVEN: "size_k"}).text
    assert "size_k // 160, 160" in text
    assert math.gcd(4_800, 800) % 160 == 0
    assert "stack" in written((PRIME,), (PRIME, COLUMNS), chunked={}).text, "nothing divides them"


def test_blocks_of_chunks_are_not_those_of_what_is_whole() -> None:
    chunked = {EVEN: Pieces.of(EVEN).with_chunks(313)}
    assert "125, 160" in written((EVEN,), (EVEN, COLUMNS), chunked=chunked).text


@pytest.mark.parametrize("rows", [60_000, 20_011])
def test_a_weighted_sum_is_as_exact_as_it_is_in_jax(rows: int) -> None:
    def weighted(x: Any, w: Any) -> Any:
        total = jnp.exp(x).sum(0)
        return (jnp.exp(x) / total * w[:, None]).sum(0)

    rng = np.random.default_rng(0)
    x, w = rng.uniform(size=(rows, 20)).astype(np.float32), rng.uniform(size=rows).astype(np.float32)
    optimized = eqsat.optimize(weighted, budget="4GB", accuracy="rescales")
    e = np.exp(x.astype(float))
    wanted = (e / e.sum(0) * w[:, None]).sum(0)
    assert "einsum" in optimized.plan(x, w).source
    np.testing.assert_allclose(optimized(x, w), wanted, rtol=2 * WELL)
