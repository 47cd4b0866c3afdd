"""Measures a plan's program: its largest array, and the work of its contractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from eqsat.reports.plan import Plan


def equations(jaxpr: Any, turns: int = 1) -> Iterator[tuple[Any, int]]:
    """Yields the equations of a jaxpr and of all jaxprs inside it, with how often each is computed."""
    for equation in jaxpr.eqns:
        yield equation, turns
        for inner in inside(equation):
            yield from equations(inner, turns * equation.params.get("length", 1))


def inside(equation: Any) -> list[Any]:
    """Returns the jaxprs that an equation calls."""
    named = [equation.params.get(name) for name in ("jaxpr", "cond_jaxpr", "body_jaxpr")]
    programs = [*(program for program in named if program is not None), *equation.params.get("branches", ())]
    return [getattr(program, "jaxpr", program) for program in programs]


FUSED = frozenset({"broadcast_in_dim", "transpose", "reshape", "squeeze", "convert_element_type", "jit"})
"""Primitives that make no array of their own."""


def largest_array(plan: Plan, arguments: tuple[Any, ...]) -> int:
    """Returns the elements of the largest array that the plan's program makes, except for its results."""
    jaxpr = jax.make_jaxpr(function_of(plan))(*arguments).jaxpr
    results = set(jaxpr.outvars)
    held = [
        math.prod(variable.aval.shape)
        for equation, _ in equations(jaxpr)
        if equation.primitive.name not in FUSED
        for variable in equation.outvars
        if variable not in results
    ]
    return max(held, default=0)


def multiplications(plan: Plan, arguments: tuple[Any, ...]) -> int:
    """Returns the number of multiplications in the contractions of the plan's program.

    Products with ones don't count, since they are sums.
    """
    total = 0
    for equation, turns in contractions(jax.make_jaxpr(function_of(plan))(*arguments).jaxpr):
        (contracted, _), _ = equation.params["dimension_numbers"]
        depth = math.prod(equation.invars[0].aval.shape[d] for d in contracted)
        total += turns * depth * math.prod(equation.outvars[0].aval.shape)
    return total


def contractions(jaxpr: Any, turns: int = 1, ones: Sequence[Any] = ()) -> Iterator[tuple[Any, int]]:
    """Yields the contractions of a jaxpr, except products with ones, and how often each is computed.

    **Arguments:**

    - `ones`: the variables whose elements are all 1.
    """
    known = list(ones)
    for equation in jaxpr.eqns:
        operands, name = equation.invars, equation.primitive.name
        if name == "broadcast_in_dim" and getattr(operands[0], "val", None) == 1:
            known += equation.outvars
        of_ones = [any(operand is one for one in known) for operand in operands]
        if name == "dot_general" and not any(of_ones):
            yield equation, turns
        for inner in inside(equation):
            passed = [place for place, is_one in zip(inner.invars, of_ones, strict=False) if is_one]
            length = equation.params.get("length", 1)
            yield from contractions(inner, turns * length, passed if name == "jit" else ())


def function_of(plan: Plan) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(plan.source, namespace)
    return lambda *arguments: namespace["optimized"](*arguments, *plan.constants)
