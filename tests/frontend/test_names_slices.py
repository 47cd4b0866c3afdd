"""A slice or a pad of a computed array is also computed from slices or pads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Operation
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from tests.stages import lowered, normal


def forms(program: Program) -> list[tuple[Any, Any]]:
    """Slices and pads, each with the form of it that is computed from slices or pads."""
    return [pair for pair in program.equalities if not isinstance(pair[1].op, Operation)]


def kernel(x: Any, y: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "the first": lambda x, y: kernel(x, y)[:7, :9],
    "the last": lambda x, y: kernel(x, y)[9:, 7:],
    "between": lambda x, y: kernel(x, y)[3:12],
    "every third": lambda x, y: kernel(x, y)[1::3, 2:11:2],
    "of a product": lambda x, y: jnp.tanh(x @ y.T)[2:9, :5],
    "of a sum": lambda x, y: kernel(jnp.sin(x), y).T[:5, 2:9],
    "of a square matrix": lambda x, y: kernel(x, x)[:5, 5:],
    "with indices": lambda x, y: jnp.where(jnp.arange(20)[:, None] > jnp.arange(30), kernel(x, y), 0)[
        4:9, 2:
    ],
    "beside its sums": lambda x, y: (kernel(x, y) / kernel(x, y).sum(1, keepdims=True))[2:9, 4:],
    "beside its maxima, padded": lambda x, y: lax.pad(
        jnp.where(kernel(x, y) == kernel(x, y).max(1, keepdims=True), 1.0, 0.5),
        np.float32(0),
        ((3, 4, 0), (0, 5, 0)),
    ),
    "padded": lambda x, y: lax.pad(kernel(x, y), np.float32(0), ((3, 4, 0), (0, 5, 0))),
    "padded with a result": lambda x, y: lax.pad(kernel(x, y), x[0, 0], ((3, 0, 0), (0, 0, 0))),
    "padded where it would be infinite": lambda x, y: lax.pad(
        1 / kernel(x, y) / jnp.abs(x[:, :1]), np.float32(0), ((3, 4, 0), (0, 5, 0))
    ),
    "a padded slice": lambda x, y: lax.pad(
        jnp.sin(kernel(x, y)[2:9, 4:]), np.float32(2), ((3, 4, 0), (0, 5, 0))
    ),
    "split": lambda x, y: jnp.split(jnp.split(kernel(x, y), [4, 9])[1], 2, axis=1),
    "the derivative of a concatenation": lambda x, y: jax.grad(
        lambda k: jnp.sum(jnp.sin(jnp.concatenate([k, k.T[:, :20]]) @ (x @ x.T)))
    )(kernel(x, y)[:, :20]),
    "of a slice": lambda x, y: jnp.tanh(kernel(x, y)[2:14])[1:9, 3:],
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_slice_is_computed_from_slices(name: str) -> None:
    x, y = normal(20, 2), normal(30, 2)
    program, constants = lowered(COMPUTED[name], x, y)
    pairs = forms(program)
    assert pairs
    for whole, other in pairs:
        layout = tuple(sorted(whole.axes))
        both = Program(program.inputs, (Output(whole, layout), Output(other, layout)), program.terms)
        check_program(both)
        one, another = interpret(both, [x, y, *constants])
        np.testing.assert_array_equal(one, another)


STORED: dict[str, Callable[[Any, Any], Any]] = {
    "an argument": lambda x, y: (x @ y.T, x[:5]),
    "of little more than is computed": lambda x, y: jnp.sin(x)[:5],
    "of what needs rows whole": lambda x, y: jnp.cumsum(kernel(x, y), 0)[:5],
    "of one entry": lambda x, y: kernel(x, y)[:1],
    "padded within": lambda x, y: lax.pad(kernel(x, y), np.float32(0), ((3, 4, 1), (0, 5, 0))),
    "padded and cut": lambda x, y: lax.pad(kernel(x, y), np.float32(0), ((3, -4, 0), (0, 5, 0))),
    "of one column": lambda x, y: lax.slice(kernel(x, y), (2, 3), (12, 4), (2, 1)),
}


def test_slices_and_pads_of_keys_are_left_as_they_are() -> None:
    keys = jax.random.split(jax.random.key(0), 20)

    def drawn(keys: Any, mask: Any) -> Any:
        chosen = jnp.where(mask, keys, keys[::-1])[2:9]
        return jax.vmap(jax.random.normal)(jnp.concatenate([chosen, keys[:3]]))

    mask = np.arange(20) % 3 > 0
    program, _ = lowered(drawn, keys, mask)
    assert forms(program) == []
    np.testing.assert_array_equal(eqsat.optimize(drawn, budget="1MB")(keys, mask), drawn(keys, mask))


@pytest.mark.parametrize("name", STORED)
def test_other_slices_are_taken(name: str) -> None:
    program, _ = lowered(STORED[name], normal(20, 2), normal(30, 2))
    assert forms(program) == []


def block_matrix(x: Any, y: Any) -> Any:
    k, v = jnp.exp(-jnp.abs(x[:, :1] - x[:, 1])), jnp.sin(jnp.arange(2 * len(x)))
    return v @ (jnp.block([[kernel(x, x), k], [k.T, kernel(x, x)]]) @ v) + y.sum()


def blocks(x: Any, y: Any) -> Any:
    z = jnp.concatenate([x, y])
    k, n = kernel(z, z), len(x)
    return jnp.sqrt((k[:n, :n] ** 2).mean()) + jnp.log(k[n:, n:] + 0.1).mean() - (k[:n, n:] ** 3).mean()


BLOCKS = {
    "taken": blocks,
    "taken, the gradient": jax.value_and_grad(blocks),
    "put together": block_matrix,
    "put together, the gradient": jax.value_and_grad(block_matrix),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("function", BLOCKS.values(), ids=BLOCKS)
def test_blocks_of_a_kernel_matrix_are_not_stored(function: Callable[..., Any]) -> None:
    x, y = normal(800, 3), normal(700, 3)
    optimized = eqsat.optimize(function, budget="2.5MB")
    assert optimized.plan(x, y).peak_bytes <= 2_500_000 < 4 * 800 * 800
    results = zip(jax.tree.leaves(optimized(x, y)), jax.tree.leaves(jax.jit(function)(x, y)), strict=True)
    for one, other in results:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6 * max(1, np.abs(other).max()))
