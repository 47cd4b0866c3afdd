"""Loops come after the steps that are the last to read large arrays, whatever order XLA would choose."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.loop_begin import BEGIN, FUNCTION, begin_text
from tests.stages import normal

ARGS = normal(4000, 20), normal(20, 300), normal(300, 2) / 20, normal(4000, 3)
HIDDEN = 4 * 4000 * 300


def small_and_near(x: Any, w: Any, v: Any, y: Any) -> Any:
    """A gradient of few weights, which is returned, and sums of a kernel between all pairs of rows."""
    hidden = jnp.tanh(x @ w)
    z = hidden @ v
    return hidden.T @ y, jnp.exp(-((z[:, None] - z[None]) ** 2).sum(-1)) @ y


def near_alone(x: Any, w: Any, v: Any, y: Any) -> Any:
    z = jnp.tanh(x @ w) @ v
    return jnp.exp(-((z[:, None] - z[None]) ** 2).sum(-1)) @ y


def still_read(x: Any, w: Any, v: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ w)
    z = hidden @ v
    near = jnp.exp(-((z[:, None] - z[None]) ** 2).sum(-1)) @ y
    return hidden.T @ y, hidden.T @ near


def source_of(fn: Any, room: int) -> tuple[Any, str]:
    memory = jax.jit(fn).lower(*ARGS).compile().memory_analysis()
    assert memory is not None
    run = eqsat.optimize(fn, budget=memory.argument_size_in_bytes + memory.output_size_in_bytes + room)
    source = run.plan(*ARGS).source
    assert source is not None
    return run, source


def temporaries(source: str) -> int:
    names: dict[str, Any] = {}
    exec(source, names)
    lowered = jax.jit(names["optimized"], compiler_options=eqsat.compiler_options()).lower(*ARGS)
    memory = lowered.compile().memory_analysis()
    assert memory is not None
    return memory.temp_size_in_bytes


def test_a_loop_begins_once_what_a_small_result_reads_is_gone() -> None:
    run, source = source_of(small_and_near, 6_000_000)
    assert f"= ({BEGIN}(" in source
    in_any_order = re.sub(rf"= \({BEGIN}\([^)]*\)", "= (0", source)
    assert temporaries(source) < temporaries(in_any_order) - 0.7 * HIDDEN
    for found, wanted in zip(run(*ARGS), jax.jit(small_and_near)(*ARGS), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(jnp.abs(wanted).max()))


@pytest.mark.parametrize("fn", [near_alone, still_read])
def test_a_loop_waits_for_nothing_that_frees_nothing(fn: Any) -> None:
    _, source = source_of(fn, 12_000_000)
    assert "lax.scan" in source
    assert BEGIN not in source


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, -3.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint32, np.bool_, np.complex64])
def test_loops_begin_at_the_first_entry_whatever_is_in_the_arrays(value: float, dtype: Any) -> None:
    if not np.isfinite(value) and not np.issubdtype(dtype, np.inexact):
        value = -1.0
    names: dict[str, Any] = {"jnp": jnp, "lax": jax.lax}
    exec(FUNCTION, names)
    array = np.full((3, 2), value, np.float32).astype(dtype)
    assert jax.jit(names[BEGIN])(array, array[0], array[0, 0]) == 0
    assert begin_text(["a", "b"]) == f"{BEGIN}(a, b)"
    assert begin_text([]) == "0"
