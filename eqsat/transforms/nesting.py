"""Optimised functions inside others: the programs of the inner ones become part of the outer ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.extend.core.primitives import closed_call_p


class NestedProgram(ABC):
    """The parameter `program` of our primitives."""

    @abstractmethod
    def as_jaxpr(self) -> ClosedJaxpr:
        """The program as written."""


def without_programs(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr that calls the programs in it, and in the jaxprs inside it, as they were written.

    Only the outermost budget counts, and an inner program is optimised together with its surroundings.
    """
    return ClosedJaxpr(_rewritten(closed.jaxpr), closed.consts)


def _rewritten(jaxpr: Jaxpr) -> Jaxpr:
    equations = [_rewritten_equation(equation) for equation in jaxpr.eqns]
    if all(new is old for new, old in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    result: Jaxpr = jaxpr.replace(eqns=equations)
    return result


def _rewritten_equation(equation: Any) -> Any:
    program = equation.params.get("program")
    if isinstance(program, NestedProgram):
        return equation.replace(primitive=closed_call_p, params={"call_jaxpr": program.as_jaxpr()})
    params = {name: _rewritten_value(value) for name, value in equation.params.items()}
    if all(params[name] is value for name, value in equation.params.items()):
        return equation
    return equation.replace(params=params)


def _rewritten_value(value: Any) -> Any:
    """A parameter with the jaxprs in it rewritten; itself if that changes nothing."""
    if isinstance(value, Jaxpr):
        return _rewritten(value)
    if isinstance(value, ClosedJaxpr):
        inner = _rewritten(value.jaxpr)
        return value if inner is value.jaxpr else ClosedJaxpr(inner, value.consts)
    if isinstance(value, (tuple, list)):
        parts = [_rewritten_value(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
