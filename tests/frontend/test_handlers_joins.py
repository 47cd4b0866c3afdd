"""Arrays that are joined in loops along an axis that they share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.frontend.handlers_joins import FEWEST_SHARED
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from tests.stages import check_meaning, lowered, normal

COUNT = FEWEST_SHARED + 3


def loop(joined: Any, x: Any, length: int = 3) -> Any:
    """The sum of what is joined, in a loop."""
    zeros = jnp.zeros(jax.eval_shape(joined, x, 0).shape, jax.eval_shape(joined, x, 0).dtype)
    return lax.fori_loop(0, length, lambda i, c: c + joined(x, i), zeros)


def concatenates(program: Program) -> bool:
    """Whether a program, or a body in it, concatenates arrays."""
    ops = [term.op for body in program.inside() for term in body.reachable()]
    return any(isinstance(op, Opaque) and op.call.primitive.name == "concatenate" for op in ops)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, np.float16])
@pytest.mark.parametrize(
    "joined",
    [
        lambda x, i: jnp.concatenate([x, -x], 0),
        lambda x, i: jnp.concatenate([x, 2 * x, -x], 1),
        lambda x, i: jnp.concatenate([x, x[:0], x * x], 0),
    ],
    ids=["two", "three", "with an empty one"],
)
def test_they_are_that_axis_several_times(joined: Any, dtype: Any) -> None:
    x = (3 * normal(COUNT, COUNT + 1)).astype(dtype)
    program = check_meaning(lambda x: loop(joined, x), x, rtol=1e-2 if dtype == np.float16 else 1e-5)
    assert not concatenates(program)


@pytest.mark.parametrize(
    "joined",
    [
        lambda x, i: jnp.concatenate([x, normal(COUNT, seed=1)]),
        lambda x, i: jnp.concatenate([x[: COUNT // 2], x[: COUNT // 2]]),
        lambda x, i: jnp.concatenate([x] * 5),
    ],
    ids=["other axes", "few entries", "many arrays"],
)
def test_others_are_concatenated(joined: Any) -> None:
    x = normal(COUNT)
    assert concatenates(check_meaning(lambda x: loop(joined, x), x))


def test_what_is_infinite_or_no_number_stays_in_its_half() -> None:
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 1e30] * 20, np.float32)

    def fn(x: Any) -> Any:
        return loop(lambda x, i: jnp.concatenate([2 * x, -x]), x, 2)

    program, constants = lowered(fn, x)
    assert not concatenates(program)
    (found,) = interpret(program, [x, *constants])
    np.testing.assert_array_equal(found, np.asarray(jax.jit(fn)(x)))


def test_antithetic_paths_are_simulated_by_chunks() -> None:
    count = 20_000

    def fn(key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            normals = jax.random.normal(key, (count // 2,))
            paths, mean = state
            paths = paths * jnp.exp(0.01 * jnp.concatenate([normals, -normals]))
            return (paths, mean + paths / 10), None

        start = jnp.ones(count), jnp.zeros(count)
        return jnp.maximum(lax.scan(step, start, jax.random.split(key, 10))[0][1] - 1, 0).mean()

    key = jax.random.key(0)
    optimized = eqsat.optimize(fn, budget=4 * count)  # Half of what is carried.
    assert optimized.plan(key).peak_bytes <= 4 * count
    np.testing.assert_allclose(optimized(key), jax.jit(fn)(key), rtol=1e-5)


def test_where_reshapes_are_calls_they_are_concatenated() -> None:
    x = normal(2 * COUNT)

    def fn(x: Any) -> Any:
        # No parts of the axis are its halves and its rows of four.
        return loop(lambda x, i: jnp.concatenate([x, -x]).reshape(COUNT, 4).sum(1), x)

    assert not concatenates(check_meaning(fn, x))
    assert concatenates(check_meaning(fn, x, reshapes=False))
