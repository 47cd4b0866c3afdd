"""Scans that read entries by a counter, as scans over them: the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

import eqsat
from eqsat.frontend.counted_reads import counted_reads, with_sequences
from tests.stages import normal

X = normal(50, 3)


def loop(start: int, count: int, read: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.fori_loop(start, start + count, lambda i, s: jnp.tanh(0.9 * s + read(x, i)), x[0])


def nested(x: Any) -> Any:
    def row(i: Any, s: Any) -> Any:
        return s + lax.fori_loop(0, 3, lambda j, t: t + x[i] * x[j], jnp.zeros(3))

    return lax.fori_loop(0, 50, row, jnp.zeros(3))


def backwards(x: Any) -> Any:
    return lax.scan(lambda i, _: (i + 1, x[i]), 0, None, length=50, reverse=True)[1]


COUNTED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "entries": (loop(0, 50, lambda x, i: x[i]), 1),
    "some": (loop(3, 40, lambda x, i: x[i]), 1),
    "neighbours": (loop(1, 49, lambda x, i: x[i] - x[i - 1]), 2),
    "ahead": (loop(0, 49, lambda x, i: x[i + 1]), 1),
    "from the end": (loop(0, 50, lambda x, i: x[49 - i]), 1),
    "from both ends": (loop(2, 40, lambda x, i: x[i] * x[45 - i]), 2),
    "computed": (lambda x: loop(0, 50, lambda y, i: y[i])(jnp.cos(x)), 1),
    "in a call": (lambda x: jax.jit(loop(0, 50, lambda x, i: x[i]))(x), 1),
    "stacked": (lambda x: lax.scan(lambda i, _: (i + 1, x[i] * 2), 0, None, length=50)[1], 1),
    "beside others": (
        lambda x: lax.scan(lambda i, y: (i + 1, x[i] * y + x[0]), 0, 2 * x)[1],
        1,
    ),
    "accumulated": (lambda x: jnp.maximum.accumulate(x), 1),
    "in a loop": (nested, 1),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "too many": loop(0, 60, lambda x, i: x[i]),
    "below zero": loop(-5, 10, lambda x, i: x[i]),
    "from behind the end": loop(0, 50, lambda x, i: x[60 - i]),
    "every second": loop(0, 25, lambda x, i: x[2 * i]),
    "backwards": backwards,
    "a part of a row": loop(0, 50, lambda x, i: lax.dynamic_slice(x, (i, 1), (1, 1))[0, 0]),
    "windows": loop(0, 40, lambda x, i: lax.dynamic_slice_in_dim(x, i, 5).sum(0)),
    "a counter that wraps": lambda x: lax.scan(
        lambda i, _: (i + jnp.int8(1), jnp.tile(x, (3, 1))[i]), jnp.int8(0), None, length=150
    )[1],
    "by data": loop(0, 50, lambda x, i: x[jnp.int32(x[0, 0])]),
    "steps of two": lambda x: lax.scan(lambda i, _: (i + 2, x[i]), 0, None, length=25)[1],
}


def reads_in(jaxpr: Any) -> int:
    found = 0
    for equation in jaxpr.eqns:
        found += len(counted_reads(equation)) if equation.primitive.name == "scan" else 0
        found += sum(map(reads_in, jax.extend.core.jaxprs_in_params(equation.params)))
    return found


@pytest.mark.parametrize("name", COUNTED)
def test_counted_reads(name: str) -> None:
    fn, count = COUNTED[name]
    closed = jax.make_jaxpr(fn)(X)
    assert reads_in(closed.jaxpr) >= count
    changed = with_sequences(closed)
    assert reads_in(changed.jaxpr) == 0
    (found,) = jax.jit(jaxpr_as_fun(changed))(X)
    np.testing.assert_array_equal(found, jax.jit(fn)(X))


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay_as_they_are(name: str) -> None:
    closed = jax.make_jaxpr(OTHERS[name])(X)
    assert with_sequences(closed) is closed


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.max(1 - x / jnp.maximum.accumulate(x)),
        lambda x: lax.fori_loop(1, len(x), lambda i, s: s + jnp.abs(x[i] - x[i - 1]), 0.0),
    ],
)
def test_a_file_is_read_once_in_a_loop_over_its_entries(fn: Callable[[Any], Any]) -> None:
    x = np.exp(0.001 * np.cumsum(normal(20_000))).astype(np.float32)
    small = eqsat.optimize(fn, budget="20kB")
    np.testing.assert_allclose(small(eqsat.on_host(x)), jax.jit(fn)(x), rtol=1e-4)
    assert small.plan(eqsat.on_host(x)).read_bytes <= 2.1 * x.nbytes
