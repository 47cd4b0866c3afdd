"""Values of which views are read: the model stores those that XLA stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.planning.blocks import Schedule
from eqsat.planning.liveness import simulate
from eqsat.planning.loops import build
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal

ROWS, COLUMNS = 500, 300


def gathered(x: Any) -> Any:
    places = (7 * jnp.arange(ROWS)) % ROWS
    return x.at[places].get(mode="clip", wrap_negative_indices=False)


def shifts(x: Any, count: int) -> Any:
    return sum(x[:, i : i + x.shape[1] - 20] for i in range(count))


WHOLE: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "code for fifteen slices": (0, lambda x: shifts(jnp.sin(x) + 1, 15)),
    "code for sixteen slices": (1, lambda x: shifts(jnp.sin(x) + 1, 16)),
    "sixteen slices of an input": (0, lambda x: shifts(x, 16)),
    "slices of slices": (1, lambda x: shifts(shifts(jnp.sin(x), 5), 4)),
    "gathered once": (0, lambda x: jnp.tanh(gathered(x))),
    "gathered for slices of one kernel": (0, lambda x: shifts(gathered(x), 5)),
    "gathered for two kernels": (1, lambda x: (lambda g: (g[:, 3], g[:100, 5] * 2))(gathered(x))),
    "a part of what is gathered for all": (1, lambda x: (lambda g: g + g[:, :1])(gathered(x))),
}
"""How many values of the size of the input, or nearly, XLA stores; measured with jaxlib 0.10."""


ROUTINES: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "triangular factor": (1, lambda x: jnp.linalg.qr(x, mode="r")),
    "of what is computed": (1, lambda x: jnp.linalg.qr(jnp.sin(x), mode="r")),
    "singular values": (2, lambda x: jnp.linalg.svd(x, full_matrices=False)[1]),
    "singular values of what is computed": (2, lambda x: jnp.linalg.svd(jnp.sin(x), full_matrices=False)[1]),
}
"""The same for routines of LAPACK, of a tall matrix: they overwrite it, and make all singular vectors."""


@pytest.mark.parametrize("name", WHOLE)
def test_the_model_stores_what_the_compiler_stores(name: str) -> None:
    check(*WHOLE[name], normal(ROWS, COLUMNS))


@pytest.mark.parametrize("name", ROUTINES)
def test_the_model_counts_what_routines_take(name: str) -> None:
    check(*ROUTINES[name], normal(20_000, 5))


def check(whole: int, fn: Callable[[Any], Any], x: Any) -> None:
    compiled = jax.jit(fn).lower(x).compile(compiler_options=eqsat.compiler_options())
    program, _ = lowered(fn, x)
    predicted = simulate(Schedule(program, build(program), {}), CPU)[0] - program.fixed_bytes
    assert round(compiled.memory_analysis().temp_size_in_bytes / x.nbytes) == whole
    assert round(predicted / x.nbytes) == whole
