"""Which results of a jaxpr depend on which of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal

from eqsat.frontend.value_numbering import called


def dependent(closed: ClosedJaxpr, arguments: Sequence[bool]) -> tuple[bool, ...]:
    """Which results depend on any of the marked arguments, according to the equations.

    >>> import jax
    >>> dependent(jax.make_jaxpr(lambda x, y: (x + y, y * 2))(1.0, 2.0), (True, False))
    (True, False)
    """
    jaxpr = closed.jaxpr
    marked = {var for var, mark in zip(jaxpr.invars, arguments, strict=True) if mark}

    def is_marked(atom: Any) -> bool:
        return not isinstance(atom, Literal) and atom in marked

    for equation in jaxpr.eqns:
        operands = [is_marked(atom) for atom in equation.invars]
        if not any(operands):
            continue
        inner = called(equation)
        results = dependent(inner, operands) if inner else (True,) * len(equation.outvars)
        marked.update(var for var, mark in zip(equation.outvars, results, strict=True) if mark)
    return tuple(map(is_marked, jaxpr.outvars))
