"""How deep the fusions of a program may be, and that drafts of deep ones do not end the process."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from eqsat.backend.certificate import certify
from eqsat.backend.fusion_depth import fusion_depth
from tests.stages import normal


def depth(fn: Any, *args: Any) -> int:
    return fusion_depth(jax.make_jaxpr(fn)(*args).jaxpr)


def chained(x: Any, length: int) -> Any:
    for _ in range(length // 2):
        x = jnp.sin(x) * 1.01
    return x


def test_the_longest_chain_counts() -> None:
    x = normal(4, 4)
    assert depth(lambda x: chained(x, 10) + x, x) == 11
    assert depth(lambda x: jax.jit(chained, static_argnums=1)(chained(x, 6), 4), x) == 10


def test_calls_are_what_they_call() -> None:
    def called(x: Any) -> Any:
        for _ in range(10):
            x = jax.checkpoint(jnp.sin)(lax.reduce_precision(jax.nn.relu(x), 8, 10))
        return x

    assert depth(called, normal(4)) == 30


def test_chains_end_at_products_and_sums() -> None:
    x = normal(4, 4)
    assert depth(lambda x: chained(chained(x, 6) @ x, 4), x) == 6
    assert depth(lambda x: chained(jnp.sum(chained(x, 2)), 4), x) == 4


def test_bodies_count_by_themselves() -> None:
    def looped(x: Any) -> Any:
        return jax.lax.scan(lambda x, _: (chained(x, 8), None), chained(x, 2), None, length=3)[0]

    assert depth(looped, normal(4, 4)) == 8


@pytest.mark.nightly
def test_a_draft_of_a_very_long_chain_is_compiled() -> None:
    """XLA's older emitter overflows the stack."""
    aval = jax.ShapeDtypeStruct((1000,), "float32")
    certified = certify(lambda x: [chained(x, 8_000).sum()], [aval], draft=True)
    assert certified.temporaries <= 8_000
