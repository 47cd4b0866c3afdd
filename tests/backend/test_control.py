"""Control flow as source."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.backend.codegen_options import codegen_options
from eqsat.targets.cpu import CPU
from tests.backend.running import emitted
from tests.control_programs import CASES
from tests.stages import lowered, normal


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_the_source_computes_the_same(name: str) -> None:
    function, arguments = CASES[name]
    program, constants = lowered(function, *arguments)
    module = emitted(program)
    leaves: list[Any] = jax.tree.leaves(arguments)
    results = jax.jit(module.function())(*leaves, *constants)
    wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    for result, value in zip(results, wanted, strict=True):
        assert result.dtype == value.dtype
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5)


def test_a_body_reads_what_stays_the_same_from_around_it() -> None:
    function, arguments = CASES["scan: carried and stacked"]
    source = emitted(lowered(function, *arguments)[0]).source
    assert re.search(r"lax\.scan\(iteration\w*, ", source)
    assert "length=6" in source
    assert re.search(r"carry\w*\[0\]", source)


def test_a_body_reads_a_matrix_in_the_order_that_it_has() -> None:
    """A product with what was transposed in the body takes XLA on CPU many times as long."""

    def powers(a: Any, v: Any) -> Any:
        matrix = jnp.exp(a).T
        return lax.fori_loop(0, 5, lambda _, v: matrix @ v, v)

    program, _ = lowered(powers, np.ones((7, 7), np.float32) / 9, np.ones(7, np.float32))
    assert "transpose" not in emitted(program).source


def test_slices_of_bfloat16_are_taken_of_bits() -> None:
    """XLA for CPUs would widen all of an array to single precision to take slices of it in a loop."""
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -3.4e38, 1.0]
    x = jnp.asarray(np.array(special * 2, np.float32).reshape(4, 4), jnp.bfloat16)

    def fn(x: Any) -> Any:
        return lax.scan(lambda c, row: (c + jnp.nan_to_num(row), row * 2), jnp.zeros(4, jnp.bfloat16), x)

    module = emitted(lowered(fn, x)[0], codegen=codegen_options(CPU, exact=True))
    assert module.source.count("bitcast_convert_type") == 2
    for found, wanted in zip(jax.jit(module.function())(x), jax.tree.leaves(jax.jit(fn)(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(wanted, np.float32))


@pytest.mark.parametrize("reverse", [False, True])
def test_source_that_takes_slices_of_bits_can_be_differentiated(reverse: bool) -> None:
    """Bits have no derivative, and JAX would not say so."""
    x = jnp.asarray(normal(5, 4), jnp.bfloat16)

    def fn(x: Any) -> Any:
        return lax.scan(
            lambda c, row: (c * 0.5 + row, c * row), jnp.ones(4, jnp.bfloat16), x, reverse=reverse
        )

    function = emitted(lowered(fn, x)[0], codegen=codegen_options(CPU, exact=True)).function()

    def gradient(function: Any) -> Any:
        return jax.grad(
            lambda x: sum(jnp.sum(one.astype(jnp.float32)) for one in jax.tree.leaves(function(x)))
        )(x)

    wanted = np.asarray(gradient(fn), np.float32)
    assert np.abs(wanted).min() > 0
    np.testing.assert_allclose(np.asarray(gradient(function), np.float32), wanted, rtol=0.05)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(30, 40), (30, 40, 5), (4, 1, 40, 6)])
def test_slices_of_an_array_with_another_axis_first_are_taken_by_their_number(
    shape: tuple[int, ...], reverse: bool
) -> None:
    """XLA would copy all of the array, with the scanned axis first."""
    x = normal(*shape)

    def one(x: Any) -> Any:
        return lax.scan(lambda c, row: (0.5 * c + row, ()), jnp.zeros(x.shape[1:]), x, reverse=reverse)[0]

    def fn(x: Any) -> Any:
        for _ in range(shape.index(40) - 1):
            x = x[:, 0]
        return jax.vmap(one)(x)

    module = emitted(lowered(fn, x)[0], codegen=codegen_options(CPU, exact=True))
    assert "dynamic_index_in_dim" in module.source
    compiled = jax.jit(module.function())
    for found, wanted in zip(compiled(x), jax.tree.leaves(jax.jit(fn)(x)), strict=True):
        np.testing.assert_array_equal(found, wanted)
    longest = replace(codegen_options(CPU, exact=True), indexed_slices=0)
    copying = jax.jit(emitted(lowered(fn, x)[0], codegen=longest).function())
    temporaries = [f.lower(x).compile().memory_analysis().temp_size_in_bytes for f in (compiled, copying)]
    assert temporaries[0] <= temporaries[1] - 0.9 * x.nbytes
