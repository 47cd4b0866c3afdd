"""Every transformation of an optimised function gives what it gives of the function, in every order.

Here programs are small and left as they are; `test_transformed_budgets.py` is about memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.jet import jet
from jax.extend.core import jaxpr_as_fun

import eqsat
from eqsat.compiler.compilation import Compilation
from tests.kernels import close
from tests.stages import normal
from tests.transformations import TRANSFORMATIONS, Vectors, total

QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
small = functools.partial(eqsat.optimize, budget="1MB")


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are evaluated and lowered as they were written: planning is tested elsewhere."""

    class AsWritten:
        def __init__(self, call: Compilation) -> None:
            self.inline = jaxpr_as_fun(call.closed)
            self.run = jax.jit(self.inline)

    monkeypatch.setattr(Compilation, "planned", lambda call, placement=(): AsWritten(call))


def wave(x: Any) -> Any:
    return jnp.sin(x) * x[::-1]


INNER = [name for name in TRANSFORMATIONS if name not in ("hessian", "value and grad", "map")]
"""These, around any, would be the same again and take long to compile."""


@pytest.mark.usefixtures("unplanned")
@pytest.mark.one_in(4)
@pytest.mark.parametrize("inner", INNER)
def test_any_two_transformations_in_either_order(inner: str) -> None:
    first = TRANSFORMATIONS[inner]

    def both(x: Any) -> dict[str, tuple[Any, Any]]:
        return {
            outer: (transform(first(small(wave)))(x), transform(first(wave))(x))
            for outer, transform in TRANSFORMATIONS.items()
        }

    results = jax.jit(both, compiler_options=QUICKLY)(normal(3))
    for outer, (got, wanted) in results.items():
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=f"{outer} of {inner}")


# Programs with something special to their derivatives.


def attention(x: Any) -> Any:
    keys = jnp.outer(x, x[:2])
    return jax.nn.softmax(keys @ keys.T) @ x


@jax.custom_jvp
def smooth_sign(x: Any) -> Any:
    return jnp.sign(x)


@smooth_sign.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return smooth_sign(primals[0]), 3 * primals[0] * tangents[0]


@jax.custom_vjp
def halted(x: Any) -> Any:
    return x**2


halted.defvjp(lambda x: (x**2, x), lambda x, g: (5 * x * g,))


def looked_up(x: Any) -> Any:
    """With arguments of integers, booleans and keys inside, of which there are no tangents."""
    inner = small(
        lambda x, places, keep, key: (
            jnp.where(keep, x[places], 0.0) * jax.random.normal(key, x.shape),
            places + 1,
        )
    )
    first, places = inner(x, jnp.arange(3)[::-1], x > 0, jax.random.key(1))
    return first + places


def looked_up_plainly(x: Any) -> Any:
    noise = jax.random.normal(jax.random.key(1), x.shape)
    return jnp.where(x > 0, x[::-1], 0.0) * noise + (3 - jnp.arange(3))


PROGRAMS: dict[str, tuple[Vectors, Vectors]] = {
    "attention": (small(attention), attention),
    "custom_jvp": (small(lambda x: smooth_sign(x) * x), lambda x: smooth_sign(x) * x),
    "lookup": (looked_up, looked_up_plainly),
}


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_transformation_of_programs_of_every_kind(program: str) -> None:
    optimized, plain = PROGRAMS[program]

    def both(x: Any) -> dict[str, tuple[Any, Any]]:
        return {name: (t(optimized)(x), t(plain)(x)) for name, t in TRANSFORMATIONS.items()}

    for name, (got, wanted) in jax.jit(both, compiler_options=QUICKLY)(normal(3)).items():
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


BACKWARD = ["jit", "vmap", "grad", "value and grad", "vjp", "jacrev", "checkpoint", "scan", "optimize"]
FORWARD = ["jvp", "jacfwd", "linearize"]


