"""Products of one matrix with several narrow ones, and its sum, are taken as one product, where that pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.planning.blocks import FusedProducts
from eqsat.planning.candidates import as_written, scheduled
from eqsat.planning.liveness import simulate
from eqsat.planning.loops import build
from eqsat.targets.cpu import CPU
from eqsat.targets.gpu import GPU
from eqsat.targets.machine import Machine
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

A, C = 300, 900
"""Rows and columns of a matrix that is large."""


def fused_products(fn: Any, *args: Any, machine: Machine = CPU) -> list[FusedProducts]:
    program, _ = lowered(fn, *args)
    return [group for together in as_written(program, machine).fused_products.values() for group in together]


def matrix(n: int = A, m: int = C) -> Any:
    return abs(normal(n, m))


def test_a_vector_a_narrow_matrix_and_a_sum_are_taken_with_one_matrix() -> None:
    def fn(p: Any, v: Any, w: Any) -> Any:
        q = jnp.exp(p)
        return q @ v, q @ w, q.sum(1)

    (group,) = fused_products(fn, matrix(), normal(C), normal(C, 5))
    assert [sorted(axis.size for axis in product.axes) for product in group.products] == [[A], [5, A], [A]]
    assert [narrow is None for narrow in group.narrow] == [False, False, True]
    # Seven columns, of which eight are as fast. The vector and the matrix are there before.
    assert (group.bytes, group.held, group.result_bytes) == (0, 4 * 8 * C, 4 * 8 * A)


def test_products_over_the_other_axis_are_taken_by_themselves() -> None:
    def fn(p: Any, u: Any, v: Any) -> Any:
        q = jnp.exp(p)
        return q @ v, q.sum(1), u @ q, q.sum(0)

    first, second = fused_products(fn, matrix(), normal(A), normal(C))
    assert {axis.size for axis in first.op.axes} == {C}
    assert {axis.size for axis in second.op.axes} == {A}


def test_columns_may_be_along_several_axes() -> None:
    """As second moments are, Σ_c p_ac x_ci x_cj, beside first ones, Σ_c p_ac x_ci."""

    def fn(p: Any, x: Any) -> Any:
        return p @ x, jnp.tensordot(p, x[:, :, None] * x[:, None], 1)

    (group,) = fused_products(fn, matrix(), normal(C, 3))
    assert group.columns == 16


def test_what_is_made_for_a_product_is_made_for_the_first_one() -> None:
    """Scaled vectors take little to make; they are in no loop, so they may be made where they are read."""
    (group,) = fused_products(
        lambda p, v, w: (jnp.exp(p) @ v, jnp.exp(p) @ (2 * w)), matrix(), normal(C), normal(C, 3)
    )
    assert len(group.products) == 2
    assert (group.bytes, group.held) == (4 * 4 * C, 0)


@pytest.mark.parametrize(
    ("fn", "shapes", "why"),
    [
        (lambda p, v: p @ jnp.sin(p.T @ v), [(A, A), (A,)], "different axes are added up"),
        (lambda p, v: (lambda u: (u, p @ u))(p @ v), [(A, A), (A,)], "one product is of the other's result"),
        (lambda p, v: (p @ v, p @ jnp.cumsum(v)), [(A, C), (C,)], "to make the other vector is work"),
        (lambda p, v, w: (p @ v, p @ w), [(A, C), (C,), (C, 200)], "the other is not narrow"),
        (lambda p, v, w: (p @ v, p @ w), [(50, C), (C,), (C, 40)], "the matrix is not large"),
        (lambda p, v: (p @ v, p.sum(1)), [(40, 50), (50,)], "it is small"),
        (lambda p, v: (p @ v, p.max(1)), [(A, C), (C,)], "the other is no sum"),
        (lambda p, v: (p @ v, (p + 1).sum(1)), [(A, C), (C,)], "the sum is of something else"),
        (lambda p, v, w: (p @ v, p @ w), [(A, C), (C, 16), (C,)], "17 columns take as long as 32"),
        (lambda p: (p.sum(1), p.sum(0)), [(A, C)], "nothing is multiplied"),
    ],
)
def test_products_stay_apart(fn: Any, shapes: list[Any], why: str) -> None:
    assert not fused_products(fn, *(normal(*shape) for shape in shapes)), why


@pytest.mark.parametrize("dtype", [np.int32, np.complex64, jnp.bfloat16])
def test_products_of_other_dtypes_stay_apart(dtype: Any) -> None:
    p, v, w = (np.ones(shape).astype(dtype) for shape in [(A, C), (C,), (C, 3)])
    assert not fused_products(lambda p, v, w: (p @ v, p @ w), p, v, w)


def test_products_in_two_precisions_stay_apart() -> None:
    def fn(p: Any, v: Any, w: Any) -> Any:
        return p @ v, jnp.matmul(p, w, precision="highest")

    assert not fused_products(fn, matrix(), normal(C), normal(C, 3))


def test_products_stay_apart_where_the_compiler_joins_them() -> None:
    assert not fused_products(lambda p, v, w: (p @ v, p @ w), matrix(), normal(C), normal(C, 3), machine=GPU)


def test_columns_and_products_count_where_they_are() -> None:
    def fn(p: Any, v: Any, w: Any) -> Any:
        q = jnp.exp(p)
        return jnp.sin(q @ v), jnp.sin(q @ (2 * w))

    program, _ = lowered(fn, matrix(), normal(C), normal(C, 3))
    written = as_written(program, CPU)
    (group,) = written.fused_products[written.schedule.block]
    apart, together = (
        simulate(written.schedule, replace(CPU, panel_columns=0, joins=joins))[1].timeline
        for joins in (False, True)
    )
    more = [with_joint - without for without, with_joint in zip(apart, together, strict=True)]
    first, last = (
        next(index for index, step in enumerate(written.schedule.block.steps) if product in step.results)
        for product in group.products
    )
    assert more[first] == group.bytes + group.result_bytes
    assert set(more[first + 1 : last + 1]) == {group.result_bytes}
    assert not any(more[:first] + more[last + 1 :])


def test_products_that_do_not_fit_together_stay_apart() -> None:
    program, _ = lowered(lambda p, v, w: (p @ v, p @ (2 * w)), matrix(), normal(C), normal(C, 3))
    whole = scheduled(program, build(program), {}, 1e12, CPU)
    assert whole.fused_products
    tight = scheduled(program, build(program), {}, whole.predicted_peak - 1, CPU)
    assert not tight.fused_products
    assert tight.predicted_peak < whole.predicted_peak


def plan_of(fn: Any, *args: Any, budget: int) -> Any:
    optimized = eqsat.optimize(fn, budget=budget, accuracy="cancels")
    for found, wanted in zip(optimized(*args), jax.jit(fn)(*args), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    return optimized.plan(*args)


def test_a_kernels_gradient_reads_the_kernel_once_along_each_axis() -> None:
    def value(x: Any, y: Any, v: Any) -> Any:
        return jnp.exp(-0.5 * jnp.sum((x[:, None] - y) ** 2, -1)) @ v

    def pulled(x: Any, y: Any, v: Any, u: Any) -> Any:
        return jax.vjp(value, x, y, v)[1](u)

    args = normal(2000, 3), normal(3000, 3), normal(3000), normal(2000)
    plan = plan_of(pulled, *args, budget=6_000_000)
    assert plan.loops
    assert plan.peak_bytes <= 6_000_000
    body = plan.source.split("def chunk_of_")[1].split("return")[0]
    # The distances are a product, too.
    assert body.count("jnp.einsum(") == 3
    assert body.count("jnp.concatenate(") == 2


def test_products_in_the_body_of_control_flow_are_taken_as_one() -> None:
    def fn(x: Any, v: Any, w: Any) -> Any:
        def iteration(carry: Any, y: Any) -> Any:
            p = jnp.exp(-jnp.abs(x[:, None] - y))
            return carry + p @ v, (p @ w, p.sum(1))

        last, others = jax.lax.scan(iteration, jnp.zeros(1200), jnp.stack([x, x + 1]))
        return last, *others

    plan = plan_of(fn, normal(1200), normal(1200), normal(1200, 3), budget=2_000_000)
    assert plan.changed
    assert "dots_" in plan.source


@settings(max_examples=4 if THOROUGH else 2, derandomize=True)
@given(st.data())
def test_results_stay_the_same(data: st.DataObject) -> None:
    draw = data.draw
    n, m = draw(st.integers(260, 400)), draw(st.integers(260, 400))
    kinds = st.sampled_from(["vector", "narrow", "turned", "sum", "scaled", "two axes"])
    along_rows = draw(st.lists(kinds, max_size=4))
    along_columns = draw(st.lists(kinds, min_size=2, max_size=4))
    widths = [draw(st.integers(2, 20)) for _ in range(8)]
    dtype = draw(st.sampled_from([np.float32, np.float64]))

    def product(p: Any, kind: str, number: int) -> Any:
        side = jnp.arange(p.shape[1]) / p.shape[1]
        wide = jnp.cos(side[:, None] * jnp.arange(widths[number]) + number).astype(p.dtype)
        match kind:
            case "vector":
                return p @ wide[:, 0]
            case "narrow":
                return p @ wide
            case "turned":
                return wide.T @ p.T
            case "sum":
                return p.sum(1)
            case "two axes":
                return jnp.einsum("ac,cij->iaj", p, wide[:, None, :3] * jnp.arange(2.0)[:, None])
            case _:
                return p @ (jnp.sin(wide) * 3)

    def fn(x: Any, y: Any) -> Any:
        p = 1 / (1 + (x[:, None] - y) ** 2)
        rows = [product(p, kind, number) for number, kind in enumerate(along_rows)]
        return rows + [product(p.T, kind, number + 4) for number, kind in enumerate(along_columns)]

    with jax.enable_x64(dtype == np.float64):
        x, y = normal(n, dtype=dtype), normal(m, dtype=dtype)
        results = sum(out.nbytes for out in fn(x, y))
        share = draw(st.sampled_from([0.4, 0.8, 3.0]))
        budget = int(x.nbytes + y.nbytes + 3 * results + share * n * m * x.itemsize + 100_000)
        optimized = eqsat.optimize(fn, budget=budget)
        assert optimized.plan(x, y).peak_bytes <= budget
        tolerance = 1e-5 if dtype == np.float32 else 1e-12
        for found, wanted in zip(optimized(x, y), fn(x, y), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(
                found, wanted, rtol=tolerance, atol=tolerance * float(jnp.abs(wanted).max())
            )
