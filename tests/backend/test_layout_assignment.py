"""Contractions give their results in the order that is wanted, so that nothing is transposed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.emit import emit
from eqsat.backend.layout_assignment import read_by_calls
from eqsat.ir.axis import Axis
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Chunk, Concat, Dot, Leaf, Map, Opaque, Operation, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from eqsat.planning.candidates import as_written, scheduled
from eqsat.planning.loops import build
from eqsat.targets.cpu import CPU
from tests.backend.running import check_emitted
from tests.nightly import nightly_but
from tests.stages import lowered, normal

CORE, FIRST, SECOND, THIRD = normal(4, 5, 6), normal(7, 4), normal(8, 5), normal(9, 6)


def source(fn: Callable[..., Any], *args: Any) -> str:
    program = lowered(fn, *args)[0]
    names = [f"argument_{number}" for number in range(len(args))]
    return emit(as_written(program, CPU).schedule, names).source


def along(order: str, *factors: str) -> Callable[..., Any]:
    """The product of the core with matrices, one after the other; the results' axes in an order."""

    def product(core: Any, *matrices: Any) -> Any:
        axes = "abc"
        for matrix, letters in zip(matrices, factors, strict=True):
            rest = axes.replace(letters[1], "") + letters[0]
            wanted = order if len(rest) == len(order) and set(rest) == set(order) else rest
            core = jnp.einsum(f"{axes},{letters}->{wanted}", core, matrix)
            axes = wanted
        return core

    return product


def forms(text: str) -> list[tuple[bool, bool]]:
    """Of each product of two matrices, whether its right and its left operand are transposed."""
    found = []
    for left, right, result in re.findall(r'jnp\.einsum\("(\w\w),(\w\w)->(\w\w)"', text):
        (summed,) = set(left) & set(right)
        first, second = (left, right) if result[0] in left else (right, left)
        found.append((second[-1] == summed, first[-1] != summed))
    return found


def of_layers(hidden: Any, head: Any) -> Any:
    """Three products, one of which has both its operands transposed if reductions have a say."""

    def loss(hidden: Any, head: Any) -> Any:
        return jnp.mean(jax.nn.logsumexp(head.T @ hidden.T, axis=0))

    return jax.grad(loss, (0, 1))(hidden, head)


