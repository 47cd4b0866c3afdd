"""A function that rounds its products before what was selected from them is subtracted.

`backend/rounding.py` says why, and rounds in programs that are written. Here it is for a function that is
compiled as it is: bodies of calls are looked into; those of loops, branches and `jax.checkpoint` are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

PRODUCTS = frozenset({"mul", "square", "integer_pow"})

SUMS = frozenset({"add", "add_any", "sub"})

SELECTIONS = frozenset(
    {
        "argmax", "argmin", "cond", "cummax", "cummin", "dynamic_slice", "gather", "reduce_max", "reduce_min",
        "reduce_window_max", "reduce_window_min", "scan", "sort", "top_k", "while",
    }
)  # fmt: skip
"""Primitives whose results may be entries of their operands."""

PLACING = frozenset({"concatenate", "pad", "rev", "slice", "split", "squeeze", "stack", "unstack"})
"""Primitives that move entries to places that do not depend on values: selected, if one meets many."""

SUMMING = frozenset({"conv_general_dilated", "cumsum", "dot_general", "reduce_sum", "reduce_window_sum"})
"""Primitives after which what was selected is no bound of entries any more."""

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
    """A value; whether it is a product, but for sign and place; whether it depends on what was selected.

    **Attributes:**

    - `placed`: whether it depends on what was moved.
    """

    def __init__(
        self, value: Any, product: bool = False, selected: bool = False, placed: bool = False
    ) -> None:
        self.value = value
        self.product = product
        self.selected = selected
        self.placed = placed


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
    sums = name in SUMS and jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)
    # Tokens and references have no size.
    size = max((getattr(var.aval, "size", 0) for var in eqn.outvars), default=0)
    repeated = name not in PLACING and any(
        operand.placed and getattr(var.aval, "size", size) < size
        for operand, var in zip(operands, eqn.invars, strict=True)
    )
    if sums and (repeated or any(operand.selected for operand in operands)):
        values = [_rounded(operand.value) if operand.product else operand.value for operand in operands]
    with eqn.ctx.manager:
        results = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    product = name in PRODUCTS or (name in PASSING and operands[0].product)
    found = results if eqn.primitive.multiple_results else [results]
    if name in SUMMING:
        return [_Known(result, product) for result in found]
    placed = any(operand.placed for operand in operands)
    selected = name in SELECTIONS or repeated or any(operand.selected for operand in operands)
    return [_Known(result, product, selected, placed or name in PLACING) for result in found]


def _rounded(product: Any) -> Any:
    return jnp.where(jnp.isnan(product), jnp.nan, product)
