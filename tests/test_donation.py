"""Donated arguments: results take their place, and the budget gains what that saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.kernels import V, X, Y, close, kernel
from tests.stages import normal


def smooth(x: Any, z: Any, v: Any) -> Any:
    """Each row of the result depends on the same row of x, and on all of z and v: 1.2 MB as written."""
    return jnp.exp(-jnp.sum((x[:, None] - z[None]) ** 2, -1)) @ v


POINTS = normal(2000, 4), normal(150, 4), normal(150, 4)


def fresh(*arrays: Any) -> list[Any]:
    return [jnp.array(array) for array in arrays]


# What is deleted, as by jit.


def both(x: Any, y: Any) -> Any:
    return x * 2 + y.sum(), y[:2].sum()


def reshaped(x: Any, y: Any) -> Any:
    return x.reshape(-1) * 2, y.sum()


@pytest.mark.one_in(6)
@pytest.mark.parametrize("fn", [both, reshaped])
@pytest.mark.parametrize(
    "donated",
    [
        {"donate_argnums": 0},
        {"donate_argnums": (0, 1)},
        {"donate_argnums": -2},
        {"donate_argnames": "y"},
        {"donate_argnames": ["x", "y"]},
        {"donate_argnums": 0, "donate_argnames": "y"},
    ],
)
@pytest.mark.parametrize("keywords", [False, True])
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_what_jit_deletes_is_deleted(fn: Callable[..., Any], donated: dict[str, Any], keywords: bool) -> None:
    def deleted(function: Callable[..., Any]) -> tuple[Any, list[bool]]:
        x, y = fresh(X, Y)
        result = function(x, y=y) if keywords else function(x, y)
        return result, [x.is_deleted(), y.is_deleted()]

    if donated == {"donate_argnums": -2}:  # jit does not count from the end
        wanted = deleted(jax.jit(fn, donate_argnums=0))
    else:
        wanted = deleted(jax.jit(fn, **donated))
    got = deleted(eqsat.optimize(fn, budget="1MB", **donated))
    close(got[0], wanted[0])
    assert got[1] == wanted[1]


def test_trees_are_given_up_leaf_by_leaf() -> None:
    def update(state: dict[str, Any], rate: Any) -> Any:
        return {name: value - rate * value for name, value in state.items()}

    state = dict(zip("ab", fresh(X, Y), strict=True))
    eqsat.optimize(update, budget="1MB", donate_argnums=0)(state, 0.5)
    assert all(value.is_deleted() for value in state.values())


def test_what_was_a_numpy_array_stays() -> None:
    mine = np.arange(64_000, dtype=np.float32)
    close(eqsat.optimize(lambda x: x * 2, budget="1MB", donate_argnums=0)(mine), 2 * mine)
    assert mine[5] == 5


def test_static_arguments_beside_donated_ones() -> None:
    optimized = eqsat.optimize(lambda n, x: x * n, budget="1MB", static_argnums=0, donate_argnums=1)
    (x,) = fresh(X)
    close(optimized(3, x), 3 * X)
    assert x.is_deleted()


def test_functions_with_side_effects_delete_too() -> None:
    def fn(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x[0, 0])
        return x + 1

    (x,) = fresh(X)
    close(eqsat.optimize(fn, budget="1MB", donate_argnums=0)(x), X + 1)
    assert x.is_deleted()


def test_double_precision_keeps_what_is_given_up() -> None:
    (x,) = fresh(X)
    optimized = eqsat.optimize(lambda x: x + 1, budget="1MB", donate_argnums=0)
    with jax.enable_x64(True):
        close(optimized(x), X + 1)
    assert x.is_deleted()


# What is not donated.


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "transform",
    [
        jax.jit,
        lambda f: jax.value_and_grad(lambda x: jnp.sum(f(x))),
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: jax.vmap(f),
        lambda f: jax.jacfwd(lambda x: f(x)[:2, 0]),
        lambda f: eqsat.optimize(f, budget="10MB"),
    ],
)
def test_inside_transformations_nothing_is_given_up(transform: Callable[..., Any]) -> None:
    (x,) = fresh(X[:10])
    f = transform(eqsat.optimize(lambda x: x * x, budget="1MB", donate_argnums=0))
    close(f(x), transform(lambda x: x * x)(x))
    assert not x.is_deleted()


def test_inside_a_jit_the_figure_is_without() -> None:
    optimized = eqsat.optimize(lambda x: x + 1, budget=X.nbytes, donate_argnums=0)
    optimized.plan(X)
    with pytest.raises(eqsat.BudgetError, match="alone exceed"):
        jax.jit(optimized)(X)


# What it saves.


def test_the_result_takes_the_argument_s_place() -> None:
    budget = 2 * X.nbytes - 100
    with pytest.raises(eqsat.BudgetError, match="alone exceed"):
        eqsat.optimize(lambda x: x + 1, budget=budget).plan(X)
    plan = eqsat.optimize(lambda x: x + 1, budget=budget, donate_argnums=0).plan(X)
    assert plan.peak_bytes == plan.predicted_peak_bytes == X.nbytes


def test_a_loop_writes_its_result_over_the_argument() -> None:
    arguments = sum(array.nbytes for array in POINTS)
    optimized = eqsat.optimize(smooth, budget=arguments + 25_000, donate_argnums=0)
    plan = optimized.plan(*POINTS)
    assert [loop.combines for loop in plan.loops] == [("concatenation",)]
    assert plan.peak_bytes <= arguments + 25_000 < arguments + POINTS[0].nbytes
    close(optimized(*fresh(*POINTS)), smooth(*POINTS))


def test_a_training_step_keeps_one_copy_of_its_state() -> None:
    x, y = normal(600, 8), normal(600)

    def step(parameters: dict[str, Any], momenta: dict[str, Any]) -> Any:
        def loss(parameters: dict[str, Any]) -> Any:
            return jnp.mean((smooth(x, parameters["z"], parameters["w"]) - y) ** 2)

        gradients = jax.grad(loss)(parameters)
        momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
        return jax.tree.map(lambda p, m: p - 0.1 * m, parameters, momenta), momenta

    def state() -> list[Any]:
        parameters = {"z": jnp.array(normal(900, 8)), "w": jnp.array(normal(900))}
        return [parameters, jax.tree.map(jnp.zeros_like, parameters)]

    one_copy = sum(leaf.nbytes for leaf in jax.tree.leaves(state()))
    budget = one_copy + x.nbytes + y.nbytes + 100_000
    optimized = eqsat.optimize(step, budget=budget, donate_argnums=(0, 1))
    plan = optimized.plan(*state())
    assert plan.peak_bytes <= budget < plan.original_peak_bytes
    wanted, got = state(), state()
    for _ in range(2):
        wanted, got = jax.jit(step)(*wanted), optimized(*got)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, z, v: smooth(x, z, v) + x[::-1],
        lambda x, z, v: smooth(x, z, v) * jnp.max(x),
        lambda x, z, v: smooth(x[::-1], z, v),
        lambda x, z, v: smooth(x, z, v) + smooth(jnp.roll(x, 3, 0), z, v),
        lambda x, z, v: (smooth(x, z, v), jnp.sum(x)),
        lambda x, z, v: (smooth(x, z, v), x + 1),
        lambda x, z, v: (x, smooth(x, z, v)),
        lambda x, z, v: smooth(x.T.reshape(-1, 4), z, v).reshape(4, -1).T,
        lambda x, z, v: smooth(smooth(x, z, v), z, v),
    ],
)
def test_what_is_still_needed_is_not_overwritten(fn: Callable[..., Any]) -> None:
    arguments = sum(array.nbytes for array in POINTS)
    optimized = eqsat.optimize(fn, budget=3 * arguments + 60_000, donate_argnums=0)
    assert optimized.plan(*POINTS).loops
    close(optimized(*fresh(*POINTS)), fn(*POINTS))


# What users are told.


def test_what_can_t_be_used_is_told_once() -> None:
    optimized = eqsat.optimize(both, budget="1MB", donate_argnums=(0, 1))
    with pytest.warns(UserWarning, match=r"not usable: float32\[307,3\]\. No result") as told:
        assert [optimized(*fresh(X, Y)) for _ in range(2)]
    assert len(told) == 1


def test_planning_a_rewritten_program_does_not_repeat_jax_s_warnings() -> None:
    budget = 60_000 + sum(array.nbytes for array in (X, Y, V))
    optimized = eqsat.optimize(kernel, budget=budget, donate_argnums=0)
    with pytest.warns(UserWarning, match="Some donated buffers were not usable") as told:
        assert optimized.plan(X, Y, V).changed
    assert len(told) == 1


@pytest.mark.parametrize(
    ("keywords", "kind", "message"),
    [
        ({"donate_argnums": 5}, ValueError, "donate_argnums=.5,., but only accepts 2 positional"),
        ({"donate_argnames": "zz"}, ValueError, "invalid argnames {'zz'} in donate_argnames"),
        ({"donate_argnums": "x"}, TypeError, "donate_argnums takes the numbers of arguments, not 'x'"),
        ({"donate_argnums": 1.5}, TypeError, "donate_argnums takes the numbers of arguments, not 1.5"),
        ({"donate_argnames": 0}, TypeError, "donate_argnames takes the names of arguments, not 0"),
        ({"static_argnums": "x"}, TypeError, "static_argnums takes the numbers of arguments, not 'x'"),
        ({"static_argnames": [1]}, TypeError, r"static_argnames takes the names of arguments, not \[1\]"),
        ({"donate_argnums": 0, "static_argnums": 0}, ValueError, "cannot intersect"),
        ({"donate_argnames": "x", "static_argnums": 0}, ValueError, "cannot intersect"),
    ],
)
def test_what_makes_no_sense_is_refused(
    keywords: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        eqsat.optimize(lambda x, y: x, budget="1MB", **keywords)
