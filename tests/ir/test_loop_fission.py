"""Results of loops that lack an axis are computed in loops of their own; their values stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from jax import lax

from eqsat.ir.control import Scan
from eqsat.ir.loop_fission import with_loop_fission
from eqsat.ir.ops import Call
from eqsat.ir.program import Program
from tests.random_control import random_loops
from tests.stages import before_and_after, normal

ROWS, WIDTH, LAYERS = 40, 6, 4


def apart(function: Callable[..., Any], *args: Any) -> tuple[Program, Program]:
    return before_and_after(with_loop_fission, function, *args)


def scans(program: Program) -> list[Call]:
    return list(dict.fromkeys(call for call, _ in program.controls() if isinstance(call.control, Scan)))


def rows_of(call: Call) -> bool:
    """Whether a loop has the axis of the rows anywhere."""
    return any(
        axis.size == ROWS for body in call.bodies for term in body.program.reachable() for axis in term.axes
    )


def orders(x: Any, w: Any) -> Any:
    """The rows after all layers, and the order of each layer's weights."""

    def layer(h: Any, w: Any) -> Any:
        order = jnp.argsort(w.sum(0))
        return jnp.tanh(h @ w)[:, order], order

    return lax.scan(layer, x, w)


def scales(x: Any, w: Any) -> Any:
    """A carry without rows that the rows read."""

    def layer(state: Any, w: Any) -> Any:
        scale, h = state
        return (scale * jnp.abs(w).max(), jnp.tanh(h @ w) * scale), None

    return lax.scan(layer, (jnp.float32(1.0), x), w)[0]


def totals(x: Any, w: Any) -> Any:
    """Results without rows that are sums over them."""

    def layer(h: Any, w: Any) -> Any:
        h = jnp.tanh(h @ w)
        return h, h.sum(0)

    return lax.scan(layer, x, w)


ARGUMENTS = (normal(ROWS, WIDTH), normal(LAYERS, WIDTH, WIDTH))


@pytest.mark.parametrize("function", [orders, scales])
def test_what_needs_no_rows_has_a_loop_of_its_own(function: Callable[..., Any]) -> None:
    before, after = apart(function, *ARGUMENTS)
    assert len(scans(before)) == 1
    assert sorted(map(rows_of, scans(after))) == [False, True]


def test_sums_over_rows_need_them() -> None:
    before, after = apart(totals, *ARGUMENTS)
    assert after is before


def test_what_a_sum_is_carried_to_needs_the_rows_in_the_next_iteration() -> None:
    def late(x: Any, w: Any) -> Any:
        def layer(state: Any, w: Any) -> Any:
            h, seen, later = state
            h = jnp.tanh(h @ w)
            return (h, h.sum(), seen + w.sum()), later

        return lax.scan(layer, (x, jnp.float32(0.0), jnp.float32(0.0)), w)

    before, after = apart(late, *ARGUMENTS)
    assert after is before


def test_loops_that_share_most_of_their_work_stay_together() -> None:
    """The gradients of two matrices, one without an axis of the other, are sums of one backward pass."""

    def gradients(x: Any, w: Any, v: Any) -> Any:
        def loss(w: Any, v: Any) -> Any:
            def step(h: Any, x: Any) -> Any:
                h = jnp.tanh(x @ v + h @ w)
                return h, None

            return lax.scan(step, jnp.zeros((ROWS, WIDTH)), x)[0].sum()

        return jax.grad(loss, argnums=(0, 1))(w, v)

    steps = normal(LAYERS, ROWS, 5)
    before, after = apart(gradients, steps, normal(WIDTH, WIDTH), normal(5, WIDTH))
    assert after is before


def test_loops_inside_of_loops_are_taken_apart() -> None:
    def repeated(x: Any, w: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            h, order = orders(h, w)
            return h, order

        return lax.scan(step, x, None, length=2)

    before, after = apart(repeated, *ARGUMENTS)
    assert sum(len(scans(inner)) for inner in after.inside()) > sum(
        len(scans(inner)) for inner in before.inside()
    )


def test_conditions_of_while_loops_may_need_all() -> None:
    def until(x: Any) -> Any:
        return lax.while_loop(lambda s: s[1].sum() < 100, lambda s: (s[0] + 1, s[1] + 1.0), (0, x))

    before, after = apart(until, ARGUMENTS[0])
    assert after is before


@settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))
@given(random_loops())
def test_random_loops_mean_the_same(program: Any) -> None:
    apart(program.function(), *program.arrays(np.random.default_rng(0)))
