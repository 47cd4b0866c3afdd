"""Programs of one device, run as a batch of devices: collectives are over the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.ops import Leaf
from eqsat.ir.partitioning import partitioned, split_dimension
from eqsat.ir.program import Program
from tests.ir.devices import DEVICES, collectives, on_devices, program_of
from tests.nightly import nightly_but

N = 12
"""The length of the axis that is split, which no other axis has."""


def split_axes(program: Program) -> list[Axis]:
    found = {axis for inner in program.inside() for term in inner.reachable() for axis in term.axes}
    return sorted(axis for axis in found if axis.size > DEVICES)


def rows_of(program: Program) -> Axis:
    return next(axis for axis in split_axes(program) if axis.size == N)


def check(fn: Callable[..., Any], *args: Any, rtol: float = 1e-5) -> int:
    """Compare a function with what devices make of it, for each axis; how many there were."""
    program = program_of(fn, args)
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(fn)(*args))]
    axes = split_axes(program)
    for axis in axes:
        got = on_devices(partitioned(program, [axis], "data", DEVICES), args)
        for one, other in zip(got, wanted, strict=True):
            assert one.dtype == other.dtype
            if other.dtype.kind in "fc" or other.dtype == jnp.bfloat16:
                one, other = one.astype(np.complex128), other.astype(np.complex128)
                np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)
            else:
                np.testing.assert_array_equal(one, other)
    return len(axes)


X = np.random.default_rng(0).standard_normal((N, 5)).astype(np.float32)
HOSTILE = X.copy()
HOSTILE[3, 1], HOSTILE[7, 2], HOSTILE[8, 2], HOSTILE[2, 3], HOSTILE[9, 4] = (
    np.nan,
    np.inf,
    np.inf,
    -np.inf,
    np.nan,
)
TIES = np.round(X)
WHOLE = (X * 1000).astype(np.int32)


def over_batch(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        return jnp.tanh(carry + row), jnp.sum(carry)

    return lax.scan(step, jnp.zeros(len(x)), jnp.stack([jnp.sin(x[:, 0]), x[:, 1], x[:, 2]]))


def over_itself(x: Any) -> Any:
    return lax.scan(lambda carry, row: (carry * 0.5 + row, jnp.max(carry)), jnp.zeros(5), x)


def until(x: Any) -> Any:
    def going(state: Any) -> Any:
        return jnp.sum(state[0] ** 2) > 1e-2

    return lax.while_loop(going, lambda state: (state[0] * 0.5 - jnp.mean(state[0]), state[1] + 1), (x, 0))


CASES: dict[str, Callable[[Any], Any]] = {
    "sums and means": lambda x: (jnp.sum(x, 0), jnp.mean(x), x - jnp.mean(x, 0)),
    "variance": lambda x: jnp.var(x, 0),
    "products": lambda x: jnp.prod(x, 0),
    "extremes": lambda x: (jnp.max(x, 0), jnp.min(x), x.max(1)),
    "truth": lambda x: ((x > 0).any(0), (x > -9).all(), jnp.sum(x > 0, 0)),
    "argmax": lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 0), jnp.argmax(x, 1)),
    "best": lambda x: (*lax.top_k(x.T, 2), *lax.top_k(x.T, 9), *lax.top_k(x.T, 1)),
    "contraction": lambda x: (x.T @ x, x @ x.T, jnp.einsum("ij,ik->jk", x, x[:, :2])),
    "pairs": lambda x: jnp.sum(jnp.exp(-((x[:, None] - x[None]) ** 2)), (1, 2)),
    "indices": lambda x: x * jnp.arange(N)[:, None] + jnp.eye(N)[:, :5],
    "order": lambda x: (jnp.sort(x, 0), jnp.cumsum(x, 0), jnp.argsort(x, 0)),
    "scatters": lambda x: (
        jnp.zeros(3).at[jnp.arange(N) % 3].add(x[:, 0]),
        jnp.ones(3).at[jnp.arange(N) % 3].max(x[:, 0]),
        jnp.ones(3).at[jnp.arange(N) % 3].set(x[:, 0]),
        x.at[jnp.arange(5)].multiply(2.0),
    ),
    "gathers": lambda x: (x[jnp.argsort(x[:, 0])[:3]], x[3], jnp.take_along_axis(x, jnp.argsort(x, 0), 0)),
    "slices": lambda x: (x[2:9], x[::-1], jnp.roll(x, 1, 0), jnp.concatenate([x, x[:3]]), jnp.pad(x, 1)),
    "reshapes": lambda x: (x.reshape(-1), x.reshape(3, 4, 5).sum(0), x.T.reshape(-1), jnp.tile(x, (2, 1))),
    "convolution": lambda x: jnp.convolve(x[:, 0], jnp.ones(3), "same"),
    "transform": lambda x: jnp.abs(jnp.fft.fft(x, axis=0)),
    "batch in a loop": over_batch,
    "a loop over it": over_itself,
    "a loop until": until,
    "choice": lambda x: lax.cond(jnp.sum(x) > 0, lambda y: jnp.sum(y, 0), lambda y: y[0], x),
    "softmax": lambda x: (jax.nn.softmax(x, 0), jax.nn.logsumexp(x, 0)),
    "gradient": lambda x: jax.grad(lambda y: jnp.sum(jax.nn.softmax(y @ y.T, -1) ** 2))(x),
    "constants": lambda x: jnp.broadcast_to(jnp.float32(2), x.shape) + 0 * jnp.sum(x),
    "sampled": lambda x: jax.random.choice(jax.random.key(1), x, (3,)),
    "linear algebra": lambda x: (jnp.linalg.cholesky(x.T @ x + jnp.eye(5)), jnp.linalg.qr(x)[1] ** 2),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_devices_compute_the_same(name: str) -> None:
    """Of twelve rows and five columns, four devices divide the rows only."""
    assert check(CASES[name], X, rtol=1e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", ["extremes", "argmax", "best", "sums and means", "truth", "order", "scatters"]
)
def test_on_hostile_data(name: str) -> None:
    for data in (HOSTILE, TIES, -TIES * 0.0):
        check(CASES[name], data)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "bool"])
def test_integers_wrap_as_on_one_device(dtype: str) -> None:
    x = WHOLE.astype(dtype)

    def fn(x: Any) -> Any:
        kept = jnp.sum(x, 0, dtype=x.dtype if x.dtype != bool else None), jnp.max(x, 0), jnp.argmax(x, 0)
        bits = lax.reduce_or(x, (0,)), lax.reduce_and(x, (0,)), lax.reduce_xor(x, (0,))
        return kept, bits, lax.top_k(x.T.astype("int32"), 3)

    assert check(fn, x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_sums_are_rounded_once(dtype: str) -> None:
    x = jnp.asarray(X * 100, dtype)
    check(lambda x: (jnp.sum(x, 0), x.T @ x, jnp.mean(x, 0)), x, rtol=1e-2)
    big = jnp.full((N, 5), 6e3, dtype).at[::2].multiply(-1)
    check(lambda x: jnp.sum(x, 0), big)


def test_nothing_is_said_about_what_each_device_has() -> None:
    program = program_of(lambda x: (jnp.exp(x), jnp.sort(x, 1)), [X])
    part = partitioned(program, [rows_of(program)], "data", DEVICES)
    assert collectives(part.program) == []
    assert part.inputs == (0,)
    assert part.outputs == (0, 0)


def test_a_sum_is_added_up_once() -> None:
    program = program_of(lambda x: jnp.sum(jnp.exp(x)) ** 2, [X])
    part = partitioned(program, [rows_of(program)], "data", DEVICES)
    assert collectives(part.program) == ["psum"]
    assert part.outputs == (None,)


def test_a_merged_dimension_is_split_if_the_axis_is_its_slowest() -> None:
    slow, fast = Axis(0, 8), Axis(1, 3)
    assert split_dimension((None, (slow, fast)), slow) == 1
    assert split_dimension((None, (slow, fast)), fast) is None
    assert split_dimension((slow, slow), slow) is None


def test_inputs_keep_their_numbers() -> None:
    program = program_of(lambda x, y: x.T @ x + y, [X, np.eye(5, dtype=np.float32)])
    part = partitioned(program, [rows_of(program)], "data", DEVICES)
    assert [term.op.index for term in part.program.inputs if isinstance(term.op, Leaf)] == [0, 1]


@pytest.mark.parametrize("second", nightly_but(["gathers"], sorted(CASES)))
@settings(max_examples=3)
@given(first=st.sampled_from(["sums and means", "extremes", "softmax", "pairs", "reshapes"]))
def test_one_after_another(first: str, second: str) -> None:
    def both(x: Any) -> Any:
        results = jax.tree.leaves(CASES[first](x))
        return CASES[second](x + 0.1 * jnp.mean(results[0].astype(jnp.float32)))

    check(both, X, rtol=1e-3)
