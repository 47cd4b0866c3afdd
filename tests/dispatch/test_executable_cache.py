"""A call like the last one goes straight to the executable, and any other one does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.compiler.compilation import Compilation
from tests.nightly import THOROUGH
from tests.stages import normal


def kernel(x: Any, v: Any, scale: Any = 1.0) -> Any:
    return {"sums": jnp.exp(-scale * (x[:, None] - x) ** 2) @ v, "scaled": v * scale}


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[Compilation]:
    """The programs that were evaluated the long way."""
    seen = []
    run = Compilation.run

    def recorded(self: Compilation, *args: Any, **kwargs: Any) -> Any:
        seen.append(self)
        return run(self, *args, **kwargs)

    monkeypatch.setattr(Compilation, "run", recorded)
    return seen


def test_the_same_call_with_other_arrays_goes_straight_to_the_executable(
    evaluated: list[Compilation],
) -> None:
    optimized = eqsat.optimize(kernel, budget="1GB")
    for seed in range(3):
        x, v = jnp.asarray(normal(30, seed=seed)), jnp.asarray(normal(30, seed=seed + 7))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), optimized(x, v), kernel(x, v))
    assert len(evaluated) == 1


def test_what_a_call_returns_may_be_passed_to_the_next(evaluated: list[Compilation]) -> None:
    @eqsat.optimize(budget="1GB")
    def step(x: Any) -> Any:
        return x / jnp.linalg.norm(x)

    x = jnp.ones(5)
    for _ in range(4):
        x = step(x)
    assert len(evaluated) == 1


def in_double_precision(fn: Callable[..., Any], x: Any, v: Any) -> Any:
    with jax.enable_x64(True):
        return fn(x, v, 2.0)


def within_another_budget(fn: Callable[..., Any], x: Any, v: Any) -> Any:
    with eqsat.budget("900kB"):
        return fn(x, v)


CALLS: dict[str, Callable[..., Any]] = {
    "as it is": lambda fn, x, v: fn(x, v),
    "other lengths": lambda fn, x, v: fn(x[:-3], v[:-3]),
    "another dtype": lambda fn, x, v: fn(x.astype(jnp.bfloat16), v),
    "integers": lambda fn, x, v: fn(x, jnp.arange(len(v))),
    "by name": lambda fn, x, v: fn(v=v, x=x),
    "a number": lambda fn, x, v: fn(x, v, 2.0),
    "an array for it": lambda fn, x, v: fn(x, v, jnp.float32(2.0)),
    "weakly typed": lambda fn, x, v: fn(x, v, jnp.asarray(2.0)),
    "NumPy's": lambda fn, x, v: fn(np.asarray(x), v),
    "double precision": in_double_precision,
    "another budget": within_another_budget,
    "jit": lambda fn, x, v: jax.jit(fn)(x, v),
    "jit, what it closes over": lambda fn, x, v: jax.jit(lambda v: fn(x, v)["sums"] + fn(x, x)["sums"])(v),
    "jit, nothing but constants": lambda fn, x, v: jax.jit(lambda: fn(x, v))(),
    "gradient": lambda fn, x, v: jax.grad(lambda x: fn(x, v)["sums"].sum())(x),
    "gradient of a number": lambda fn, x, v: jax.grad(lambda s: fn(x, v, s)["sums"].sum())(1.5),
    "batch": lambda fn, x, v: jax.vmap(lambda v: fn(x, v))(jnp.stack([v, 2 * v])),
    "batch of nothing": lambda fn, x, v: jax.vmap(lambda s: (fn(x, v), s))(jnp.arange(2.0)),
}


@pytest.mark.nightly
@settings(max_examples=15 if THOROUGH else 6, derandomize=True)
@given(st.lists(st.sampled_from(sorted(CALLS)), min_size=2, max_size=6))
def test_whatever_came_before_a_call_gives_what_it_gives_by_itself(names: list[str]) -> None:
    x, v = jnp.asarray(normal(20)), jnp.asarray(normal(20, seed=1))
    optimized = eqsat.optimize(kernel, budget="1GB")
    plain = jax.jit(kernel)
    for name in names:
        found, wanted = CALLS[name](optimized, x, v), CALLS[name](plain, x, v)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type), name
            np.testing.assert_allclose(
                np.asarray(one, "float64"), np.asarray(other, "float64"), rtol=3e-5, atol=3e-5, err_msg=name
            )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("jax_threefry_partitionable", (True, False)),
        ("jax_random_seed_offset", (0, 5)),
        ("jax_high_dynamic_range_gumbel", (False, True)),
        ("jax_default_matmul_precision", (None, "highest")),
    ],
)
def test_a_setting_that_jit_traces_anew_for_is_taken_notice_of(setting: str, values: tuple[Any, Any]) -> None:
    seen = []

    def drawn(x: Any) -> Any:
        seen.append(getattr(jax.config, setting))
        return x * jax.random.gumbel(jax.random.key(3), (50,))

    optimized, x = eqsat.optimize(drawn, budget="1MB"), jnp.ones(50)
    before = getattr(jax.config, setting)
    try:
        for value in (*values, *values):
            jax.config.update(setting, value)
            np.testing.assert_array_equal(optimized(x), jax.jit(lambda x: drawn(x))(x))
        assert set(seen) == set(values)
    finally:
        jax.config.update(setting, before)


def test_static_arguments_are_told_apart_by_type_and_value() -> None:
    @eqsat.optimize(budget="1GB", static_argnums=1)
    def shown(x: Any, power: Any) -> Any:
        return x * power if isinstance(power, bool) else x**power

    x = jnp.full(3, 3.0)
    for power in (1, True, 2, 2.0, False, 0, 1):
        wanted = x * power if isinstance(power, bool) else x**power
        np.testing.assert_array_equal(shown(x, power), wanted)


def test_a_donated_array_is_deleted_by_every_call(evaluated: list[Compilation]) -> None:
    doubled = eqsat.optimize(lambda x: 2 * x, budget="1GB", donate_argnums=0)
    for _ in range(3):
        x = jnp.arange(4.0)
        np.testing.assert_array_equal(doubled(x), [0, 2, 4, 6])
        assert x.is_deleted()
    assert len(evaluated) == 1


def test_a_function_with_side_effects_is_called_every_time() -> None:
    said = []

    @eqsat.optimize(budget="1GB")
    def told(x: Any) -> Any:
        jax.debug.callback(lambda x: said.append(float(x)), x[0])
        return 2 * x

    for start in range(3):
        told(jnp.arange(start, start + 2.0))
    jax.effects_barrier()
    assert said == [0, 1, 2]


def test_a_tuned_plan_is_waited_for(evaluated: list[Compilation]) -> None:
    """A call that is planned for types alone is not the last word, if programs are to be timed."""
    optimized = eqsat.optimize(kernel, budget="1GB", tune=True)
    x = jnp.asarray(normal(20))
    optimized.plan(jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    assert optimized._last is None
    optimized(x, x)
    optimized(x, x)
    assert len(evaluated) == 1
