"""How deep the fusions are that a compiler may make of a program."""

from __future__ import annotations

from typing import Any

BREAKS = ("conv_general_dilated", "cumsum", "dot_general", "reduce", "scatter", "sort", "top_k")
"""What the names of primitives begin with that start a fusion of their own."""


def fusion_depth(jaxpr: Any) -> int:
    """The number of operations in the longest chain, each of the one before, that may become one fusion.

    >>> import jax, jax.numpy as jnp
    >>> fusion_depth(jax.make_jaxpr(lambda x: jnp.sin(jnp.sum(jnp.exp(x) + 1.0)) * 2)(jnp.ones(3)).jaxpr)
    2
    """
    return max(_depths(jaxpr, [0] * len(jaxpr.invars))[0], 0)


def _depths(jaxpr: Any, given: list[int]) -> tuple[int, list[int]]:
    """The longest chain in a jaxpr, and those up to its results, given those up to its arguments."""
    depths: dict[Any, int] = dict(zip(jaxpr.invars, given, strict=True))
    longest = 0

    def read(atom: Any) -> int:
        return 0 if hasattr(atom, "val") else depths.get(atom, 0)

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        operands = [read(atom) for atom in equation.invars]
        bodies = list(_bodies(equation.params))
        if name in ("jit", "pjit") and len(bodies) == 1:
            inside, results = _depths(bodies[0], operands)
        elif bodies:
            inside = max(_depths(body, [0] * len(body.invars))[0] for body in bodies)
            results = [0] * len(equation.outvars)
        else:
            inside = 0 if name.startswith(BREAKS) else max(operands, default=0) + 1
            results = [inside] * len(equation.outvars)
        longest = max(longest, inside)
        depths.update(zip(equation.outvars, results, strict=True))
    return longest, [read(atom) for atom in jaxpr.outvars]


def _bodies(params: Any) -> Any:
    """The jaxprs among an equation's parameters."""
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner
