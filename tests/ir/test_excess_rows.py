"""Results by tiles with the rows that the last tile has in excess."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.ir.axis import layout_axes, layout_shape
from eqsat.ir.excess_rows import with_excess_rows
from eqsat.ir.interpret import interpret
from tests.stages import lowered, normal

N = 1_013
KERNEL = np.arange(5, dtype=np.float32)


def filtered(x: Any) -> Any:
    return jnp.convolve(x, KERNEL, mode="valid")


def channels(x: Any) -> Any:
    return jax.vmap(filtered, in_axes=1)(x)


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (filtered, (N,)),
        (lambda x: jnp.tanh(filtered(x)) * 2, (N,)),
        (channels, (N, 3)),
        (lambda x: channels(x).T, (N, 3)),
    ],
)
def test_results_with_rows_in_excess(fn: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    program, hoisted = lowered(fn, x, streamed=True)
    changed = with_excess_rows(program)
    (before,), (after,) = program.outputs, changed.outputs
    assert len(layout_axes(after.layout)) == len(layout_axes(before.layout)) + 1
    (found,) = interpret(changed, [x, *hoisted])
    wanted = np.asarray(fn(x))
    assert all(a >= b for a, b in zip(layout_shape(after.layout), wanted.shape, strict=True))
    np.testing.assert_allclose(found[tuple(map(slice, wanted.shape))], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("fn", "rows"),
    [
        (filtered, 1_004),  # which tiles divide
        (lambda x: jnp.sum(filtered(x)), N),
        (lambda x: jnp.sort(filtered(x)), N),
        (lambda x: x[:-5] * 2, N),
    ],
)
def test_other_results_stay_as_they_are(fn: Callable[[Any], Any], rows: int) -> None:
    program, _ = lowered(fn, normal(rows), streamed=True)
    assert with_excess_rows(program).outputs == program.outputs
