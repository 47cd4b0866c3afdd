"""The linear maps that differentiation makes of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.jet import jet
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from eqsat.frontend.value_numbering import primitives
from eqsat.transforms.call import Call, traced_call
from eqsat.transforms.dependence import dependent
from eqsat.transforms.linear import LinearMap
from eqsat.transforms.selection import Mask, chosen, inverted, merged
from eqsat.transforms.silent import silent


def derivative(call: Call, wrt: Mask) -> LinearMap:
    """The map of tangents of the marked arguments to tangents of results: of those that `moved` marks.

    Its residuals are the program's arguments, and nothing that is computed from them: going backward, the
    program and its derivative are one program, that is planned as a whole.
    """
    key = ("derivative", wrt)
    if key not in call.derived:
        call.derived.setdefault(key, _derivative(call, wrt))
    found: LinearMap = call.derived[key]
    return found


def moved(call: Call, wrt: Mask) -> Mask:
    """Which results have tangents if the marked arguments have."""
    return tuple(
        depends and bool(jnp.issubdtype(aval.dtype, jnp.inexact))
        for depends, aval in zip(dependent(call.closed, wrt), call.closed.out_avals, strict=True)
    )


def _derivative(call: Call, wrt: Mask) -> LinearMap:
    outs, closed = moved(call, wrt), silent(call.closed)

    def forward(residuals: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        at = _restricted(closed, residuals, wrt, outs)
        results: Sequence[Any] = jax.jvp(at, chosen(wrt, residuals), list(tangents))[1]
        return results

    def backward(residuals: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        at = _restricted(closed, residuals, wrt, _given(outs, cotangents))
        pullback = jax.vjp(at, *chosen(wrt, residuals))[1]
        results: Sequence[Any] = pullback([part for part in cotangents if part is not None])
        return results

    return LinearMap(
        forward,
        backward,
        call.in_avals,
        [aval.to_tangent_aval() for aval in chosen(wrt, call.in_avals)],
        [aval.to_tangent_aval() for aval in chosen(outs, call.closed.out_avals)],
        call.settings,
        [*call.names, *(f"{name}_tangent" for name in chosen(wrt, call.names))],
        call.title,
        call.around,
    )


def primal(call: Call, wrt: Mask) -> Call:
    """The program that is differentiated with respect to the marked arguments.

    It is the program itself, except for parts with a rule for reverse mode only. They are replaced by the
    rule's computation, which can be differentiated again, and in forward mode.
    """
    if "custom_vjp_call" not in primitives(call.closed):
        return call
    key = ("primal", wrt)
    if key not in call.derived:
        everything = (True,) * len(call.closed.out_avals)

        def function(*values: Any) -> Sequence[Any]:
            at = _restricted(call.closed, values, wrt, everything)
            results: Sequence[Any] = jax.vjp(at, *chosen(wrt, values))[0]
            return results

        made = traced_call(function, call.in_avals, call.settings, call.names, call.title, call.around)
        call.derived.setdefault(key, made)
    found: Call = call.derived[key]
    return found


def taylor(call: Call, order: int) -> Call:
    """The program of the first terms of a Taylor series.

    Its arguments are those of the program, then the terms of each; its results are alike. Terms are
    coefficients: the k-th derivative divided by k!.
    """
    key = ("taylor", order)
    if key not in call.derived:
        count = len(call.in_avals)

        def function(*values: Any) -> Sequence[Any]:
            series = [values[count + number * order :][:order] for number in range(count)]
            results, terms = jet(jaxpr_as_fun(call.closed), values[:count], series, factorial_scaled=False)
            return [*results, *(term for of_result in terms for term in of_result)]

        repeated = [item for item in zip(call.in_avals, call.names, strict=True) for _ in range(order)]
        call.derived[key] = traced_call(
            function,
            [*call.in_avals, *(aval for aval, _ in repeated)],
            call.settings,
            [*call.names, *(f"{name}_term" for _, name in repeated)],
            f"the Taylor series of {call.title}",
        )
    found: Call = call.derived[key]
    return found


def as_linear(call: Call, wrt: Mask) -> LinearMap:
    """A program that is linear in the marked arguments as a map of these. The others are its residuals."""
    key = ("itself", wrt)
    if key not in call.derived:
        call.derived.setdefault(key, _as_linear(call, wrt))
    found: LinearMap = call.derived[key]
    return found


def _as_linear(call: Call, wrt: Mask) -> LinearMap:
    everything = (True,) * len(call.closed.out_avals)
    inputs, others = chosen(wrt, call.in_avals), inverted(wrt)

    def at(residuals: Sequence[Any], outs: Mask) -> Callable[..., Sequence[Any]]:
        return _restricted(call.closed, merged(wrt, inputs, residuals), wrt, outs)

    def forward(residuals: Sequence[Any], vectors: Sequence[Any]) -> Sequence[Any]:
        return at(residuals, everything)(*vectors)

    def backward(residuals: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        transposed = jax.linear_transpose(at(residuals, _given(everything, cotangents)), *inputs)
        results: Sequence[Any] = transposed([part for part in cotangents if part is not None])
        return results

    return LinearMap(
        forward,
        backward,
        chosen(others, call.in_avals),
        inputs,
        call.closed.out_avals,
        call.settings,
        [*chosen(others, call.names), *chosen(wrt, call.names)],
        call.title,
        call.around,
    )


def _given(outs: Mask, cotangents: Sequence[Any]) -> Mask:
    """Which results have a cotangent that is not None, of those marked: they have one each."""
    parts = iter(cotangents)
    return tuple(out and next(parts) is not None for out in outs)


def _restricted(
    closed: ClosedJaxpr, arguments: Sequence[Any], free: Mask, outs: Mask
) -> Callable[..., Sequence[Any]]:
    """The marked results as a function of the arguments that are marked as free."""
    fixed = chosen(inverted(free), arguments)

    def function(*values: Any) -> Sequence[Any]:
        return chosen(outs, jaxpr_as_fun(closed)(*merged(free, values, fixed)))

    return function
