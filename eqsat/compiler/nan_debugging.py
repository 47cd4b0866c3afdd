"""Checks of results under `jax_debug_nans` and `jax_debug_infs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.api_util import InternalFloatingPointError
from jax.extend.core import ClosedJaxpr, Literal

from eqsat.frontend.source import place_of
from eqsat.frontend.value_numbering import called

Run = Callable[..., Sequence[Any]]

IS_INVALID: dict[str, Callable[[jax.Array], jax.Array]] = {"nan": jnp.isnan, "inf": jnp.isinf}


def results_of(run: Run, closed: ClosedJaxpr, arguments: Sequence[jax.Array]) -> Sequence[Any]:
    """The results of an executable for a program.

    **Raises:** `FloatingPointError`, as functions under `jax.jit` do, if they contain a value that JAX was
    asked to look for. It names the operation that first gives one when the program runs as written.
    """
    try:
        return run(*arguments)
    except InternalFloatingPointError as error:
        culprit = None
        if not any(argument.is_deleted() for argument in arguments):
            with jax.debug_nans(False), jax.debug_infs(False):
                culprit = _first(IS_INVALID[error.ty], closed, arguments)
        name = error.name if culprit is None else _described(culprit)
        raise FloatingPointError(f"invalid value ({error.ty}) encountered in {name}") from None


def _first(
    is_invalid: Callable[[jax.Array], jax.Array], closed: ClosedJaxpr, arguments: Sequence[Any]
) -> Any | None:
    """The first equation that gives an invalid value, in a program or in what it calls."""
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments], strict=True))
    for equation in jaxpr.eqns:
        operands = [atom.val if isinstance(atom, Literal) else values[atom] for atom in equation.invars]
        primitive = equation.primitive
        results = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
        results = results if primitive.multiple_results else (results,)
        if any(jnp.issubdtype(result.dtype, jnp.inexact) and is_invalid(result).any() for result in results):
            inner = called(equation)
            return (inner and _first(is_invalid, inner, operands)) or equation
        values.update(zip(equation.outvars, results, strict=True))
    return None


def _described(equation: Any) -> str:
    place = place_of(equation)
    return f"{equation.primitive.name}{f' at {place}' if place else ''}"
