"""Primitives that are defined in terms of others: what their implementations do is what they are.

Equinox, lineax and others wrap whole solvers into primitives of their own, to give them rules of
differentiation. Such a primitive's implementation is a function of JAX arrays, which can be traced. Since
version 0.12, JAX has some of that kind itself, such as `Nonzero`: a parameter says what they expand to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from jax.extend.core import ClosedJaxpr

from eqsat.frontend.value_numbering import primitives

if TYPE_CHECKING:
    from eqsat.frontend.draft import View
    from eqsat.frontend.lower import Lowering


def inline_foreign(lowering: Lowering, equation: Any, operands: Sequence[View]) -> list[View] | None:
    """The results of such a primitive, by its implementation; None if that can't be seen into."""
    inside = implementation_of(equation)
    return None if inside is None else lowering.inline(inside, operands)


def implementation_of(equation: Any) -> ClosedJaxpr | None:
    """The implementation of a primitive; None for one of JAX's own, or for one that is opaque."""
    primitive, implementation = equation.primitive, _expansion(equation)
    if implementation is None:
        foreign = getattr(primitive, "impl", None)
        if foreign is None or _is_from_jax(foreign):
            return None
        implementation = partial(foreign, **equation.params)
    if equation.effects:
        return None
    shapes = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    try:
        closed = jax.make_jaxpr(implementation)(*shapes)
    except Exception:
        # It looks at values, or calls into something else than JAX.
        return None
    wanted = [(out.aval.shape, out.aval.dtype) for out in equation.outvars]
    if [(aval.shape, aval.dtype) for aval in closed.out_avals] != wanted or closed.effects:
        return None
    # An implementation that ends up calling the primitive itself says nothing new.
    return None if primitive.name in primitives(closed) else closed


def _expansion(equation: Any) -> Callable[..., Any] | None:
    """What a primitive of JAX that is defined in terms of others expands to, as a function."""
    expanded = equation.params.get("_prim")
    if not hasattr(expanded, "expand"):
        return None

    def implementation(*operands: Any) -> Any:
        return jax.tree.leaves(expanded.expand(*jax.tree.unflatten(expanded.in_tree, operands)))

    return implementation


def _is_from_jax(implementation: Callable[..., Any]) -> bool:
    while isinstance(implementation, partial):
        implementation = implementation.func
    module = getattr(implementation, "__module__", None) or ""
    return module.split(".")[0] in ("jax", "jaxlib")
