"""Programs that depend on floats by jumps: floors, comparisons, conversions to integers, orders of entries.

If such a loop runs again and its body is compiled otherwise, floats are rounded otherwise, and it may end at
another state. Without jumps, it ends nearby.
"""

from __future__ import annotations

from eqsat.ir.dtypes import is_extended, is_inexact
from eqsat.ir.ops import Map, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term

STEPS = frozenset({"ceil", "floor", "rem", "round", "sign"})
"""Functions of floats that are floats, and jump."""

ORDERS = frozenset({"sort"})
"""Calls whose results may be entries of other operands than those that they compare."""


def is_discontinuous(program: Program) -> bool:
    """Whether a program, or a body inside, has a value that jumps where a float passes another one."""
    return any(_jumps(term) for inner in program.inside() for term in inner.reachable())


def _jumps(term: Term) -> bool:
    if not any(map(_is_float, term.args)):
        return False
    match term.op:
        case Map(name=name) if name in STEPS:
            return True
        case Map(name=name) if name == "is_finite" or (len(term.args) > 1 and len(set(term.args)) == 1):
            # That a float is finite, or equal to itself, does not depend on how it was rounded.
            return False
        case Opaque(call=call) if call.bodies:
            return False
        case Opaque(call=call) if call.primitive.name in ORDERS:
            return len(call.out_dtypes) > 1
    return not is_extended(term.dtype) and not is_inexact(term.dtype)


def _is_float(term: Term) -> bool:
    return not is_extended(term.dtype) and is_inexact(term.dtype)
