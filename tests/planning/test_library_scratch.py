"""What sorts take beside a program's buffers counts on top of their peak, as in the certificate."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.planning.library_scratch import library_scratch
from eqsat.planning.loops import build
from eqsat.targets.cpu import CPU
from eqsat.targets.tpu import TPU
from tests.stages import lowered, normal

SORTS = [
    (lambda x: jax.lax.sort((x, -x)), 2 * 16),
    (lambda x: jnp.sort(x), 16),
    (lambda x: jax.lax.sort(x.astype(jnp.int32)), 2),
    (lambda x: jnp.exp(x), 0),
]


@pytest.mark.parametrize(("fn", "entry"), SORTS)
def test_a_sort_takes_memory_for_one_row(fn: Any, entry: int) -> None:
    program, _ = lowered(fn, normal(6, 5000))
    assert library_scratch(build(program), CPU) == 5000 * entry
    assert library_scratch(build(program), TPU) == 0


def test_the_peak_of_what_is_not_sorted_has_the_memory_of_a_sort_beside_it() -> None:
    """XLA's buffers are one allocation: those of the product are there while the keys are sorted."""

    def fn(x: Any, keys: Any) -> Any:
        order = jnp.argsort(keys)
        return jnp.tanh(x @ x.T) @ x, order

    x, keys = normal(2000, 8), normal(300_000)
    plan = eqsat.optimize(fn, budget="1GB").plan(x, keys)
    assert plan.peak_bytes > 2000 * 2000 * 4 + 300_000 * 2 * 16
    assert plan.predicted_peak_bytes == pytest.approx(plan.peak_bytes, rel=0.1)
