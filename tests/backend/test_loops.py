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
from eqsat.backend.codegen_options import codegen_options
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Fold, Leaf, Map, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Terms
from eqsat.targets.cpu import CPU
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


def pairs_of_bfloat16(x: Any, y: Any) -> Any:
    """Sums of kernels of points in bfloat16, and how many entries of each row are large."""
    kernels = jnp.exp(-jnp.abs(jnp.sin(x)[:, None].astype(jnp.bfloat16) - jnp.sin(y).astype(jnp.bfloat16)))
    return kernels.astype(jnp.float32).sum(1), (kernels > 0.5).sum(1)


@pytest.mark.nightly
def test_chunks_of_bfloat16_are_taken_by_their_bits() -> None:
    x, y = normal(300), normal(20_000)
    plan = eqsat.optimize(pairs_of_bfloat16, budget="200kB").plan(x, y)
    assert "slice_by_bits(" in plan.source
    for hostile in (False, True):
        given = y.copy()
        if hostile:
            given[:4] = np.inf, -np.inf, np.nan, -0.0
        found = jax.tree.leaves(eqsat.optimize(pairs_of_bfloat16, budget="200kB")(x, given))
        for got, wanted in zip(found, jax.tree.leaves(jax.jit(pairs_of_bfloat16)(x, given)), strict=True):
            got, wanted = np.asarray(got, np.float32), np.asarray(wanted, np.float32)
            np.testing.assert_allclose(got, wanted, rtol=2e-2, equal_nan=True)
    namespace: dict[str, Any] = {}
    exec(plan.source, namespace)

    def gradient(function: Callable[..., Any]) -> Any:
        return jax.grad(lambda y: jnp.sum(function(x, y)[0]))(y)

    wanted = gradient(pairs_of_bfloat16)
    scale = float(jnp.max(jnp.abs(wanted)))
    np.testing.assert_allclose(gradient(namespace["optimized"]), wanted, atol=0.05 * scale)
    assert scale > 0


def test_a_loop_that_takes_chunks_of_bfloat16_does_not_widen_all_of_it() -> None:
    n = Axis(0, 100_000)
    terms = Terms()
    x = terms.make(Leaf(0, (n,), "bfloat16"))
    wide = terms.make(Map("convert", "float32"), (terms.make(Chunk(n), (x,)),))
    total = terms.make(Fold(n, "sum"), (terms.make(Reduce("sum", frozenset({n}), "float32"), (wide,)),))
    program = Program((x,), (Output(total, ()),), terms)
    module = emitted(program, {n: 1000}, codegen=codegen_options(CPU, exact=False))
    certified = certify(module.function(), [jax.ShapeDtypeStruct((n.size,), jnp.bfloat16)])
    # The bits of an argument are a copy; in single precision, it would be twice as large.
    assert certified.temporaries < 1.1 * 2 * n.size


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
