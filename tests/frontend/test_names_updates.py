"""An update of one slice is also a choice by index, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from examples.measure import plain_peak
from tests.frontend.named import check_choice, choices
from tests.stages import lowered, normal

N = 130
HOSTILE = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1.5, -(2.0**60)], np.float32)
TABLE = np.resize(HOSTILE, (N, N))
UPDATE = np.resize(HOSTILE[::-1], N)
PLACE = np.int32(7)


def put(mode: str, index: Any) -> Callable[..., Any]:
    return lambda a, u, _: a.at[jnp.asarray(index)].set(u, mode=mode)


WRITTEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "set": lambda a, u, i: a.at[3].set(u),
    "at an index that is given": lambda a, u, i: a.at[i].set(u),
    "from the end": lambda a, u, i: a.at[-i].set(u),
    "a number": lambda a, u, i: a.at[3].set(0),
    "a column": lambda a, u, i: a.at[:, i].set(u),
    "an entry": lambda a, u, i: a.at[i, 5].set(u[0]),
    "add": lambda a, u, i: a.at[i].add(u),
    "subtract": lambda a, u, i: a.at[i].subtract(u),
    "multiply": lambda a, u, i: a.at[i].multiply(u),
    "min": lambda a, u, i: a.at[i].min(u),
    "max": lambda a, u, i: a.at[i].max(u),
    "of zeros": lambda a, u, i: jnp.zeros_like(a).at[i].set(u),
    "out of bounds": put("drop", N),
    "far out of bounds": put("drop", 2**31 - 1),
    "below all bounds": put("drop", -N - 1),
    "clipped": put("clip", N + 5),
    "clipped from below": put("clip", -N - 5),
    "by a short index": put("drop", np.uint8(100)),
    "by an index without a sign": put("drop", np.uint32(2**32 - 1)),
    "each of a batch": lambda a, u, i: jax.vmap(lambda row, j: row.at[j].set(2.0))(
        a, (jnp.arange(N) * 3 + i) % N
    ),
    "each column of a batch": lambda a, u, i: jax.vmap(lambda row: row.at[i].add(u[0]), 1, 1)(a),
    "by its start": lambda a, u, i: lax.dynamic_update_index_in_dim(a, u, i, 0),
    "by a start that is clamped": lambda a, u, i: lax.dynamic_update_slice(a, u[:, None], (i, 9 * i * i)),
    "of integers": lambda a, u, i: jnp.isnan(a).astype("int8").at[i].multiply(jnp.isfinite(u).astype("int8")),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_update_of_one_slice_is_a_choice(name: str) -> None:
    program, constants = lowered(WRITTEN[name], TABLE, UPDATE, PLACE)
    check_choice(program, [TABLE, UPDATE, PLACE, *constants])


OTHERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "of several": lambda a, u, i: a.at[i + jnp.arange(3) ** 2].add(u),
    "of rows that follow one another": lambda a, u, i: lax.dynamic_update_slice(a, a[:5], (i, 0)),
    "a function of entries": lambda a, u, i: a.at[i].apply(jnp.cos),
    "of a small array": lambda a, u, i: a[:9].at[i].set(u),
    "of one of few coordinates": lambda a, u, i: a.reshape(-1, 10).at[:, 3].set(0),
    "of one of few, by its start": lambda a, u, i: lax.dynamic_update_index_in_dim(
        a.reshape(10, -1), jnp.tile(u, 13), i, 0
    ),
    "of all": lambda a, u, i: a.at[...].add(u),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_update_is_none(name: str) -> None:
    program, _ = lowered(OTHERS[name], normal(N, N), normal(N), PLACE)
    assert choices(program) == []


def test_what_an_iteration_updates_in_place_is_no_choice() -> None:
    """A choice would write the whole array in every iteration, and XLA adds updates of zeros in place."""

    def table(a: Any, u: Any, i: Any) -> Any:
        zeros = jnp.zeros_like(a)
        return lax.fori_loop(0, N, lambda j, a: a.at[j].set(u).at[i, j].add(u[j]) + zeros.at[j].set(u), a)

    program, _ = lowered(table, TABLE, UPDATE, PLACE)
    assert not any(choices(inner) for inner in program.inside(known=True))


def test_long_weights_of_which_one_is_replaced_are_never_whole() -> None:
    """The weight of an entry itself is the largest of the others, as in non-local means."""

    def mean(x: Any, y: Any) -> Any:
        w = jnp.exp(-((x[:, None] - y) ** 2))
        w = w.at[100].set(0.0)
        w = w.at[100].set(w.max(0))
        return (w * jnp.sin(x)[:, None]).sum(0) / w.sum(0), w[100]

    x, y = normal(300_000), normal(8)
    optimized = eqsat.optimize(mean, budget="2MB")
    assert optimized.plan(x, y).peak_bytes <= 2_000_000 < plain_peak(mean, [x, y])
    for found, wanted in zip(optimized(x, y), mean(x, y), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
