"""Programs traced again, equation by equation, with some of them replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src import source_info_util
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxprs_in_params

from eqsat.frontend.trace_context import needs_trace_context

Replacement = Callable[[Any, list[Any]], Sequence[Any] | None]
"""From an equation and its operands to its results; None if the equation stays."""

SHARDED = ("sharding", "out_sharding")
"""The names of parameters that say how a result is sharded."""

REWRITTEN = frozenset({"scan", "while", "cond", "checkpoint", "remat", "remat2"})
"""Primitives whose jaxprs are rewritten in place."""

INLINED = frozenset({"custom_jvp_call", "custom_vjp_call", "closed_call", "eval_jaxpr"})
"""Primitives that are what the jaxpr inside of them is."""


class NotRetraceable(Exception):
    """An equation can't be written anew."""


def retraced(closed: ClosedJaxpr, replacement: Replacement, placed: bool = False) -> ClosedJaxpr:
    """The program on arguments of the same shapes, with its equations replaced.

    The context says on which mesh, and under which mapped axes, it is traced.

    **Arguments:**

    - `placed`: whether its equations keep what they say about where their results are.

    **Raises:** `NotRetraceable`, or what JAX raises.
    """
    avals = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
        for aval in closed.in_avals
    ]
    found: ClosedJaxpr = jax.make_jaxpr(_function(closed, replacement, placed))(*avals)
    if [(a.shape, a.dtype) for a in found.out_avals] != [(a.shape, a.dtype) for a in closed.out_avals]:
        raise NotRetraceable("the results would have other types")
    return found


def _function(closed: ClosedJaxpr, replacement: Replacement, placed: bool) -> Callable[..., list[Any]]:
    return lambda *values: evaluated(closed.jaxpr, closed.consts, values, replacement, placed)


def evaluated(
    jaxpr: Jaxpr,
    constants: Sequence[Any],
    values: Sequence[Any],
    replacement: Replacement,
    placed: bool = False,
) -> list[Any]:
    """The results of a jaxpr with its equations replaced."""
    known: dict[Var, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        with source_info_util.user_context(equation.source_info.traceback):
            results = replacement(equation, operands)
            if results is None:
                results = _kept(equation, operands, replacement, placed)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _kept(equation: Any, operands: list[Any], replacement: Replacement, placed: bool) -> Sequence[Any]:
    """The results of an equation that stays, with the jaxprs inside of it rewritten."""
    name, params = equation.primitive.name, dict(equation.params)
    if name in ("jit", "pjit"):
        called = _function(params["jaxpr"], replacement, placed)
        # Its name may be that of an operation.
        called.__name__ = called.__qualname__ = params["name"]
        return list(jax.jit(called)(*operands))
    inner = list(jaxprs_in_params(params))
    if name in REWRITTEN:
        params = {key: _rewritten(value, replacement, placed) for key, value in params.items()}
    elif name in INLINED and len(inner) == 1:
        return evaluated(inner[0], _constants(params), operands, replacement, placed)
    elif any(map(needs_trace_context, inner)):
        raise NotRetraceable(name)  # Others, such as how a scatter combines two numbers, stay as they are.
    for key in SHARDED:
        if not placed and isinstance(params.get(key), jax.sharding.NamedSharding):
            params[key] = None
    found = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(params))
    return list(found) if equation.primitive.multiple_results else [found]


def _constants(params: dict[str, Any]) -> Sequence[Any]:
    """The constants of the one jaxpr in the parameters of a call."""
    closed = [value for value in params.values() if isinstance(value, ClosedJaxpr)]
    return closed[0].consts if closed else ()


def _rewritten(value: Any, replacement: Replacement, placed: bool) -> Any:
    """A parameter with the jaxprs in it rewritten."""
    if isinstance(value, ClosedJaxpr):
        return retraced(value, replacement, placed)
    if isinstance(value, Jaxpr):
        found = retraced(ClosedJaxpr(value, ()), replacement, placed)
        if found.consts:
            raise NotRetraceable("it would capture arrays")
        return found.jaxpr
    if isinstance(value, tuple) and value and all(isinstance(one, ClosedJaxpr) for one in value):
        return tuple(_rewritten(one, replacement, placed) for one in value)
    return value
