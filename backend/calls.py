"""Calls of JAX primitives as source text, through JAX's public functions where there are any.

One function per primitive (or family) prints a call from the primitive's parameters and from the
texts of its operands and of all lengths, in `calls_arrays`, `calls_collectives` and `calls_library`. A
length may be the name of a variable: along an axis that the plan splits, it is the length of the
current chunk. A primitive without a function of its own is bound as `lax.name_p.bind(...)`, and one
with a parameter that has no text becomes an object that the emitted module is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Imported for the printers that they register.
from eqsat.backend import calls_arrays as calls_arrays
from eqsat.backend import calls_collectives as calls_collectives
from eqsat.backend import calls_library as calls_library
from eqsat.backend.calls_registry import PRINTERS, CallSite, Params, Unprintable, bind_source
from eqsat.backend.namespace import Namespace

__all__ = ["Namespace", "call_source"]


def call_source(
    primitive: Any,
    params: dict[str, Any],
    args: Sequence[str],
    arg_shapes: Sequence[Sequence[str]],
    out_shapes: Sequence[Sequence[str]],
    names: Namespace,
) -> str:
    """An expression that calls `primitive`.

    **Arguments:**

    - `params`: the parameters as they are in the jaxpr.
    - `args`: the operands: names of variables, or constants.
    - `arg_shapes`, `out_shapes`: the lengths of all dimensions, as text.
    - `names`: where the expression puts what it needs at the top of the module.

    **Returns:**

    The text of one expression. Its value is a tuple of arrays if the primitive has multiple results,
    else an array.
    """
    printer = PRINTERS.get(primitive.name)
    if printer is not None:
        shapes = [tuple(shape) for shape in arg_shapes], [tuple(shape) for shape in out_shapes]
        read = Params(params)
        try:
            text = printer(CallSite(primitive, read, tuple(args), *shapes, names))
        except Unprintable:
            pass
        else:
            # A parameter that the printer does not know of, from a newer JAX or for sharding, could
            # change what the primitive does. None always stands for the default.
            if not read.unread():
                return text
    return bind_source(primitive, params, args, names)