def test_where_two_transposed_matrices_are_slow_no_product_is_of_two() -> None:
    program = lowered(of_layers, normal(50, 7), normal(7, 90))[0]
    schedule = as_written(program, CPU).schedule
    text = emit(schedule, ["hidden", "head"], codegen=CodegenOptions(transposes_slowly=True)).source
    assert len(forms(text)) == 3
    assert (True, True) not in forms(text)
    scope: dict[str, Any] = {}
    exec(text, scope)
    arguments = normal(50, 7), normal(7, 90)
    for found, expected in zip(scope["optimized"](*arguments), of_layers(*arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("order", ["ijk", "ikj", "jki"])
def test_a_chain_of_contractions_comes_out_in_the_order_of_the_result(order: str) -> None:
    text = source(along(order, "kc", "jb", "ia"), CORE, THIRD, SECOND, FIRST)
    assert text.count("einsum") == 3
    assert "transpose" not in text


def test_what_a_contraction_adds_up_comes_last_or_first_in_its_operands() -> None:
    """Between others, XLA would have to move it."""
    text = source(along("ijk", "jb", "ia", "kc"), CORE, SECOND, FIRST, THIRD)
    assert text.count("einsum") == 3
    *_, last = [line for line in text.splitlines() if "einsum" in line]
    left, right = last.split('"')[1].split("->")[0].split(",")
    (added,) = set(left) & set(right)
    assert all(operand.index(added) in (0, len(operand) - 1) for operand in (left, right))


def test_what_is_read_by_others_too_keeps_its_order() -> None:
    """A reduction along rows, say, would be over columns for the sake of a product that takes either."""

    def alone(a: Any, b: Any, c: Any) -> Any:
        return (c.T @ (a @ b).T).T

    def shared(a: Any, b: Any, c: Any) -> Any:
        product = a @ b
        return (c.T @ product.T).T, jnp.exp(product) @ c

    a, b, c = normal(5, 4), normal(4, 6), normal(6, 3)
    assert "transpose" not in source(alone, a, b, c)
    assert '"ab,bc->ac"' in source(shared, a, b, c)


@pytest.mark.parametrize("returned", ["first", "last"])
def test_what_slices_are_taken_of_has_their_axis_first(returned: str) -> None:
    """An entry here and there of each of many rows takes ten times as long as a few whole slices."""
    slices, depth, rows, columns, index = (
        Axis(number, size) for number, size in enumerate((90, 6, 4, 5, 30))
    )
    terms = Terms()
    points = terms.make(Leaf(0, (depth, slices), "float32"))
    weights = terms.make(Leaf(1, (rows, depth, columns), "float32"))
    places = terms.make(Leaf(2, (index,), "int32"))
    product = terms.make(Dot(frozenset({depth}), "float32"), [points, weights])
    taken = terms.make(Operation(OPERATIONS["take"], (slices,), "float32"), [product, places])
    layout = (index, rows, columns) if returned == "first" else (rows, columns, index)
    program = Program((points, weights, places), (Output(taken, layout),), terms)
    arrays = [normal(6, 90), normal(4, 6, 5), np.arange(30) * 7 % 90 - 1]
    text = check_emitted(program, arrays)
    assert "dot_3.at[argument_2]" in text


# Copies in another order.


@pytest.mark.parametrize("budget", nightly_but([], [140_000, 200_000]))
def test_what_two_loops_compute_is_copied_for_the_one_that_reduces_it(budget: int) -> None:
    def pieces(x: Any, y: Any, w: Any, v: Any) -> Any:
        t = x[:, None] - y[None]
        t = jnp.where(t < w[:, None, None], t, v[None, :, None])
        t = jnp.clip(jnp.max(jnp.where(jnp.isfinite(t), t, 0), -1), -1, 1)
        return jnp.sum(lax.cummax(t * t, axis=1)[:, -1])

    gradient = jax.grad(pieces, (0, 2, 3))
    arguments = normal(37, 8), normal(150, 8), normal(37), normal(150)
    optimized = eqsat.optimize(gradient, budget=budget)
    assert optimized.plan(*arguments).peak_bytes <= budget
    for result, wanted in zip(optimized(*arguments), jax.jit(gradient)(*arguments), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def collected(also_added: bool) -> tuple[Program, Term]:
    """Sums along the first of the axes k and n of squares, which a loop collects by chunks of n."""
    n, k = Axis(0, 1000), Axis(1, 30)
    terms = Terms()
    x = terms.make(Leaf(0, (n, k), "float32"))
    squares = terms.make(Concat(n), (terms.make(Map("square", "float32"), (terms.make(Chunk(n), (x,)),)),))
    along = {"axis": 0, "reverse": False}
    call = Call(0, lax.cumsum_p, along, ((k, n),), ((k, n),), ("float32",), frozenset())
    outputs = [Output(terms.make(Opaque(call, 0), (squares,)), (k, n))]
    if also_added:
        outputs.append(Output(terms.make(Reduce("sum", frozenset({k}), "float32"), (squares,)), (n,)))
    return Program((x,), tuple(outputs), terms), squares


def test_what_calls_alone_read_is_collected_as_they_read_it() -> None:
    """Otherwise the whole of it would be transposed for the call."""
    program, squares = collected(also_added=False)
    assert read_by_calls(program) == {squares.number: (Axis(1, 30), Axis(0, 1000))}
    schedule = scheduled(program, build(program), {}, 20_000, CPU).schedule
    text = emit(schedule, ["x"]).source
    assert "jnp.zeros((30, 1000), jnp.float32)" in text
    names: dict[str, Any] = {}
    exec(text, names)
    x = normal(1000, 30)
    np.testing.assert_allclose(jax.jit(names["optimized"])(x)[0], np.cumsum(x.T**2, axis=0), rtol=1e-5)


def test_what_others_read_too_is_collected_as_it_is_computed() -> None:
    assert read_by_calls(collected(also_added=True)[0]) == {}
