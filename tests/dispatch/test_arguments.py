"""What may be an argument: static ones, scalars of every kind, None; and the types that come out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import eqsat
from tests.kernels import close
from tests.stages import normal

small = functools.partial(eqsat.optimize, budget="1MB")


# Static arguments.


def power(x: Any, n: int, mode: str = "multiply") -> Any:
    return x * n if mode == "multiply" else x[:n]


@pytest.mark.parametrize(
    "static",
    [
        {"static_argnums": (1, 2)},
        {"static_argnums": (-2, -1)},
        {"static_argnames": ("n", "mode")},
        {"static_argnums": 1, "static_argnames": "mode"},
    ],
)
def test_static_arguments_by_position_or_name(static: dict[str, Any]) -> None:
    x = normal(3)
    optimized = small(power, **static)
    close(optimized(x, 2, mode="slice"), x[:2])
    if static != {"static_argnums": 1, "static_argnames": "mode"}:
        # Where both are given, they are taken at their word, as jit does.
        close(optimized(x, 2, "slice"), x[:2])
        close(optimized(x, n=1, mode="slice"), x[:1])
    close(optimized(x, 2), 2 * x)
    close(jax.jit(lambda x: optimized(x, 2, mode="slice"))(x), x[:2])
    close(jax.grad(lambda x: optimized(x, 2, mode="slice").sum())(x), np.float32([1, 1, 0]))
    assert not optimized.plan(jax.ShapeDtypeStruct((3,), np.float32), 2, mode="slice").changed


def test_static_arguments_are_told_apart_by_type_too() -> None:
    times = small(lambda x, n: x * n, static_argnums=1)
    assert [times(jnp.arange(3), n).dtype for n in (1, 1.0, True)] == [np.int32, np.float32, np.int32]


def test_what_has_no_hash_is_refused_as_static() -> None:
    with pytest.raises(ValueError, match=r"argument number 1 is \[2\] of type list, which has no hash"):
        small(power, static_argnums=1)(normal(3), [2])
    with pytest.raises(ValueError, match=r"static argument 'n' is .* must be hashable"):
        small(power, static_argnames="n")(normal(3), n=np.ones(2))


@pytest.mark.parametrize("static", [{"static_argnums": 7}, {"static_argnames": "other"}])
def test_what_is_no_parameter_is_refused_as_jit_does(static: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Jitted function has"):
        small(power, **static)


def test_what_is_no_array_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"'slice' .* has to be named in static_argnums or static_argnames"):
        small(power)(normal(3), 2, "slice")


# Scalars, and types that give way.


@pytest.mark.parametrize(
    "value",
    [2, 2.5, True, 1j, np.float64(3), np.int64(3), np.float16(2), np.bool_(True), [1.0, 2.0], b"x"[0]],
)
def test_numbers_and_numpy_become_what_jit_makes_of_them(value: Any) -> None:
    def fn(value: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, value)

    close(small(fn)(value), jax.jit(fn)(value))


def types(tree: Any) -> list[tuple[Any, bool]]:
    return [(leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("value", [2, 2.5, 1j, np.float32(2)])
@pytest.mark.parametrize("around", [lambda f: f, jax.jit, lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x]))])
def test_results_promote_as_those_of_jit(value: Any, around: Callable[..., Any]) -> None:
    def fn(x: Any) -> Any:
        return x, x + 1, x * np.float32(2), jnp.where(x == 1, x, 2 * x)

    assert types(around(small(fn))(value)) == types(around(jax.jit(fn))(value))


@pytest.mark.parametrize("around", [lambda f: f, jax.jit])
def test_results_of_rewritten_programs_promote_as_before(around: Callable[..., Any]) -> None:
    def fn(x: Any, scale: Any) -> Any:
        return jnp.sum(jnp.exp(x[:, None] * x)), scale * 2, scale * jnp.sum(x)

    optimized = eqsat.optimize(fn, budget=20_000)
    assert optimized.plan(normal(200), 3.0).changed
    assert types(around(optimized)(normal(200), 3.0)) == types(around(jax.jit(fn))(normal(200), 3.0))


@pytest.mark.parametrize("value", [3.0, 2, True, 1 + 2j])
def test_derivatives_of_scalars_are_taken_and_refused_as_of_the_function(value: Any) -> None:
    def outcome(f: Callable[..., Any]) -> Any:
        try:
            return jax.value_and_grad(lambda x: jnp.abs(f(x)))(value)
        except TypeError as error:
            return str(error)[:60]

    got, wanted = outcome(small(jnp.square)), outcome(jnp.square)
    assert isinstance(got, str) == isinstance(wanted, str)
    if isinstance(wanted, str):
        assert got == wanted
    else:
        close(got, wanted)


def test_a_derivative_may_be_taken_where_double_precision_is_off_again() -> None:
    optimized = small(lambda x: jnp.sum(jnp.sin(x)))
    with jax.enable_x64(True):
        value, pullback = jax.vjp(optimized, normal(3, dtype=np.float64))
    (gradient,) = pullback(value)
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, float(value) * np.cos(normal(3, dtype=np.float64)), rtol=1e-12)


# Trees, and lengths.


def test_none_takes_part_in_no_derivative() -> None:
    def fn(tree: Any, scale: Any) -> Any:
        return jnp.sum(tree["x"] ** 2), {"kept": tree["y"]}

    tree = {"x": normal(3), "y": None}
    got, wanted = (jax.grad(f, has_aux=True)(tree, None) for f in (small(fn), fn))
    close(got, wanted)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1, 1), (1,) * 8])
def test_lengths_of_nothing_and_of_one(shape: tuple[int, ...]) -> None:
    def fn(x: Any) -> Any:
        return jnp.sum(x * 2, axis=0)

    x = normal(*shape)
    close(small(fn)(x), fn(x))
    close(jax.vmap(small(fn))(x[None]), fn(x)[None])
    close(jax.grad(lambda x: small(fn)(x).sum())(x), 2 * np.ones_like(x))


def test_abstract_evaluation_and_export() -> None:
    optimized = small(lambda x: jnp.sin(x) + x.shape[0])
    shape = jax.ShapeDtypeStruct((4,), np.float32)
    assert jax.eval_shape(optimized, shape) == shape
    x = normal(4)
    close(export.export(jax.jit(optimized))(shape).call(x), jnp.sin(x) + 4)
    any_length = jax.ShapeDtypeStruct(export.symbolic_shape("n"), np.float32)
    close(export.export(jax.jit(optimized))(any_length).call(x), jnp.sin(x) + 4)
    assert export.export(jax.jit(optimized), platforms=["tpu"])(shape).platforms == ("tpu",)