@pytest.mark.usefixtures("unplanned")
def test_a_function_with_a_rule_for_reverse_mode_alone() -> None:
    def both(x: Any) -> dict[str, tuple[Any, Any]]:
        second = {
            f"{name} of grad": (
                TRANSFORMATIONS[name](jax.grad(total(small(halted))))(x),
                TRANSFORMATIONS[name](jax.grad(total(halted)))(x),
            )
            for name in BACKWARD + FORWARD
        }
        return second | {
            name: (TRANSFORMATIONS[name](small(halted))(x), TRANSFORMATIONS[name](halted)(x))
            for name in BACKWARD
        }

    for name, (got, wanted) in jax.jit(both, compiler_options=QUICKLY)(normal(3)).items():
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_of_it_is_refused_as_jax_does(name: str) -> None:
    for fn in (halted, small(halted)):
        with pytest.raises(TypeError, match="forward-mode autodiff"):
            TRANSFORMATIONS[name](fn)(normal(3))


def test_a_linear_function_can_be_transposed() -> None:
    matrix = normal(3, 4)

    def fn(m: Any, x: Any) -> tuple[Any, Any]:
        return m @ x, 2 * x

    def transposed(fn: Callable[..., Any], used: int) -> Any:
        cotangent = normal((3, 4)[used], seed=1)
        return jax.linear_transpose(lambda x: fn(matrix, x)[used], normal(4))(cotangent)

    for used in (0, 1):
        close(transposed(small(fn), used), transposed(fn, used))


# What the jaxprs look like.


def equations(fn: Callable[..., Any], *args: Any) -> list[tuple[str, str]]:
    return [
        (equation.primitive.name, str(equation.params["program"]))
        for equation in jax.make_jaxpr(fn)(*args).eqns
    ]


def series(f: Vectors) -> Vectors:
    return lambda x: jet(f, (x,), ((x**2, jnp.ones_like(x), -x),))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "transform",
    [
        series,
        lambda f: jax.jit(series(f)),
        lambda f: series(jax.grad(total(f))),
        lambda f: series(lambda x: jax.jvp(f, (x,), (x,))[1]),
        lambda f: jax.grad(lambda x: jnp.sum(series(f)(x)[1][2])),
        lambda f: lambda x: jax.vmap(series(f))(jnp.stack([x, 2 * x])),
    ],
)
def test_taylor_series(transform: Callable[[Vectors], Vectors]) -> None:
    x = jnp.asarray(normal(3))
    jax.tree.map(close, transform(small(wave))(x), transform(wave)(x))


def test_the_taylor_series_of_a_program_is_planned_as_one() -> None:
    def kernel(x: Any) -> Any:
        return jnp.sum(jnp.exp(-((x[:, None] - x) ** 2)), 1)

    x = jnp.linspace(0, 1, 300)
    jax.tree.map(close, series(eqsat.optimize(kernel, budget="60kB"))(x), series(kernel)(x))


def test_it_is_one_equation_until_it_is_lowered() -> None:
    x = normal(3)
    assert equations(small(wave), x) == [("eqsat_optimized", "wave")]
    assert equations(jax.vmap(small(wave)), normal(5, 3)) == [("eqsat_optimized", "wave, for a batch of 5")]
    assert equations(lambda x: jax.jvp(small(wave), (x,), (x,)), x) == [
        ("eqsat_optimized", "wave"),
        ("eqsat_linear", "the tangent map of wave"),
    ]
    assert equations(lambda x: jax.vjp(small(wave), x)[1](x), x) == [
        ("eqsat_optimized", "wave"),
        ("eqsat_optimized", "the gradient of wave"),
    ]


def test_residuals_are_the_arguments_and_have_no_batch_of_their_own() -> None:
    jacobian = jax.make_jaxpr(jax.jacrev(small(wave)))(normal(3))
    backward = [e for e in jacobian.eqns if "gradient" in str(e.params.get("program"))]
    assert [[var.aval.shape for var in equation.invars] for equation in backward] == [[(3,), (3, 3)]]


