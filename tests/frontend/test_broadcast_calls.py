"""What is done along dimensions that operands are only broadcast along is done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.ir.axis import layout_shape
from eqsat.ir.ops import Opaque
from tests.stages import check_meaning, lowered, normal, ops

PLACES = np.array([3, 0, 3, 5, -1, 9])


def scattered(x: Any) -> Any:
    numbers = jnp.broadcast_to(jnp.arange(6.0), (*x.shape[:-1], 6))
    return jnp.zeros((*x.shape[:-1], 8)).at[..., PLACES].set(numbers) * x


def added(x: Any) -> Any:
    return jnp.ones((*x.shape[:-1], 8)).at[..., PLACES].add(jnp.arange(6.0)) + x


def gathered(x: Any) -> Any:
    return x[..., :6] * jnp.broadcast_to(jnp.arange(8.0), x.shape)[..., PLACES]


@pytest.mark.parametrize("function", [scattered, added, gathered])
def test_what_is_the_same_for_a_whole_batch_is_done_for_one(function: Callable[[Any], Any]) -> None:
    for shape in ((5, 8), (5, 4, 8)):
        program = check_meaning(function, normal(*shape))
        calls = [op.call for op in ops(program, Opaque) if op.call.primitive.name != "slice"]
        assert calls
        assert all(np.prod(layout_shape(call.out_layouts[0])) <= 8 for call in calls)


def test_what_differs_within_a_batch_is_done_for_all() -> None:
    program = check_meaning(lambda x: jnp.zeros((5, 8)).at[:, PLACES].add(x), normal(5, 6))
    (op,) = [op for op in ops(program, Opaque) if op.call.primitive.name.startswith("scatter")]
    assert layout_shape(op.call.out_layouts[0]) == (5, 8)


def test_the_derivative_of_a_scatter_numbers_its_updates_once() -> None:
    """The numbers, of all updates of a batch, would take 12 MB; a chunk of the batch and its gradient fit."""
    mask = np.tri(60, 50, dtype=bool)

    def loss(x: Any, y: Any) -> Any:
        def pair(a: Any, b: Any) -> Any:
            return jnp.full((60, 50), 1.0).at[mask].set(jnp.outer(a, b).ravel()[: mask.sum()]).prod(0).sum()

        return jax.vmap(lambda a: jax.vmap(lambda b: pair(a, b))(y))(x).mean()

    x, y = 1 + normal(30, 60) / 50, 1 + normal(30, 50) / 50
    optimized = eqsat.optimize(jax.grad(loss), budget="4MB")
    assert optimized.plan(x, y).peak_bytes <= 4_000_000 < 900 * 60 * 50 * 4
    np.testing.assert_allclose(optimized(x, y), jax.jit(jax.grad(loss))(x, y), rtol=1e-4, atol=1e-6)


def recurrence(x: Any, decay: Any) -> Any:
    """As in linear recurrent networks: states that decay by factors that all sequences and times share."""

    def joined(before: Any, after: Any) -> Any:
        return before[0] * after[0], after[0] * before[1] + after[1]

    return jax.lax.associative_scan(joined, (jnp.broadcast_to(decay, x.shape), x), axis=1)[1]


def test_slices_of_what_is_the_same_everywhere_are_no_slices() -> None:
    x, decay = normal(4, 16, 3), np.full(3, 0.9)
    program = check_meaning(recurrence, x, decay)
    calls = [op.call for op in ops(program, Opaque) if op.call.primitive.name == "slice"]
    assert calls
    assert all(4 in {axis.size for axis in call.passing} for call in calls)

    def corner(x: Any, i: Any) -> Any:
        all_alike = jnp.broadcast_to(x[:, None, None], (16, 5, 7))
        parts = all_alike[2:12:3, 1:3, ::2], jax.lax.dynamic_slice(all_alike, (i, i, i), (3, 2, 7))
        return jnp.concatenate([part.ravel() for part in parts])

    program = check_meaning(corner, normal(16), np.int32(9))
    slices = [op.call for op in ops(program, Opaque) if "slice" in op.call.primitive.name]
    assert len(slices) == 2
    assert all(layout_shape(call.arg_layouts[0]) in ((16,), (16, 1, 1)) for call in slices)


def test_a_batch_goes_through_an_associative_scan() -> None:
    """The derivative of eight sequences is taken sequence by sequence, or channel by channel."""
    x, decay = normal(8, 256, 16), np.full(16, 0.9, np.float32)
    fn = jax.grad(lambda decay, x: jnp.tanh(recurrence(x, decay)).mean())
    optimized = eqsat.optimize(fn, budget="500KB")
    plan = optimized.plan(decay, x)
    assert plan.peak_bytes <= 500_000
    assert {loop.label for loop in plan.loops} in ({"x.0"}, {"decay.0"})
    np.testing.assert_allclose(optimized(decay, x), jax.jit(fn)(decay, x), rtol=1e-4)


def test_slices_of_one_key_for_all_stay_calls() -> None:
    """Keys have no numbers that could be broadcast again."""

    def drawn(x: Any) -> Any:
        keys = jnp.broadcast_to(jax.random.key(3), (8,))[2:5]
        return x + jax.vmap(lambda key: jax.random.normal(key, (4,)))(keys).sum(0)

    program, _ = lowered(drawn, normal(4))
    assert "slice" in {op.call.primitive.name for op in ops(program, Opaque)}
    optimized = eqsat.optimize(drawn, budget="1MB")
    np.testing.assert_allclose(optimized(normal(4)), jax.jit(drawn)(normal(4)), rtol=1e-6)


MATRIX = normal(6, 6) + 8 * np.eye(6, dtype=np.float32)

FACTORISATIONS: dict[str, Callable[[Any], Any]] = {
    "cholesky": lambda a: jnp.linalg.cholesky(a @ a.T),
    "solve": lambda a: jnp.linalg.solve(a, a[:, 0]),
    "cho_solve": lambda a: jax.scipy.linalg.cho_solve((a, True), a[0]),
    "triangular": lambda a: jax.scipy.linalg.solve_triangular(a, a[:, :2]),
    "qr": lambda a: jnp.abs(jnp.linalg.qr(a)[1]),
    "eigh": lambda a: jnp.linalg.eigvalsh(a + a.T),
    "svd": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "determinant": lambda a: jnp.linalg.slogdet(a)[1],
    "sort": lambda a: jnp.sort(a, axis=0)[2] + jnp.argsort(a, axis=1)[0],
    "transform": lambda a: jnp.abs(jnp.fft.rfft2(a)),
}


@pytest.mark.parametrize("name", FACTORISATIONS)
def test_one_matrix_is_factorised_once_for_a_whole_batch(name: str) -> None:
    def function(a: Any) -> Any:
        return jax.vmap(FACTORISATIONS[name])(jnp.broadcast_to(a, (5, *a.shape)))

    program = check_meaning(function, MATRIX, rtol=1e-4)
    calls = [op.call for op in ops(program, Opaque)]
    assert all(5 not in layout_shape(layout) for call in calls for layout in call.out_layouts), calls


def test_chains_that_start_from_one_point_do_not_need_the_matrices_of_all_at_once() -> None:
    n, chains = 150, 12
    x, y = normal(n, 2), normal(n)

    def steps(x: Any, y: Any) -> Any:
        def density(scale: Any) -> Any:
            k = jnp.exp(-jnp.abs(x[:, None] - x[None]).sum(-1) / jnp.exp(scale)) + 0.1 * jnp.eye(n)
            c = jax.scipy.linalg.cho_factor(k, lower=True)
            return y @ jax.scipy.linalg.cho_solve(c, y)

        def step(state: Any, offsets: Any) -> Any:
            scale, best = state
            other = jax.vmap(density)(scale + offsets)
            return (jnp.where(other < best, scale + offsets, scale), jnp.minimum(best, other)), None

        start = jnp.zeros(chains)
        offsets = 0.1 * jax.random.normal(jax.random.key(0), (5, chains))
        return jax.lax.scan(step, (start, jax.vmap(density)(start)), offsets)[0]

    budget = 10 * 4 * n * n
    optimized = eqsat.optimize(steps, budget=budget)
    assert optimized.plan(x, y).peak_bytes <= budget < 12 * 4 * n * n
    for found, wanted in zip(optimized(x, y), jax.jit(steps)(x, y), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3)
