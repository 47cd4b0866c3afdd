"""Convolutions in the order of XLA's library: the same results, and no other order is left in loops."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.backend.codegen_options import CodegenOptions, codegen_options
from eqsat.backend.convolutions import in_library_order
from eqsat.backend.emit import emit
from eqsat.ir.ops import Opaque
from eqsat.planning.candidates import as_written
from eqsat.targets.cpu import CPU
from eqsat.targets.gpu import GPU
from tests.stages import lowered, normal

ORDERED = CodegenOptions(orders_convolutions=True, orders_bodies=True)
OUTSIDE = CodegenOptions(orders_convolutions=True, slices_bits=True, indexed_slices=CPU.indexed_slices)

Function = Callable[..., Any]


def convolved(x: Any, y: Any, orders: tuple[str, str, str], **options: Any) -> Any:
    places = {"padding": "SAME", "window_strides": (1,) * (x.ndim - 2)} | options
    return lax.conv_general_dilated(x, y, dimension_numbers=orders, **places)


NCHW, NHWC = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")
CASES: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "features first": (partial(convolved, orders=NCHW), ((2, 3, 5, 6), (4, 3, 3, 2))),
    "strides": (partial(convolved, orders=NCHW, window_strides=(2, 1)), ((2, 3, 5, 6), (4, 3, 3, 2))),
    "a dilated image": (
        partial(convolved, orders=NCHW, lhs_dilation=(2, 1), padding=[(1, 2), (0, 1)]),
        ((2, 3, 5, 6), (4, 3, 3, 2)),
    ),
    "groups": (partial(convolved, orders=NCHW, feature_group_count=3), ((2, 3, 5, 6), (6, 1, 3, 2))),
    "groups of the batch": (
        partial(convolved, orders=NCHW, batch_group_count=2),
        ((2, 3, 5, 6), (4, 3, 3, 2)),
    ),
    "sequences": (partial(convolved, orders=("NCH", "OIH", "NHC")), ((2, 3, 5), (4, 3, 3))),
    "volumes": (
        partial(convolved, orders=("NCDHW", "OIDHW", "DNCHW")),
        ((2, 3, 2, 4, 3), (4, 3, 1, 2, 3)),
    ),
    "no places": (partial(convolved, orders=("CN", "IO", "NC"), padding=()), ((3, 2), (3, 4))),
    "places in another order": (
        partial(convolved, orders=("WNHC", "IHOW", "CNWH")),
        ((5, 2, 6, 3), (3, 2, 4, 3)),
    ),
}


def source(function: Function, arrays: tuple[Any, ...], codegen: CodegenOptions) -> str:
    program, _ = lowered(function, *arrays)
    names = [f"argument_{index}" for index in range(len(program.inputs))]
    return emit(as_written(program, CPU).schedule, names, codegen=codegen).source


def run(text: str, arrays: tuple[Any, ...]) -> Any:
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    (result,) = jax.jit(namespace["optimized"])(*map(jnp.asarray, arrays))
    return np.asarray(result)


def orders(text: str) -> list[str]:
    return re.findall(r"lhs_spec=(\(.*?\)), rhs_spec=(\(.*?\)), out_spec=(\(.*?\))", text)


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_same_convolution(case: str) -> None:
    function, shapes = CASES[case]
    arrays = tuple(normal(*shape) for shape in shapes)
    text = source(function, arrays, ORDERED)
    rank = len(shapes[0])
    image = str((0, rank - 1, *range(1, rank - 1)))
    kernel = str((rank - 1, rank - 2, *range(rank - 2)))
    assert orders(text) == [(image, kernel, image)]
    np.testing.assert_allclose(run(text, arrays), function(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("argument", [0, 1])
def test_derivatives_are_put_in_order(argument: int) -> None:
    def loss(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.sin(convolved(x, y, NHWC)))

    arrays = (normal(3, 5, 4, 2), normal(3, 2, 2, 4))
    derivative = jax.grad(loss, argument)
    text = source(derivative, arrays, ORDERED)
    assert set(orders(text)) == {("(0, 3, 1, 2)", "(3, 2, 0, 1)", "(0, 3, 1, 2)")}
    assert set(orders(source(derivative, arrays, CodegenOptions()))) != set(orders(text))
    np.testing.assert_allclose(run(text, arrays), derivative(*arrays), rtol=1e-4, atol=1e-5)


def test_what_is_in_order_stays() -> None:
    program, _ = lowered(partial(convolved, orders=NHWC), normal(2, 5, 6, 3), normal(3, 2, 3, 4))
    (call,) = [term.op.call for term in program.reachable() if isinstance(term.op, Opaque)]
    assert in_library_order(call) is call


def test_other_calls_stay() -> None:
    program, _ = lowered(lambda x: lax.cumsum(x, 0), normal(5))
    (call,) = [term.op.call for term in program.reachable() if isinstance(term.op, Opaque)]
    assert in_library_order(call) is call


def test_loops_of_the_function_may_be_left_alone() -> None:
    """XLA computes the convolutions in these number by number: to be equal bit for bit, ours has to."""

    def repeated(x: Any, y: Any) -> Any:
        step = partial(convolved, orders=NCHW)
        carried, _ = lax.scan(lambda carry, _: (step(carry, y), None), x, length=3)
        return step(carried, y)

    arrays = (normal(2, 3, 5, 6), normal(3, 3, 3, 2))
    first, last = orders(source(repeated, arrays, OUTSIDE))
    assert first == ("(0, 1, 2, 3)", "(0, 1, 2, 3)", "(0, 1, 2, 3)") != last
    text = source(repeated, arrays, ORDERED)
    assert set(orders(text)) == {last}
    np.testing.assert_allclose(run(text, arrays), repeated(*arrays), rtol=1e-4, atol=1e-4)


def test_who_puts_convolutions_in_order() -> None:
    assert codegen_options(CPU, exact=False).orders_bodies
    assert codegen_options(CPU, exact=True) == OUTSIDE
    assert not codegen_options(GPU, exact=False).orders_convolutions
