"""Any division into chunks, and hostile entries of any dtype, give the results of plain JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.streaming.planner import StreamPlanner
from eqsat.streaming.steps import Pass, Streaming
from tests.nightly import THOROUGH
from tests.stages import normal
from tests.streaming.unplanned import every_steps, planner, run_by_passes

X, Y = normal(29, 3), normal(22, 3)

Function = Callable[..., Any]
SETTINGS = settings(max_examples=50 if THOROUGH else 4, derandomize=True)


def kernel(x: Any, y: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1))


def lloyd(x: Any, centres: Any) -> Any:
    labels = jnp.argmin(jnp.sum((x[:, None] - centres) ** 2, -1), 1)
    count = jax.ops.segment_sum(jnp.ones(len(x)), labels, len(centres))
    return jax.ops.segment_sum(x, labels, len(centres)) / jnp.maximum(count, 1)[:, None]


def settled(x: Any, y: Any) -> Any:
    """A loop for each row of x, every iteration of which reads all of y."""

    def pulled(_: Any, centre: Any) -> Any:
        return 0.5 * centre + jnp.max(jnp.tanh(y * centre), 0)

    return jax.vmap(lambda row: lax.fori_loop(0, 3, pulled, row))(x)


@functools.cache
def planned(fn: Function, *types: tuple[tuple[int, ...], str]) -> tuple[StreamPlanner, Streaming]:
    """The function by passes over arguments of these types, with memory for a few rows."""
    args = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in types]
    plan = planner(fn, args, range(len(args)))
    free = 10 * max(int(np.prod(one.shape[1:])) * one.dtype.itemsize for one in args)
    with plan.settings.alone():
        every = every_steps(plan, free)
        return plan, next(steps for steps in every if any(one.loads for one in steps.passes))


def by_passes(fn: Function, args: tuple[Any, ...], data: st.DataObject) -> list[Any]:
    """The results, in chunks whose lengths are drawn for each pass."""
    plan, steps = planned(fn, *((arg.shape, str(arg.dtype)) for arg in args))
    lengths = {one.id: data.draw(st.sampled_from(possible(one)), one.axis.name) for one in steps.passes}
    return run_by_passes(plan, steps, [eqsat.on_host(arg) for arg in args], lengths)


def possible(one: Pass) -> list[int]:
    """The lengths that chunks can have, of up to 14 or so: none of which one entry would be left."""
    size = one.axis.size
    return [length for length in range(max(one.shortest, 2, size // 14), size + 1) if size % length != 1]


DIVIDED: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "two files": (lambda x, y: kernel(x, y).sum(1), (X, Y)),
    "all pairs": (kernel, (X, Y)),
    "a file with itself": (lambda x: kernel(x, x).sum(1), (X,)),
    "nearest of another": (lambda x, y: jnp.argmin(-kernel(x, y), 1), (X, Y)),
    "largest": (lambda x: lax.top_k(x[:, 0], 4), (X,)),
    "standardised": (lambda x: (x - x.mean(0)) / x.std(0), (X,)),
    "softmax": (lambda x: jax.nn.softmax(x, 0), (X,)),
    "differences": (lambda x: jnp.abs(x[1:] - x[:-1]).sum(0), (normal(301, 3),)),
    "k-means": (lambda x: lax.fori_loop(0, 3, lambda _, c: lloyd(x, c), jnp.asarray(Y[:4])), (X,)),
    "loops for each row": (settled, (X, Y)),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", DIVIDED)
@SETTINGS
@given(st.data())
def test_any_division_gives_the_same(name: str, data: st.DataObject) -> None:
    fn, args = DIVIDED[name]
    for got, wanted in zip(by_passes(fn, args, data), jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


FLOATS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0]
COUNT = 13
"""How many entries are drawn. Sums and products of as many that are finite are exact in any order."""

REPEATED = {"entries": 2_000, "middle": 20_000}
"""How many entries there are where more are needed: those that are drawn, again and again."""

DTYPES: dict[str, list[Any]] = {
    "float32": FLOATS,
    "float16": FLOATS,
    "bfloat16": FLOATS,
    "complex64": [1j, -1 + 2j, complex(np.inf, 1), complex(np.nan, -0.0), complex(-0.0, -np.inf)],
    "int8": [-128, -127, -1, 0, 1, 3, 127],
    "uint8": [0, 1, 3, 128, 255],
    "int32": [-(2**31), -(2**31) + 1, -1, 0, 1, 3, 2**31 - 1],
    "uint32": [0, 1, 3, 2**31, 2**32 - 1],
    "bool": [False, True],
}
ORDERED = tuple(dtype for dtype in DTYPES if dtype != "complex64")
NUMBERS = tuple(dtype for dtype in ORDERED if dtype != "bool")
INTEGERS = ("int8", "uint8", "int32", "uint32")

HOSTILE: dict[str, tuple[Function, tuple[str, ...]]] = {
    "sum": (lambda x: jnp.sum(x, dtype=x.dtype), tuple(DTYPES)),
    "product": (lambda x: jnp.prod(x, dtype=x.dtype), ORDERED),
    "largest and smallest": (lambda x: (jnp.max(x), jnp.min(x)), ORDERED),
    "places": (lambda x: (jnp.argmax(x), jnp.argmin(x)), ORDERED),
    "first few": (lambda x: lax.top_k(x, 4), NUMBERS),
    "entries": (lambda x: (x, x + x, x == x.max()), NUMBERS),
    "middle": (jnp.median, ("float32", "int32")),
    "bits": (lambda x: lax.reduce_xor(x, (0,)) ^ lax.reduce_or(x, (0,)), INTEGERS),
    "centred": (lambda x: x - x.sum(dtype=x.dtype), NUMBERS),
    "as others": (lambda x: (x.astype(jnp.float32).sum(), (x > 1).sum(), x.astype(bool).all()), NUMBERS),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", HOSTILE)
@SETTINGS
@given(st.data())
def test_hostile_entries_come_through(name: str, data: st.DataObject) -> None:
    fn, dtypes = HOSTILE[name]
    dtype = data.draw(st.sampled_from(dtypes))
    entries = data.draw(st.lists(st.sampled_from(DTYPES[dtype]), min_size=COUNT, max_size=COUNT))
    x = np.array(entries).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = np.resize(x, REPEATED.get(name, COUNT))
    for got, wanted in zip(by_passes(fn, (x,), data), jax.tree.leaves(jax.jit(fn)(x)), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        mine, theirs = (np.asarray(one) for one in (got, wanted))
        if mine.dtype == ml_dtypes.bfloat16:
            mine, theirs = mine.astype(np.float32), theirs.astype(np.float32)
        np.testing.assert_array_equal(mine, theirs)
        if name == "entries" and mine.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(mine[mine == 0]), np.signbit(theirs[theirs == 0]))
