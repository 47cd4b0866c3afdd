"""Reductions of what is stored: in the forms that are fast, with the same results, and no others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.layout import Emitted
from eqsat.backend.pieces import Pieces
from eqsat.backend.reductions import reduction_text
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Leaf, Reduce
from eqsat.ir.term import Term, Terms

ROWS, COLUMNS, SHORT = Axis(0, 20), Axis(1, 1_280), Axis(2, 3)
FUSED = 32


def written(kind: str, axes: set[Axis], order: tuple[Axis, ...], dtype: str = "float32") -> Emitted:
    terms = Terms()
    operand: Term = terms.make(Leaf(0, order, dtype))
    op = Reduce(kind, frozenset(axes), dtype)
    return reduction_text(op, operand, Emitted("x", order), CodegenOptions(FUSED), {}, {})


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("axes", [{COLUMNS}, {ROWS, COLUMNS}, {SHORT}])
@pytest.mark.parametrize("order", [(ROWS, COLUMNS, SHORT), (SHORT, ROWS, COLUMNS), (COLUMNS, SHORT, ROWS)])
def test_every_form_is_the_reduction(kind: str, axes: set[Axis], order: tuple[Axis, ...]) -> None:
    x = np.random.default_rng(0).uniform(0.9, 1.1, [axis.size for axis in order]).astype(np.float32)
    found = written(kind, axes, order)
    value = eval(found.text, {"jnp": jnp, "lax": jax.lax, "x": jnp.asarray(x)})
    dimensions = tuple(place for place, axis in enumerate(order) if axis in axes)
    wanted = getattr(np, kind)(x.astype(np.float64), axis=dimensions)
    np.testing.assert_allclose(value, wanted, rtol=1e-4)
    assert found.order == tuple(axis for axis in order if axis not in axes)


def test_long_sums_are_products_and_short_ones_are_not() -> None:
    assert "ones" in written("sum", {COLUMNS}, (ROWS, COLUMNS)).text
    assert "ones" in written("mean", {ROWS, COLUMNS}, (ROWS, COLUMNS)).text
    assert "ones" not in written("sum", {SHORT}, (ROWS, SHORT)).text


def test_a_product_that_would_copy_or_round_is_not_made() -> None:
    assert "ones" not in written("sum", {COLUMNS}, (ROWS, COLUMNS, SHORT)).text
    assert "ones" not in written("sum", {COLUMNS}, (ROWS, COLUMNS), "bfloat16").text
    assert "ones" not in written("sum", {COLUMNS}, (ROWS, COLUMNS), "int32").text


def test_ones_are_not_as_large_as_what_is_added_up() -> None:
    assert "ones" not in written("sum", {COLUMNS}, (COLUMNS,)).text
    assert "ones" not in written("sum", {COLUMNS}, (SHORT, COLUMNS)).text


def test_maxima_of_rows_are_those_of_columns_of_blocks() -> None:
    assert "reshape" in written("max", {COLUMNS}, (ROWS, COLUMNS)).text
    assert "reshape" not in written("max", {COLUMNS}, (COLUMNS, ROWS)).text
    prime = Axis(3, 1_009)
    assert "reshape" not in written("max", {prime}, (ROWS, prime)).text


def test_what_divides_all_chunks_divides_the_remainder() -> None:
    pieces = Pieces.of(Axis(0, 10_400)).with_chunks(3_000).with_chunks(4_000)
    assert pieces == Pieces(3_000, 200)
    assert all(length % pieces.divisor == 0 for length in (3_000, 10_400 % 3_000, 4_000, 10_400 % 4_000))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("columns", "spare", "form"),
    [(4_400, 520_000, "// 16, 16"), (4_111, 500_000, "jnp.ones(size_"), (4_096, 400_000, "jnp.ones(size_")],
)
def test_sums_and_maxima_over_chunks_have_the_same_forms(columns: int, spare: int, form: str) -> None:
    """Of 4,400 and 4,111, the last chunks are shorter than the others."""

    def likelihood(x: Any, y: Any) -> Any:
        return jnp.sum(jax.nn.logsumexp(x @ y.T, axis=1))

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)).astype(np.float32), rng.normal(size=(columns, 4)).astype(np.float32)
    optimized = eqsat.optimize(likelihood, budget=x.nbytes + y.nbytes + spare)
    plan = optimized.plan(x, y)
    assert columns in {loop.size for loop in plan.loops}
    assert form in plan.source
    np.testing.assert_allclose(optimized(x, y), likelihood(x, y), rtol=1e-6)


def test_a_program_with_such_sums_keeps_to_its_budget() -> None:
    def mean(x: Any, y: Any) -> Any:
        return jnp.mean(jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1)))

    x, y = np.random.default_rng(0).normal(size=(2, 1_000, 3)).astype(np.float32)
    optimized = eqsat.optimize(mean, budget="400kB")
    plan = optimized.plan(x, y)
    assert "jnp.ones" in plan.source
    assert plan.peak_bytes <= 400_000
    np.testing.assert_allclose(optimized(x, y), mean(x, y), rtol=1e-4)


def test_a_mask_does_not_decide_on_the_order_of_what_it_masks() -> None:
    def causal(q: Any, k: Any) -> Any:
        scores = q @ k.T
        masked = jnp.where(jnp.arange(len(k)) <= jnp.arange(len(q))[:, None], scores, -jnp.inf)
        return jax.nn.softmax(masked, axis=-1) @ k

    q, k = np.random.default_rng(0).normal(size=(2, 512, 16)).astype(np.float32)
    plan = eqsat.optimize(causal, budget="600kB").plan(q, k)
    assert "jnp.transpose(dot" not in plan.source
