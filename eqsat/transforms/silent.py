"""Programs without what they print: that happens where the program runs, and not in its derivative again."""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from eqsat.frontend.trace_context import named_axes, side_effects


def silent(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr without the equations that have side effects and no results, in the jaxprs inside it either.

    Prints in the rules of `jax.custom_vjp` stay, since these are functions and not jaxprs.

    >>> import jax
    >>> closed = jax.make_jaxpr(lambda x: (jax.debug.print("{}", x), x + 1)[1])(1.0)
    >>> len(closed.eqns), len(silent(closed).eqns), bool(silent(closed).effects)
    (2, 1, False)
    """
    if not side_effects(closed.effects):
        return closed
    return ClosedJaxpr(_silent(closed.jaxpr), closed.consts)


def _silent(jaxpr: Jaxpr) -> Jaxpr:
    kept = [_silent_inside(equation) for equation in jaxpr.eqns if not _only_acts(equation)]
    effects = frozenset().union(*(equation.effects for equation in kept))
    left = {effect for effect in jaxpr.effects if effect in effects or named_axes([effect])}
    result: Jaxpr = jaxpr.replace(eqns=kept, effects=left)
    return result


def _only_acts(equation: JaxprEqn) -> bool:
    return not equation.outvars and bool(side_effects(equation.effects))


def _silent_inside(equation: JaxprEqn) -> JaxprEqn:
    if not side_effects(equation.effects):
        return equation
    inner: list[Jaxpr] = []
    params = {name: _silent_value(value, inner) for name, value in equation.params.items()}
    if not inner:
        return equation  # What acts and has results, such as an io_callback, is left to JAX.
    effects = frozenset().union(*(jaxpr.effects for jaxpr in inner))
    left = {effect for effect in equation.effects if effect in effects or named_axes([effect])}
    silent: JaxprEqn = equation.replace(params=params, effects=left)
    return silent


def _silent_value(value: Any, found: list[Jaxpr]) -> Any:
    """A parameter with the jaxprs in it silent; these are added to `found`."""
    if isinstance(value, Jaxpr):
        found.append(_silent(value))
        return found[-1]
    if isinstance(value, ClosedJaxpr):
        found.append(_silent(value.jaxpr))
        return ClosedJaxpr(found[-1], value.consts)
    if isinstance(value, (tuple, list)):
        parts = [_silent_value(part, found) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
