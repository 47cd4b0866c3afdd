"""Which contractions may be reordered, by dtype and precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.ops import Dot
from eqsat.ir.term import reachable
from tests.engine.contractions import matrices, ordered, orders, product
from tests.stages import lowered, normal, text


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8"])
@pytest.mark.parametrize("reassociate", [True, False])
def test_integers_are_always_reordered(dtype: str, reassociate: bool) -> None:
    args = [(100 * m).astype(dtype) for m in [*matrices(40, 20, 30, 10, 31), normal(31)]]
    (best,) = orders(product, *args, reassociate=reassociate)
    assert best.startswith("dot[20](0{40 20}, dot[30](1{30 20}")


def test_floats_only_if_allowed() -> None:
    args = [*matrices(40, 20, 30, 10, 31), normal(31)]
    assert orders(product, *args, reassociate=False) == []
    for dtype in ("bfloat16", "float16", "complex64"):
        assert len(orders(product, *(jnp.asarray(a).astype(dtype) for a in args))) == 1


def test_sums_of_integer_products_are_no_contractions() -> None:
    def fn(a: Any, b: Any, c: Any) -> Any:
        return jnp.sum(a[:, :, None] * b[None] * c[None, None], (1, 2))

    args = normal(9, 8), normal(8, 7), normal(7)
    assert len(orders(fn, *args)) == 1
    assert orders(fn, *((9 * a).astype(np.int32) for a in args)) == []


def dot(a: Any, b: Any, **options: Any) -> Any:
    return lax.dot_general(a, b, (((1,), (0,)), ((), ())), **options)


def test_wider_products_are_factors() -> None:
    def fn(a: Any, b: Any, c: Any) -> Any:
        return dot(dot(a, b, preferred_element_type=np.float32), c)

    half = [m.astype(jnp.bfloat16) for m in matrices(9, 8, 7)]
    program, _ = lowered(fn, *half, normal(7))
    assert ordered(program).equalities == ()
    converted = [jax.ShapeDtypeStruct((7,), np.float32)]
    program, _ = lowered(lambda a, b, v: (a @ b).astype(np.float32) @ v, *half, *converted)
    assert ordered(program).equalities == ()


def test_precisions_do_not_mix() -> None:
    def fn(inner: str | None, outer: str | None) -> Callable[..., Any]:
        return lambda a, b, v: dot(dot(a, b, precision=inner), v, precision=outer)

    args = [*matrices(9, 8, 7), normal(7)]
    program, _ = lowered(fn("highest", None), *args)
    assert ordered(program).equalities == ()
    program, _ = lowered(fn("highest", "highest"), *args)
    ((_, best),) = ordered(program).equalities
    assert {t.op.precision for t in reachable([best]) if isinstance(t.op, Dot)} == {"HIGHEST"}
    # What is contracted in another precision is a tree of its own.
    four = [*matrices(9, 8, 7, 6), normal(6)]
    program, _ = lowered(
        lambda a, b, c, v: dot(a, dot(dot(b, c, precision="highest"), v, precision="highest")), *four
    )
    assert [text(best) for _, best in ordered(program).equalities] == ["dot[7](1{8 7}, dot[6](2{7 6}, 3{6}))"]


def test_sums_of_products_get_the_precision_asked_for() -> None:
    program, _ = lowered(
        lambda a, b, c: jnp.sum(a[:, :, None] * b[None] * c[None, None], (1, 2)),
        normal(9, 8),
        normal(8, 7),
        normal(7),
    )
    for precision in (None, "HIGHEST"):
        ((_, best),) = ordered(program, precision=precision).equalities
        assert {t.op.precision for t in reachable([best]) if isinstance(t.op, Dot)} == {precision}


def test_empty_axes() -> None:
    def fn(a: Any, b: Any, c: Any) -> Any:
        return jnp.sum(a[:, :, None] * b[None] * c[None, None], (1, 2))

    assert orders(fn, normal(9, 8), normal(8, 0), normal(0)) == []
