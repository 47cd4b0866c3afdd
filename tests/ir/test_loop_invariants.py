"""Small values that no iteration changes are computed before the loop; all values stay the same."""

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

import eqsat
from eqsat.ir.loop_invariants import with_loop_invariants
from eqsat.ir.ops import Dot, Opaque, Reduce
from eqsat.ir.program import Program
from tests.stages import before_and_after, normal

N = 120
"""The length of the matrix: its entries are enough operations for their sum to be moved."""

MATRIX, VECTOR = normal(N, N), normal(N)


def moved(function: Callable[..., Any], *args: Any) -> tuple[Program, Program]:
    return before_and_after(with_loop_invariants, function, *args)


def sums(program: Program) -> int:
    """How many sums and products there are in bodies."""
    bodies = [one for one in program.inside() if one is not program]
    return sum(isinstance(term.op, Reduce | Dot) for body in bodies for term in body.reachable())


def normalised(a: Any, x: Any) -> Any:
    """Divides by a norm of the matrix in each iteration, which also multiplies with it."""
    return lax.scan(lambda x, _: (a @ x / jnp.sqrt(jnp.sum(a * a)), None), x, None, length=3)[0]


def until(a: Any, x: Any) -> Any:
    """The condition, too, reads the norm."""
    return lax.while_loop(
        lambda state: jnp.vdot(state, state) < jnp.sum(a * a),
        lambda state: 2 * state + jnp.tanh(state) / jnp.sum(a * a) + jnp.max(a),
        x,
    )


def nested(a: Any, x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, x: lax.fori_loop(0, 2, lambda _, x: x / jnp.sum(a * a) + 1, x), x)


@pytest.mark.parametrize(("function", "left"), [(normalised, 1), (until, 1), (nested, 0)])
def test_a_sum_that_no_iteration_changes_leaves_the_loop(function: Callable[..., Any], left: int) -> None:
    before, after = moved(function, MATRIX, VECTOR)
    assert sums(before) > sums(after) == left


def test_the_loop_takes_only_what_it_reads_still() -> None:
    _, after = moved(until, MATRIX, VECTOR)
    (call, _), *_ = after.controls()
    assert not any(len(layout) > 1 for layout in call.arg_layouts)


def changing(a: Any, x: Any) -> Any:
    """The matrix is another one in each iteration."""
    return lax.fori_loop(0, 3, lambda _, s: (s[0] * 2, s[1] / jnp.sum(s[0] * s[0])), (a, x))


def by_slices(a: Any, x: Any) -> Any:
    return lax.scan(lambda x, row: (x / jnp.sum(a * row), None), x, a)[0]


def large(a: Any, x: Any) -> Any:
    """The product is as large as its operands."""
    return lax.fori_loop(0, 3, lambda _, x: jnp.tanh((a @ a) @ x), x)


def quick(a: Any, x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, x: x / jnp.sum(a[0]), x)


def of_choices(a: Any, x: Any) -> Any:
    """Only one of the branches computes the sum."""
    return lax.cond(x[0] > 0, lambda: x / jnp.sum(a * a), lambda: x)


def once(a: Any, x: Any) -> Any:
    return lax.scan(lambda x, _: (x / jnp.sum(a * a), None), x, None, length=1)[0]


def looked_for(a: Any, x: Any) -> Any:
    """Entries are compared with their maximum: computed apart, it could be another number."""
    return lax.fori_loop(
        0, 3, lambda _, x: x + jnp.sum(jnp.where(jnp.exp(a) == jnp.max(jnp.exp(a)), x, 0)), x
    )


@pytest.mark.parametrize("function", [changing, by_slices, large, quick, of_choices, once, looked_for])
def test_other_values_stay_in_their_loop(function: Callable[..., Any]) -> None:
    before, after = moved(function, MATRIX, VECTOR)
    assert after is before


def test_what_a_body_knows_of_a_value_is_known_outside() -> None:
    def function(a: Any, x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, x: x / jnp.sum(lax.map(lambda row: jnp.tanh(row), a)), x)

    before, after = moved(function, MATRIX, VECTOR)
    assert not before.equalities
    assert any(isinstance(one.op, Opaque) for one, _ in after.equalities)


def test_what_a_value_is_otherwise_does_not_keep_its_operands() -> None:
    """A sum by a loop is known to be a reduction as well."""

    def function(a: Any, x: Any) -> Any:
        return lax.fori_loop(
            0, 3, lambda _, x: x / lax.scan(lambda s, row: (s + row.sum(), None), 0.0, a)[0], x
        )

    _, after = moved(function, MATRIX, VECTOR)
    calls = [call for call, args in after.controls() if after.inputs[1] in args]
    assert after.equalities
    assert calls
    assert not any(len(layout) > 1 for call in calls for layout in call.arg_layouts)


VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, x: jnp.sum(a * a),
    "columns": lambda a, x: jnp.max(a, axis=0),
    "quadratic": lambda a, x: x @ a @ x,
    "changing": lambda a, x: jnp.sum(a * x),
    "best": lambda a, x: jnp.argmax(jnp.sum(jnp.exp(a), axis=1)),
    "loop": lambda a, x: lax.scan(lambda s, row: (s * 0.5 + row.sum(), None), 0.0, a)[0],
    "factor": lambda a, x: jnp.linalg.qr(a[:, :2] @ a[:2])[1][0, :1].sum(),
    "trace": lambda a, x: jnp.trace(a) + jnp.mean(a),
}


@settings(max_examples=40, derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3),
    st.sampled_from(["scan", "while", "batch", "inner"]),
    st.booleans(),
)
def test_random_loops_mean_the_same(names: list[str], kind: str, differentiated: bool) -> None:
    def step(a: Any, x: Any) -> Any:
        for name in names:
            value = VALUES[name](a, x)
            x = jnp.tanh(x + value / (1 + jnp.abs(value)))
        return x

    def function(a: Any, x: Any) -> Any:
        match kind:
            case "while":
                return lax.while_loop(
                    lambda s: (s[0] < 3) & (jnp.sum(a * a) > 1), lambda s: (s[0] + 1, step(a, s[1])), (0, x)
                )[1]
            case "batch":
                return jax.vmap(lambda y: lax.fori_loop(0, 2, lambda _, x: step(a, x), y))(jnp.stack([x, -x]))
            case "inner":
                return lax.fori_loop(0, 2, lambda _, x: lax.fori_loop(0, 2, lambda _, x: step(a, x), x), x)
            case _:
                return lax.scan(lambda x, row: (step(a, x + row), x[:3]), x, a[:3])

    def total(a: Any, x: Any) -> Any:
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(function(a, x)))

    if differentiated and kind != "while":
        moved(jax.grad(total, argnums=(0, 1)), MATRIX, VECTOR)
    else:
        moved(function, MATRIX, VECTOR)


def test_a_sum_over_chunks_runs_before_the_loop_that_reads_it() -> None:
    x, v = normal(2_000, 3), normal(2_000)

    def function(x: Any, v: Any) -> Any:
        k = jnp.exp(-jnp.sum(jnp.abs(x[:, None] - x[None]), -1))
        return lax.fori_loop(0, 4, lambda _, v: k @ v / jnp.sqrt(jnp.sum(k * k)), v)

    optimized = eqsat.optimize(function, budget="2MB")
    plan = optimized.plan(x, v)
    within = plan.source.split("def iteration", 1)[1].split("return (", 1)[0]
    assert within.count("einsum") == 1, plan.source
    np.testing.assert_allclose(optimized(x, v), jax.jit(function)(x, v), rtol=1e-4)
