"""Programs have the same fingerprint if they are the same, and in every process."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

from eqsat.storage.fingerprints import CODE_BYTES, Fingerprint, Unidentified

X = jax.ShapeDtypeStruct((4, 4), jnp.float32)

SMALL = np.arange(4, dtype=np.float32)


def fingerprint(fn: Callable[..., Any], *args: Any) -> str:
    found = Fingerprint()
    found.add(jax.make_jaxpr(fn)(*(args or (X,))))
    return found.hexdigest()


@functools.partial(jax.custom_jvp, nondiff_argnums=())
def clipped(x: Any) -> Any:
    return jnp.clip(x, 0, 1)


clipped.defjvps(lambda tangent, out, x: tangent)


def varied(x: Any) -> Any:
    """A program with many kinds of parameters."""
    y = jax.nn.relu(x) + clipped(x) + jax.random.normal(jax.random.key(0), x.shape)
    y = jax.lax.fori_loop(0, 3, lambda _, c: c @ c, y @ y.T)
    y = y + jax.lax.conv(y[None, None], y[None, None], (1, 1), "SAME")[0, 0] + jnp.asarray(SMALL)
    return jnp.linalg.solve(y, x)[jnp.array([1, 2])].sum(0) + jax.lax.top_k(x, 2)[0].sum()


def test_it_is_the_same_in_another_process() -> None:
    code = f"import sys; sys.path.insert(0, {__file__!r}.rpartition('/')[0])\n"
    code += "import test_fingerprints as t; print(t.fingerprint(t.varied))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == fingerprint(varied)


DIFFERENT: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x: x + 1, lambda x: x + 2),
    (lambda x: x + 1, lambda x: x - 1),
    (lambda x: x + 1, lambda x: x + 1.0000001),
    (lambda x: x + 0.0, lambda x: x + -0.0),
    (lambda x: (x, x + 1), lambda x: (x + 1, x)),
    (lambda x: x.sum(0), lambda x: x.sum(1)),
    (lambda x: x + jnp.asarray(SMALL), lambda x: x + jnp.asarray(SMALL[::-1].copy())),
    (lambda x: jax.jit(jnp.sin)(x), lambda x: jax.jit(jnp.cos)(x)),
    (lambda x: x + (x + x), lambda x: (x + x) + (x + x)),
    (lambda x: jnp.dot(x, x), lambda x: jnp.dot(x, x, precision="highest")),
    (lambda x: jax.lax.scan(lambda c, _: (c + 1, None), x, length=3), lambda x: (x + 3, None)),
]


@pytest.mark.parametrize("pair", DIFFERENT, ids=range(len(DIFFERENT)))
def test_different_programs_differ(pair: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
    first, second = pair
    assert fingerprint(first) == fingerprint(first)
    assert fingerprint(first) != fingerprint(second)


def test_types_of_arguments_count() -> None:
    alternatives = [
        X,
        jax.ShapeDtypeStruct((4, 4), jnp.float16),
        jax.ShapeDtypeStruct((4, 1), jnp.float32),
    ]
    assert len({fingerprint(jnp.sin, x) for x in alternatives}) == len(alternatives)


def loss_and_gradient(weights: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        scale, shift = weights
        return jnp.sum(jnp.tanh(scale * x + shift * jnp.where(x > scale, 1.0, shift)) ** 2)

    return jax.value_and_grad(loss)(weights)


def test_weak_types_do_not_count() -> None:
    """They leave conversions, other literals, and at times another order behind."""
    strong, weak = jnp.float32(2), jnp.asarray(2.0)
    assert not strong.weak_type
    assert weak.weak_type
    programs = [jax.make_jaxpr(loss_and_gradient)((value, value), X) for value in (strong, weak)]
    assert len({len(program.eqns) for program in programs}) == 2
    one, other = (Fingerprint(), Fingerprint())
    for found, program in zip((one, other), programs, strict=True):
        found.add(program)
    assert one.hexdigest() == other.hexdigest()
    half = jnp.asarray(2.0, jnp.float16)
    assert fingerprint(loss_and_gradient, (half, half), X) != fingerprint(
        loss_and_gradient, (strong, strong), X
    )


def test_equations_count_in_the_order_of_their_operands() -> None:
    def first(x: Any) -> Any:
        one, other = jnp.sin(x), jnp.cos(x)
        return one - other

    def second(x: Any) -> Any:
        other, one = jnp.cos(x), jnp.sin(x)
        return one - other

    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first) != fingerprint(lambda x: -first(x))


def test_what_writes_counts_in_the_order_in_which_it_does() -> None:
    def program(*values: float) -> Any:
        def run(x: Any) -> Any:
            cell = jax.new_ref(x)
            for value in values:
                cell[...] = cell[...] * value + 1
            return cell[...]

        return run

    assert fingerprint(program(2.0, 3.0)) == fingerprint(program(2.0, 3.0))
    assert fingerprint(program(2.0, 3.0)) != fingerprint(program(3.0, 2.0))


def test_large_constants_count_by_their_types_alone() -> None:
    large = np.zeros(CODE_BYTES // 4 + 1, np.float32)

    def program(array: np.ndarray[Any, Any]) -> str:
        return fingerprint(lambda x: x.sum() + jnp.asarray(array), X)

    assert program(large) == program(large + 1)
    assert program(large) != program(large[1:])


def test_constants_are_met_in_the_same_order_however_calls_are_shared() -> None:
    arrays = [np.full(2, number, np.float32) for number in range(3)]

    def program(shared: bool) -> Fingerprint:
        def call(x: Any) -> Any:
            return x + jnp.asarray(arrays[1])

        twice = [jax.jit(call)] * 2 if shared else [jax.jit(call), jax.jit(lambda x: call(x))]
        for part in twice:
            part.__name__ = "call"
        found = Fingerprint()
        found.add(jax.make_jaxpr(lambda x: twice[0](x + jnp.asarray(arrays[0])) * twice[1](x))(arrays[2]))
        return found

    first, second = program(True), program(False)
    assert [array.tolist() for array in first.arrays] == [array.tolist() for array in second.arrays]


def test_functions_of_users_have_no_identity() -> None:
    def callback(x: Any) -> Any:
        return x

    with pytest.raises(Unidentified, match="callback"):
        fingerprint(lambda x: jax.pure_callback(callback, X, x))
    with pytest.raises(Unidentified, match="Thing"):
        Fingerprint().add((1, Thing()))


def through_a_primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as another library's primitive, with the function among its parameters."""
    primitive = Primitive("another")
    primitive.def_impl(lambda x, function: function(x))
    primitive.def_abstract_eval(lambda aval, function: aval)
    return lambda x: primitive.bind(x, function=function)


def test_a_primitive_of_another_library_is_what_its_implementation_does() -> None:
    once, again, other = (
        fingerprint(through_a_primitive(function))
        for function in (lambda x: jnp.sin(x) + SMALL, lambda y: jnp.sin(y) + SMALL, jnp.cos)
    )
    assert once == again != other
    data = jnp.zeros((CODE_BYTES,))
    with pytest.raises(Unidentified, match="data"):
        fingerprint(through_a_primitive(lambda x: x + data @ data))


class Thing:
    pass
