"""What JAX's transformations make of an optimised function keeps to its budget."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.backend.certificate import certify
from tests.kernels import close, kernel
from tests.stages import normal

BUDGET = 150_000
"""The kernel matrix of 400 and 600 points takes 960 kB."""


def energy(x: Any, y: Any, v: Any) -> Any:
    return jnp.sum(kernel(x, y, v) ** 2)


SMALL = {fn: eqsat.optimize(fn, budget=BUDGET) for fn in (energy, kernel)}
"""Planned once for all tests."""

POINTS = normal(400, 3), normal(600, 3), normal(600)
BATCH = *POINTS[:2], normal(3, 600)
EACH = (0, 1, 2)


def summed_over_batch(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, v: jnp.sum(jax.vmap(f, (None, None, 0))(x, y, v))


def scanned(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, v: lax.scan(lambda c, w: (c + f(x, y, w), None), jnp.float32(0), v)[0]


TRANSFORMED: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "grad": (lambda f: jax.grad(f, EACH), energy, POINTS),
    "value_and_grad": (lambda f: jax.value_and_grad(f, EACH), energy, POINTS),
    "vmap of grad": (lambda f: jax.vmap(jax.grad(f, EACH), (None, None, 0)), energy, BATCH),
    "grad of vmap": (lambda f: jax.grad(summed_over_batch(f), EACH), energy, BATCH),
    "jacrev": (lambda f: jax.jacrev(f, 2), kernel, (normal(8, 3), normal(3000, 3), normal(3000))),
    "checkpoint of grad": (lambda f: jax.checkpoint(jax.grad(f, EACH)), energy, POINTS),
    "grad of checkpoint": (lambda f: jax.grad(jax.checkpoint(f), EACH), energy, POINTS),
    "scan": (scanned, energy, BATCH),
    "jvp of grad": (lambda f: lambda *xs: jax.jvp(jax.grad(f, EACH), xs, xs)[1], energy, POINTS),
}


BESIDE = {"value_and_grad": 14_436, "scan": 4_800}
"""Bytes that the whole has and a program in it has not: the gradient; all of the batch but one member."""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", TRANSFORMED)
def test_the_compiled_whole_is_within_the_budget(name: str) -> None:
    transform, fn, args = TRANSFORMED[name]
    optimized, plain = (
        certify(lambda *xs, f=f: jax.tree.leaves(transform(f)(*xs)), [jax.typeof(arg) for arg in args])
        for f in (SMALL[fn], fn)
    )
    assert optimized.peak - BESIDE.get(name, 0) <= BUDGET < plain.peak
    for got, wanted in zip(optimized(*args), plain(*args), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("transform", "title"),
    [
        (lambda f: f, "needy: "),
        (jax.grad, "the gradient of needy: "),
        (lambda f: lambda x: jax.jvp(f, (x,), (x,)), "needy: "),
        (jax.jacfwd, "the tangent map of needy, for a batch of 50: "),
        (jax.vmap, "needy, for a batch of 5: "),
    ],
)
def test_a_refusal_says_which_program_it_is_about(transform: Callable[..., Any], title: str) -> None:
    def needy(x: Any) -> Any:
        return jnp.sum(jnp.arange(2500) * jnp.sort(jnp.ravel(jnp.outer(x, x))))

    fn = transform(eqsat.optimize(needy, budget=2_000))
    with pytest.raises(eqsat.BudgetError) as caught:
        jax.jit(fn)(normal(5, 50) if transform is jax.vmap else normal(50))
    assert str(caught.value).startswith(title)


def test_gradients_may_need_more_than_the_function() -> None:
    def fn(x: Any) -> Any:
        return jnp.sum(x)

    optimized = eqsat.optimize(fn, budget=500)
    close(optimized(normal(100)), fn(normal(100)))
    with pytest.raises(eqsat.BudgetError, match="the gradient of fn: the arguments"):
        jax.grad(optimized)(normal(100))


def test_a_second_compilation_plans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    optimized = eqsat.optimize(energy, budget=BUDGET)
    gradient = jax.jit(jax.grad(optimized))
    small = normal(20, 3), normal(30, 3), normal(30)
    gradient.lower(*small)
    monkeypatch.setattr("eqsat.compiler.planners.Planner", None)
    jax.jit(jax.grad(functools.partial(optimized))).lower(*small)
    jax.jit(lambda *xs: jax.grad(optimized)(*xs)).lower(*small)
