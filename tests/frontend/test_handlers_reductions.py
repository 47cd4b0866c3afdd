"""Reductions by functions, as those that rules know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.ops import Reduce
from tests.stages import lowered

WHOLE = np.random.default_rng(0).integers(0, 256, (500, 8)).astype(np.uint8)
REAL = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
HOSTILE = np.where(REAL > 1, np.float32(np.nan), np.where(REAL < -1, np.float32(-np.inf), REAL))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("function", "initial", "x"),
    [
        (lax.bitwise_xor, 0, WHOLE),
        (lax.bitwise_xor, 77, WHOLE),
        (lax.bitwise_and, 255, WHOLE),
        (lax.bitwise_or, 3, WHOLE),
        (lax.add, 5, WHOLE),
        (lax.mul, 1, WHOLE | 1),
        (lax.max, 100, WHOLE),
        (lambda a, b: jnp.minimum(b, a), 100, WHOLE),
        (lax.add, -3.5, REAL),
        (lax.max, -np.inf, HOSTILE),
        (lax.min, 0.5, np.abs(HOSTILE)),
    ],
)
@pytest.mark.parametrize("dimensions", [(0,), (0, 1), (1,)])
def test_reductions_by_a_primitive(
    function: Callable[..., Any], initial: float, x: Any, dimensions: tuple[int, ...]
) -> None:
    def fn(x: Any) -> Any:
        return lax.reduce(x, jnp.asarray(initial, x.dtype), function, dimensions)

    program, _ = lowered(fn, x)
    assert any(isinstance(term.op, Reduce) for term in program.reachable())
    found = eqsat.optimize(fn, budget="1MB")(jnp.asarray(x))
    wanted = np.asarray(fn(jnp.asarray(x)))
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("function", [lambda a, b: a + 2 * b, lambda a, b: a + a, lambda a, b: a - b])
def test_other_functions_stay_as_they_are(function: Callable[..., Any]) -> None:
    program, _ = lowered(lambda x: lax.reduce(x, np.float32(0), function, (0,)), REAL)
    assert not any(isinstance(term.op, Reduce) for term in program.reachable())
