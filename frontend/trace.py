"""From a JAX function and its arguments to a flat, inlined view of its jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

PyTree = Any


@dataclass(frozen=True)
class Traced:
    """A function traced at some argument shapes.

    **Attributes:**

    - `closed`: its jaxpr; the inputs are the leaves of `(args, kwargs)` in order.
    - `in_tree`, `out_tree`: the structures of `(args, kwargs)` and of the result.
    - `captured`: values of an outer transformation that the function closes over; they are the last
      inputs of the jaxpr.
    """

    closed: ClosedJaxpr
    in_tree: Any
    out_tree: Any
    captured: tuple[Any, ...] = ()

    def call_flat(self, *leaves: Any) -> list[Any]:
        """The function on flat arguments, exactly as traced."""
        result: list[Any] = jaxpr_as_fun(self.closed)(*leaves)
        return result


def trace(fn: Callable[..., PyTree], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
    """Trace `fn` as `jax.jit` would; `args` may hold arrays or `jax.ShapeDtypeStruct`s."""
    leaves, in_tree = jax.tree.flatten((args, dict(kwargs)))
    closed, out_shape = jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)
    assert len(closed.jaxpr.invars) == len(leaves)
    out_tree = jax.tree.structure(out_shape)
    if not any(isinstance(constant, jax.core.Tracer) for constant in closed.consts):
        return Traced(closed, in_tree, out_tree)
    captured, jaxpr, count = tuple(closed.consts), closed.jaxpr, len(leaves)

    def lifted(*values: Any) -> list[Any]:
        result: list[Any] = jax.core.eval_jaxpr(jaxpr, values[count:], *values[:count])
        return result

    inputs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
    return Traced(jax.make_jaxpr(lifted)(*inputs, *captured), in_tree, out_tree, captured)
