"""Programs with about any given number of equations, with which the scaling of planning is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Function = Callable[..., Any]
Arguments = tuple[Any, ...]


def _arrays(*shapes: tuple[int, ...]) -> Arguments:
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


def chain(equations: int) -> tuple[Function, Arguments]:
    """Returns a chain of elementwise functions."""

    def fn(x: Any) -> Any:
        for step in range(equations // 2):
            x = jnp.sin(x) * (1.0 + step)
        return x

    return fn, _arrays((1000, 100))


def wide_sum(equations: int) -> tuple[Function, Arguments]:
    """Returns a sum of many functions of one array."""

    def fn(x: Any) -> Any:
        total = x
        for step in range(equations // 3):
            total = total + jnp.cos(x * (1.0 + step))
        return total

    return fn, _arrays((1000, 100))


def pieces(equations: int) -> tuple[Function, Arguments]:
    """Returns independent matrices over all pairs, each of which is summed."""

    def fn(x: Any, y: Any) -> Any:
        return [jnp.exp(-((x[:, None] * (1.0 + k) - y[None]) ** 2)).sum(1) for k in range(equations // 7)]

    return fn, _arrays((1000,), (1000,))


def network(equations: int) -> tuple[Function, Arguments]:
    """Returns a deep network of dense layers, with separate weights for each layer."""
    layers = equations // 4

    def fn(x: Any, weights: Any, biases: Any) -> Any:
        for weight, bias in zip(weights, biases, strict=True):
            x = jnp.tanh(x @ weight + bias)
        return jnp.mean(x**2)

    (x,) = _arrays((1000, 16))
    return fn, (x, [*_arrays(*[(16, 16)] * layers)], [*_arrays(*[(16,)] * layers)])


def network_gradient(equations: int) -> tuple[Function, Arguments]:
    """Returns the gradient of a deep network with respect to its weights."""
    fn, arguments = network(equations * 4 // 13)
    return jax.grad(fn, argnums=1), arguments


def recurrent_gradient(equations: int) -> tuple[Function, Arguments]:
    """Returns the gradient of an unrolled recurrent network, with the same weights in every step."""
    steps = equations // 15

    def fn(weight: Any, inputs: Any, x: Any, target: Any) -> Any:
        for _ in range(steps):
            x = jnp.tanh(x @ weight + x * inputs)
        return jnp.sum((x - target) ** 2)

    return jax.grad(fn), _arrays((16, 16), (16,), (1000, 16), (1000, 16))


def ode(equations: int) -> tuple[Function, Arguments]:
    """Returns unrolled Runge-Kutta steps for bodies that attract one another."""

    def force(x: Any) -> Any:
        apart = x[:, None] - x[None]
        return -(apart / (1 + jnp.sum(apart**2, -1, keepdims=True)) ** 1.5).sum(1)

    def fn(x: Any, v: Any) -> Any:
        for _ in range(equations // 30):
            middle = x + 0.005 * v
            x, v = x + 0.01 * (v + 0.005 * force(x)), v + 0.01 * force(middle)
        return x, v

    return fn, _arrays((300, 3), (300, 3))


def nested_calls(equations: int) -> tuple[Function, Arguments]:
    """Returns jitted functions that call jitted functions, up to a hundred deep."""
    (x,) = _arrays((1000, 100))
    function: Function = jnp.sin
    for _ in range(min(equations // 3, 100)):
        function = _calling(function)
        jax.eval_shape(function, x)  # traces inner functions first, so that JAX's own recursion is short

    def fn(x: Any) -> Any:
        for _ in range(max(1, equations // 300)):
            x = function(x)
        return x

    return fn, (x,)


def _calling(inner: Function) -> Function:
    return jax.jit(lambda x: jnp.cos(inner(x)) + x)


PROGRAMS: dict[str, Callable[[int], tuple[Function, Arguments]]] = {
    "chain": chain,
    "wide sum": wide_sum,
    "independent pieces": pieces,
    "network": network,
    "gradient of a network": network_gradient,
    "gradient of a recurrence": recurrent_gradient,
    "ode steps": ode,
    "nested calls": nested_calls,
}
