"""Products whose results have few tiles, in parts of their sums: the same results, where it helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.backend.codegen_options import CodegenOptions, codegen_options
from eqsat.backend.emit import emit
from eqsat.backend.layout import Emitted
from eqsat.backend.pieces import Pieces
from eqsat.backend.product_parts import terms_of_part
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Dot
from eqsat.planning.candidates import as_written
from eqsat.targets.catalogue import find_target
from eqsat.targets.cpu import CPU
from eqsat.targets.product_tiles import ProductTiles
from tests.stages import lowered, normal

TILES = ProductTiles(cores=132, together=2, side=64, aligned=8, least_terms=256, most_bytes=4 << 20)

GPU = CodegenOptions(tiles=TILES)

TERMS = 8_192

A, B, C, N = Axis(0, 100), Axis(1, 40), Axis(2, 3), Axis(3, TERMS)


def source(fn: Callable[..., Any], *args: Any, codegen: CodegenOptions = GPU) -> str:
    program = lowered(fn, *args)[0]
    names = [f"argument_{number}" for number in range(len(args))]
    return emit(as_written(program, CPU).schedule, names, codegen=codegen).source


def run(text: str, *args: Any) -> Any:
    scope: dict[str, Any] = {}
    exec(text, scope)
    return scope["optimized"](*args)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("an,nb->ab", [(100, TERMS), (TERMS, 40)]),
        ("na,nb->ab", [(TERMS, 100), (TERMS, 40)]),
        ("an,bn->ba", [(100, TERMS), (40, TERMS)]),
        ("can,cbn->cab", [(3, 100, TERMS), (3, 40, TERMS)]),
        ("acn,bnc->abc", [(100, 3, TERMS), (40, TERMS, 3)]),
    ],
)
def test_a_product_in_parts_is_the_product(equation: str, shapes: list[tuple[int, ...]]) -> None:
    left, right = (normal(*shape) for shape in shapes)
    text = source(lambda x, y: jnp.einsum(equation, x, y), left, right)
    assert "jnp.reshape" in text
    assert "lax.reduce_sum(jnp.einsum" in text
    (found,) = run(text, left, right)
    exact = np.einsum(equation, left.astype(np.float64), right.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def test_a_product_with_many_tiles_is_taken_whole() -> None:
    def text(rows: int, columns: int, terms: int) -> str:
        return source(lambda x, y: x @ y, np.zeros((rows, terms)), np.zeros((terms, columns)))

    assert "reduce_sum" not in text(1_024, 1_024, 4_096)
    assert "reduce_sum" not in text(64, 64, 256), "few terms"
    assert "reduce_sum" not in text(64, 64, 4_099), "a prime number of terms"
    assert "reduce_sum" not in text(64, 1, 65_536).replace("jnp.einsum", ""), "no matrix"


def test_a_product_is_taken_whole_where_the_order_of_a_sum_is_kept() -> None:
    left, right = normal(100, TERMS), normal(TERMS, 40)
    assert "reduce_sum" not in source(lambda x, y: x @ y, left, right, codegen=CodegenOptions())


@given(
    st.integers(0, 1 << 20),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 50),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(1, 200),
)
def test_parts_are_even_and_long_and_their_results_are_small(
    terms: int, rows: int, columns: int, batch: int, itemsize: int, cores: int
) -> None:
    tiles = replace(TILES, cores=cores)
    assert 0 < tiles.busy(rows, columns, batch) <= 1, "also if the result is empty"
    part = tiles.part(terms, rows, columns, batch, itemsize)
    if part is None:
        return
    parts, rest = divmod(terms, part)
    assert rest == 0
    assert part >= tiles.least_terms
    assert part % tiles.aligned == 0
    assert 1 < parts <= max(cores // tiles.count(rows, columns, batch), 1)
    assert parts * batch * rows * columns * itemsize <= tiles.most_bytes


@pytest.mark.parametrize(
    "shapes", [((0, 9), (9, 5)), ((7, 0), (0, 5)), ((3, 7, 9), (3, 9, 0)), ((4, 2), (2,))]
)
def test_empty_products_are_planned_for_a_gpu(shapes: tuple[tuple[int, ...], ...]) -> None:
    def function(x: Any, y: Any) -> Any:
        return jnp.exp(x @ y).sum(), jnp.tanh(x) @ y

    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    plan = eqsat.optimize(function, budget="100MB", target="h100").plan(*arguments)
    assert plan.predicted_seconds < 1


@settings(max_examples=30)
@given(st.integers(1, TERMS))
def test_parts_divide_the_chunks_of_a_sum_that_a_loop_takes(chunk: int) -> None:
    """What is left of the axis is divided, too."""
    pieces = {N: Pieces.of(N).with_chunks(chunk)}
    op = Dot(frozenset({N}), "float32", None)
    part = terms_of_part(op, Emitted("x", (A, N)), Emitted("y", (B, N)), pieces, TILES)
    if part is not None:
        assert chunk % part == 0
        assert TERMS % chunk % part == 0


def test_a_product_of_chunks_is_taken_in_parts_on_a_gpu() -> None:
    """The gradient of a layer in chunks of its rows has the layer's weights as rows and columns."""

    def loss(head: Any, hidden: Any) -> Any:
        return jnp.mean(jax.nn.logsumexp(hidden @ head, axis=1))

    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 32_000), (8_192, 64))]
    plan = eqsat.optimize(jax.grad(loss, (0, 1)), budget="150MB", target="h100").plan(*shapes)
    products = re.findall(r'jnp\.einsum\("(\w+),(\w+)->(\w+)"', plan.source)
    assert plan.loops
    assert any(len(result) == 3 for _, _, result in products), plan.source


def test_parts_of_narrow_floats_are_added_up_in_single_precision() -> None:
    left, right = (normal(*shape).astype(jnp.bfloat16) for shape in ((100, TERMS), (TERMS, 40)))
    text = source(lambda x, y: x @ y, left, right)
    assert "preferred_element_type=jnp.float32" in text
    (found,) = run(text, left, right)
    assert found.dtype == jnp.bfloat16
    exact = np.asarray(left, np.float64) @ np.asarray(right, np.float64)
    np.testing.assert_allclose(np.asarray(found, np.float64), exact, rtol=2**-8, atol=1e-2)


def test_integers_that_wrap_wrap_in_parts_as_they_do_in_whole() -> None:
    random = np.random.default_rng(0)
    left, right = (
        random.integers(-(2**31), 2**31, shape).astype(np.int32) for shape in ((100, TERMS), (TERMS, 40))
    )
    text = source(lambda x, y: x @ y, left, right)
    assert "lax.reduce_sum" in text
    (found,) = run(text, left, right)
    np.testing.assert_array_equal(found, left @ right)


def test_parts_are_for_gpus_unless_the_order_of_sums_is_kept() -> None:
    machine = find_target("v100").machine
    assert machine.tiles is not None
    assert machine.tiles.cores == 80
    assert codegen_options(machine, exact=False).tiles == machine.tiles
    assert codegen_options(machine, exact=True).tiles is None
    assert codegen_options(CPU, exact=False).tiles is None
