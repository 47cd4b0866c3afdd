"""JAX's switches for debugging do what they do to functions under `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.kernels import close


def kernel(x: Any) -> Any:
    return jnp.sum(jnp.sqrt(x[:, None] - x), 1)


X = jnp.linspace(0, 1, 200)

TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "called": lambda f: f(X),
    "jit": lambda f: jax.jit(f)(X),
    "grad": lambda f: jax.grad(lambda x: f(x).sum())(X),
    "vmap": lambda f: jax.vmap(f)(jnp.stack([X, X])),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", sorted(TRANSFORMED))
def test_what_is_no_number_is_found_if_jax_looks_out_for_it(name: str) -> None:
    optimized = eqsat.optimize(kernel, budget="60kB")
    TRANSFORMED[name](optimized)
    with jax.debug_nans(True):
        for _ in range(2):
            with pytest.raises(FloatingPointError, match=r"\(nan\) encountered in sqrt at .*test_deb"):
                TRANSFORMED[name](optimized)


def test_infinities_are_found_in_repeated_calls() -> None:
    optimized = eqsat.optimize(lambda x: jnp.log(x), budget="60kB")
    with jax.debug_infs(True):
        for _ in range(2):
            optimized(X + 1)
        with pytest.raises(FloatingPointError, match=r"invalid value \(inf\) encountered in log"):
            optimized(X)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", sorted(TRANSFORMED))
def test_without_jit_the_function_is_run_line_by_line(name: str) -> None:
    wanted = TRANSFORMED[name](kernel)
    optimized = eqsat.optimize(kernel, budget="60kB")
    for _ in range(2):
        with jax.disable_jit():
            close(TRANSFORMED[name](optimized), wanted)
        TRANSFORMED[name](optimized)  # so that the next call is one like the last


def test_without_jit_values_can_be_looked_at() -> None:
    seen: list[Any] = []

    def looked_at(x: Any) -> Any:
        seen.append(x)
        return kernel(x)

    with jax.disable_jit():
        eqsat.optimize(looked_at, budget="60kB")(X)
    np.testing.assert_array_equal(seen[0], X)


def test_without_jit_there_are_plans_and_what_is_traced_already_is_evaluated() -> None:
    optimized = eqsat.optimize(kernel, budget="60kB")
    _, tangent_map = jax.linearize(optimized, X)
    wanted = tangent_map(X)
    with jax.disable_jit():
        assert optimized.plan(X).peak_bytes <= 60_000
        close(tangent_map(X), wanted)
