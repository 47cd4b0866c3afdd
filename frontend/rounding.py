"""A function that rounds its products before what was selected from them is subtracted.

`backend/rounding.py` says why. Here it is for a function that is compiled as it is: bodies of calls
are looked into, those of loops and branches are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

PRODUCTS = frozenset({"mul", "square", "integer_pow"})

SUMS = frozenset({"add", "add_any", "sub"})

SELECTIONS = frozenset({"cummax", "cummin", "reduce_max", "reduce_min", "sort", "top_k"})

PASSING = frozenset({"broadcast_in_dim", "copy", "neg", "reshape", "rev", "slice", "squeeze", "transpose"})
"""Primitives that XLA fuses into a sum along with the product that they are applied to."""

CALLS = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "jit": "jaxpr", "pjit": "jaxpr"}
"""Primitives that call a jaxpr, and the parameter that holds it."""


def rounding(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The function of a jaxpr, on flat arguments, with rounded products."""

    def rounded(*args: Any) -> list[Any]:
        return [known.value for known in _evaluated(closed, [_Known(arg) for arg in args])]

    return rounded


class _Known:
    """A value; whether it is a product, but for sign and place; whether it depends on what was selected."""

    def __init__(self, value: Any, product: bool = False, selected: bool = False) -> None:
        self.value = value
        self.product = product
        self.selected = selected


def _evaluated(closed: ClosedJaxpr, args: Sequence[_Known]) -> list[_Known]:
    known: dict[Any, _Known] = dict(zip(closed.jaxpr.invars, args, strict=True))
    known |= {var: _Known(const) for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True)}

    def read(atom: Any) -> _Known:
        return _Known(atom.val) if isinstance(atom, Literal) else known[atom]

    for eqn in closed.jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        known |= zip(eqn.outvars, _applied(eqn, operands), strict=True)
    return [read(atom) for atom in closed.jaxpr.outvars]


def _applied(eqn: Any, operands: list[_Known]) -> list[_Known]:
    name = eqn.primitive.name
    called = eqn.params.get(CALLS.get(name, ""))
    if isinstance(called, ClosedJaxpr):
        return _evaluated(called, operands)
    values = [operand.value for operand in operands]
    if name in SUMS and jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
        for place, other in ((0, 1), (1, 0)):
            if operands[place].product and operands[other].selected:
                values[place] = jnp.where(jnp.isnan(values[place]), jnp.nan, values[place])
    results = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    product = name in PRODUCTS or (name in PASSING and operands[0].product)
    selected = name in SELECTIONS or any(operand.selected for operand in operands)
    found = results if eqn.primitive.multiple_results else [results]
    return [_Known(result, product, selected) for result in found]
