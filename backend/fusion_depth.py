"""How deep the fusions are that a compiler may make of a program."""

from __future__ import annotations

from typing import Any

from jax.extend.core import Jaxpr, Literal, jaxprs_in_params

BREAKS = ("conv_general_dilated", "cumsum", "dot_general", "reduce_", "scatter", "sort", "top_k")
"""What the names of primitives begin with that start a fusion of their own."""

LOOPS = frozenset({"cond", "scan", "while"})
"""Primitives whose bodies are compiled by themselves. All others that have a body stand for it."""


def fusion_depth(jaxpr: Jaxpr) -> int:
    """The number of operations in the longest chain, each of the one before, that may become one fusion.

    >>> import jax, jax.numpy as jnp
    >>> fusion_depth(jax.make_jaxpr(lambda x: jnp.sin(jnp.sum(jnp.exp(x) + 1.0)) * 2)(jnp.ones(3)).jaxpr)
    2
    """
    longest, _ = _depths(jaxpr, [0] * len(jaxpr.invars))
    return longest


def _depths(jaxpr: Jaxpr, given: list[int]) -> tuple[int, list[int]]:
    """The longest chain in a jaxpr, and those up to its results, given those up to its arguments."""
    depths: dict[Any, int] = dict(zip(jaxpr.invars, given, strict=True))
    longest = 0

    def read(atom: Any) -> int:
        return 0 if isinstance(atom, Literal) else depths.get(atom, 0)

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        operands = [read(atom) for atom in equation.invars]
        bodies = list(jaxprs_in_params(equation.params))
        results = [0] * len(equation.outvars)
        if bodies and name not in LOOPS and len(bodies[0].invars) == len(operands):
            inside, results = _depths(bodies[0], operands)
        elif bodies:
            inside = max(_depths(body, [0] * len(body.invars))[0] for body in bodies)
        else:
            breaks = name.startswith(BREAKS) and name != "reduce_precision"
            inside = 0 if breaks else max(operands, default=0) + 1
            results = [inside] * len(equation.outvars)
        longest = max(longest, inside)
        depths.update(zip(equation.outvars, results, strict=True))
    return longest, [read(atom) for atom in jaxpr.outvars]