def test_what_is_not_differentiated_takes_no_part() -> None:
    def fn(x: Any, y: Any) -> tuple[Any, Any]:
        return x * y, y**2

    def tangents(x: Any) -> Any:
        return jax.jvp(lambda x: small(fn)(x, normal(3)), (x,), (x,))

    (linear,) = [e for e in jax.make_jaxpr(tangents)(normal(3)).eqns if e.primitive.name == "eqsat_linear"]
    assert len(linear.invars) == 3
    assert len(linear.outvars) == 1


def test_derived_programs_are_planned_once() -> None:
    optimized = small(lambda x: jnp.sum(jnp.cos(x)))
    programs = [jax.make_jaxpr(jax.grad(optimized))(normal(3)).eqns[-1].params["program"] for _ in range(2)]
    assert programs[0] is programs[1]


# Nesting, and values from outside.


def test_an_inner_budget_does_not_count() -> None:
    """It would be too small for the inner function's own arguments."""
    x = normal(50)
    inner = eqsat.optimize(wave, budget=8)
    with pytest.raises(eqsat.BudgetError):
        inner(x)
    close(small(lambda x: inner(x) + 1)(x), wave(x) + 1)
    close(small(jax.grad(total(inner)))(x), jax.grad(total(wave))(x))
    looped = small(lambda x: jax.lax.map(jax.jit(inner), jnp.stack([x, x])))
    close(looped(x), jnp.stack([wave(x), wave(x)]))


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_functions_may_close_over_tracers(transform: Callable[..., Any]) -> None:
    x, y = normal(4), normal(4, seed=1)

    def outer(optimize: Callable[..., Any], y: Any) -> Any:
        return optimize(lambda x: jnp.sum(jnp.sin(x) * y))(x)

    close(transform(functools.partial(outer, small))(y), transform(functools.partial(outer, lambda f: f))(y))


WITH_INTEGERS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda fn: jax.grad(fn, (0, 1, 2), allow_int=True),
    "value and grad": lambda fn: jax.value_and_grad(fn, (1, 0), allow_int=True),
    "vmap": lambda fn: jax.vmap(jax.grad(fn, (0, 1), allow_int=True), (None, 0, None)),
    "vjp": lambda fn: lambda *args: jax.vjp(fn, *args)[1](np.float32(2)),
    "jvp": lambda fn: (
        lambda x, *args: jax.jvp(
            fn, (x, *args), (x, *(np.zeros(arg.shape, jax.dtypes.float0) for arg in args))
        )
    ),
    "optimize": lambda fn: small(jax.grad(fn, (0, 1, 2), allow_int=True)),
}


def gathered(x: Any, places: Any, keep: Any) -> Any:
    return jnp.sum(jnp.where(keep, x[places], 0.0) ** 2)


def check_gradients_by_integers(name: str, *arounds: Callable[..., Any]) -> None:
    places = np.array([2, 0, 2])
    given = (normal(3), np.stack([places, places[::-1]]) if name == "vmap" else places, places > 0)
    form = WITH_INTEGERS[name]
    wanted = jax.tree.leaves(form(gathered)(*map(jnp.asarray, given)))
    for around in arounds:
        for one, other in zip(jax.tree.leaves(around(form(small(gathered)))(*given)), wanted, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            if one.dtype != jax.dtypes.float0:
                np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("name", sorted(WITH_INTEGERS.keys() - {"optimize"}))
def test_gradients_by_integers_hold_no_numbers(name: str) -> None:
    """Their dtype is float0, as that of their tangents."""
    check_gradients_by_integers(name, functools.partial(jax.jit, compiler_options=QUICKLY))


def test_a_planned_gradient_by_integers_holds_no_numbers() -> None:
    check_gradients_by_integers("grad", lambda function: function)
    check_gradients_by_integers("optimize", jax.jit)
