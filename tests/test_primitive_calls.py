"""Every primitive through the pipeline: lowered, it means what JAX computes; emitted, it computes it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.dtypes import is_extended
from eqsat.ir.interpret import interpret
from eqsat.ir.spec import check_program
from tests.backend.running import emitted
from tests.primitives.table import CASES, Case


def roundings(dtype: Any) -> float:
    """How far results of that dtype may be from those in double precision, relative to the largest."""
    return 64 * float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.inexact) else 0.0


def wide(value: Any) -> Any:
    """An array with the elements of one of JAX's arrays, in a dtype that NumPy computes with."""
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return np.asarray(jax.random.key_data(value))
    value = np.asarray(value)
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        return value.astype(np.complex128)
    return value.astype(np.float64 if jnp.issubdtype(value.dtype, jnp.floating) else np.int64)


def agree(got: Any, wanted: Any) -> None:
    assert got.shape == wanted.shape
    found, known = wide(got), wide(wanted)
    limit = roundings(wanted.dtype)
    scale = float(np.max(np.abs(known), initial=1.0, where=np.isfinite(known))) if known.size else 1.0
    np.testing.assert_allclose(found, known, rtol=limit, atol=limit * scale)


@pytest.mark.one_in(30)
@pytest.mark.parametrize("name", CASES)
def test_every_primitive_through_the_pipeline(name: str) -> None:
    case = CASES[name]
    with jax.enable_x64(case.x64):
        check(case)


def check(case: Case) -> None:
    traced = trace(case.fn, case.args, {})
    program, constants = lower(traced.closed)
    check_program(program)
    leaves = jax.tree.leaves(case.args)
    if traced.closed.effects:
        return  # left as it is: test_api.py
    module = emitted(program)
    if not case.runs:
        return
    function = module.function()
    # Together: what is the same in both is compiled once.
    both = jax.jit(lambda args, inputs: (jax.tree.leaves(case.fn(*args)), function(*inputs)))
    wanted, results = both(case.args, [*leaves, *constants])
    for got, value in zip(results, wanted, strict=True):
        assert got.dtype == value.dtype
        agree(got, value)
    if not case.unique or any(is_extended(term.dtype) for term in program.reachable()):
        return  # the reference decides otherwise in double precision, and knows no keys
    for got, value in zip(interpret(program, [*leaves, *constants]), wanted, strict=True):
        agree(got, value)
