"""What optimised functions of files refuse, and what they say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.errors import BudgetError, EqsatError
from tests.stages import normal

X = normal(100_000, 4)
W = jnp.arange(1.0, 5.0)


@pytest.fixture
def file() -> Any:
    return eqsat.on_host(X)


def loss(w: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: jax.jit(lambda w: eqsat.optimize(loss, budget="300kB")(w, x))(W),
            EqsatError,
            "can't be called inside of jit",
        ),
        (
            lambda x: eqsat.optimize(lambda x: jnp.sort(x, axis=0), budget="300kB")(x),
            BudgetError,
            "needs only chunks of the arguments",
        ),
        (
            lambda x: eqsat.optimize(lambda rows: jnp.sort(rows, 0) - rows, budget="300kB")(x),
            BudgetError,
            r"not in memory \(rows\) .* need one of them whole: sort \(.*\)\. Write what",
        ),
        (
            lambda x: eqsat.optimize(lambda x: 2 * x, budget="300kB", host_budget="1MB")(x),
            EqsatError,
            r"take 1\.6 MB of the host's memory",
        ),
        (
            lambda x: eqsat.optimize(jnp.sum, budget="300kB", host_budget="20B")(x),
            BudgetError,
            "exceed the host budget of 20 B",
        ),
        (
            lambda x: eqsat.optimize(lambda x, z: (z.reshape(4, -1).T * x).sum(0), budget="300kB")(
                x, eqsat.on_host(X.T.reshape(-1))
            ),
            BudgetError,
            "a chunk that is no slice of argument 1",
        ),
        (
            lambda x: eqsat.optimize(loss, budget="300kB")(
                W, eqsat.on_host(jax.ShapeDtypeStruct(X.shape, "f4"))
            ),
            EqsatError,
            "a call needs the array",
        ),
        (
            lambda x: eqsat.optimize(lambda x, key: x.sum(), budget="300kB")(x, jax.random.key(0)),
            EqsatError,
            "keys of jax.random",
        ),
        (
            lambda x: jax.jacrev(eqsat.optimize(lambda w, x: x.T @ jnp.tanh(x @ w), budget="300kB"))(W, x),
            EqsatError,
            "inside of jit, vmap",
        ),
        (
            lambda x: eqsat.optimize(lambda x: (x, x), budget="300kB", out="x.npy")(x),
            EqsatError,
            "out does not match the results",
        ),
        (
            lambda x: eqsat.optimize(lambda x: jnp.roll(x - 1, 1), budget="300kB")(x),
            BudgetError,
            "needs only chunks of the arguments",
        ),
        (
            lambda x: eqsat.optimize(loss, budget="300kB")(jnp.ones((4, 30_000)), x),
            BudgetError,
            "the arguments that stay on the device take 480 kB",
        ),
    ],
)
def test_what_can_not_be_done_is_said(
    call: Callable[[Any], Any], error: type[Exception], message: str, file: Any
) -> None:
    with pytest.raises(error, match=message):
        call(file)


def test_a_key_is_refused_before_a_checkpoint_is_looked_for(file: Any, tmp_path: Path) -> None:
    noisy = eqsat.optimize(
        lambda key, x: jnp.sum(x) + jax.random.normal(key), budget="300kB", checkpoint=tmp_path
    )
    with pytest.raises(EqsatError, match=r"keys of jax\.random"):
        noisy(jax.random.key(0), file)


def test_chunks_that_are_too_short_are_refused_unless_that_is_wanted() -> None:
    """Otherwise a call would go on for minutes, and nobody had said so."""
    file = eqsat.on_host(jax.ShapeDtypeStruct((3_000_000, 8), "float32"))

    def standardised(x: Any) -> Any:
        return (x - x.mean(0)) / x.std(0)

    with pytest.raises(BudgetError, match=r"chunks are so short .* min: .* \(max_slowdown=10\)"):
        eqsat.optimize(standardised, budget="1kB").plan(file)
    assert eqsat.optimize(standardised, budget="1kB", max_slowdown=None).plan(file).peak_bytes <= 1000
    assert eqsat.optimize(standardised, budget="1MB").plan(file).peak_bytes <= 10**6
