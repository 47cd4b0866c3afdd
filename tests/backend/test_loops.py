"""Loops in emitted source: they can be differentiated, and need no more than the chunk that they are at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.certificate import certify
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Fold, Leaf, Map, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Terms
from tests.backend.running import emitted
from tests.stages import normal


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1)) @ v


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


def gram(x: Any) -> Any:
    rows = jnp.exp(-jnp.sum((x[:, None] - x) ** 2, -1))
    return rows @ rows.T


POINTS, ROWS, KEYS = normal(403, 3), normal(997, 3), normal(2003, 8)
DIFFERENTIATED = {
    "rows in place, and some over": (kernel, (ROWS, POINTS, POINTS[:, 0]), 100_000, 1),
    "one pass over keys": (attention, (KEYS[:60], KEYS, KEYS), 200_000, 1),
    "a loop in a loop": (gram, (POINTS,), 800_000, 2),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_the_source_of_a_plan_can_be_differentiated(name: str) -> None:
    function, args, budget, loops = DIFFERENTIATED[name]
    source = eqsat.optimize(function, budget=budget).plan(*args).source
    assert source.count("lax.scan(") == loops
    namespace: dict[str, Any] = {}
    exec(source, namespace)

    def gradient(function: Callable[..., Any]) -> Any:
        numbers = tuple(range(len(args)))
        return jax.grad(lambda *args: jnp.sum(jnp.sin(jax.tree.leaves(function(*args))[0])), numbers)(*args)

    for got, wanted in zip(gradient(namespace["optimized"]), gradient(function), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * float(jnp.max(jnp.abs(wanted))))


def temporaries(count: int, chunk: int, inner: int) -> int:
    """Bytes for the sum of the largest cosines of `count` numbers times each of `inner` others."""
    n, m = Axis(0, count), Axis(1, inner)
    terms = Terms()
    x, y = terms.make(Leaf(0, (n,), "float32")), terms.make(Leaf(1, (m,), "float32"))
    pairs = terms.make(Map("mul", "float32"), (terms.make(Chunk(n), (x,)), y))
    cosines = terms.make(Map("cos", "float32"), (pairs,))
    largest = terms.make(Reduce("max", frozenset({n}), "float32"), (cosines,))
    folded = terms.make(Fold(n, "max"), (largest,))
    total = terms.make(Reduce("sum", frozenset({m}), "float32"), (folded,))
    program = Program((x, y), (Output(total, ()),), terms)
    avals = [jax.ShapeDtypeStruct((count,), np.float32), jax.ShapeDtypeStruct((inner,), np.float32)]
    return certify(emitted(program, {n: chunk}).function(), avals).temporaries


def test_more_chunks_need_no_more_memory() -> None:
    """An array of their starts would be 80 kB."""
    assert temporaries(20_000, 1, 100) == temporaries(20, 1, 100) < 10_000


def test_a_shorter_last_chunk_is_not_computed_ahead_of_the_loop() -> None:
    assert temporaries(4_003, 32, 1_000) < 1.1 * temporaries(4_000, 32, 1_000)
