"""From a JAX function and its arguments to a flat view of its jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.extend.core.primitives import convert_element_type_p

PyTree = Any


@dataclass(frozen=True)
class Traced:
    """A function traced at some types of arguments.

    **Attributes:**

    - `closed`: its jaxpr; the inputs are the leaves of the arguments in order.
    - `out_tree`: the structure of the result, if it is not flat.
    - `captured`: values of transformations under way that the function closes over; they are the last
      inputs of the jaxpr.
    - `shapeless`: which leaves of the result the jaxpr leaves out, as they say nothing: tangents of integers,
      whose dtype is float0. By position, their shapes.
    """

    closed: ClosedJaxpr
    out_tree: Any = None
    captured: tuple[Any, ...] = ()
    shapeless: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def unflatten(self, flat: Sequence[Any]) -> PyTree:
        """The result, given the jaxpr's."""
        leaves = list(flat)
        for position, shape in sorted(self.shapeless.items()):
            leaves.insert(position, np.zeros(shape, jax.dtypes.float0))
        return jax.tree.unflatten(self.out_tree, leaves)

    def call_flat(self, *leaves: Any) -> list[Any]:
        """The function on flat arguments, exactly as traced."""
        return self.typed(jaxpr_as_fun(self.closed)(*leaves))

    def typed(self, results: Sequence[Any]) -> list[Any]:
        """Flat results with the weak types that the traced function's have."""
        return [
            as_weak(result) if aval.weak_type else result
            for result, aval in zip(results, self.closed.out_avals, strict=True)
        ]


def as_weak(value: Any) -> Any:
    """A value with a weak type of its dtype."""
    return convert_element_type_p.bind(value, new_dtype=value.dtype, weak_type=True, sharding=None)


def trace(fn: Callable[..., PyTree], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
    """Trace `fn` as `jax.jit` would; `args` may hold arrays or `jax.ShapeDtypeStruct`s."""
    closed, out_shape = jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)
    out_tree = jax.tree.structure(out_shape)
    avals = closed.out_avals
    empty = {n: aval.shape for n, aval in enumerate(avals) if aval.dtype == jax.dtypes.float0}
    captures = any(isinstance(constant, jax.core.Tracer) for constant in closed.consts)
    if not captures and not empty:
        return Traced(closed, out_tree)
    captured = tuple(closed.consts) if captures else ()
    jaxpr, count = closed.jaxpr, len(closed.in_avals)

    def lifted(*values: Any) -> list[Any]:
        result = jax.core.eval_jaxpr(jaxpr, values[count:] or closed.consts, *values[:count])
        return [value for position, value in enumerate(result) if position not in empty]

    inputs = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
        for aval in (*closed.in_avals, *map(jax.typeof, captured))
    ]
    return Traced(jax.make_jaxpr(lifted)(*inputs), out_tree, captured, empty)
