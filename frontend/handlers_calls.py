"""Handlers of calls that are inlined, and of branches that are known at planning time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.frontend.registry import Views, handles
from eqsat.frontend.value_numbering import CALLS, called

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@handles(*CALLS)
def inline_call(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    inner = called(equation)
    if inner is None:
        return None
    name = equation.params.get("name", "")
    # An inverse is the solution for the identity matrix: of the two names, its own says more.
    # (Its derivative, in one call with it, is a solution that has no other name.)
    alone = len(inner.jaxpr.outvars) == 1
    inverse = name == "inv" and alone and bool(lowering.recogniser.matches(name, inner))
    return lowering.inline(inner, operands, named=not inverse)


@handles("custom_linear_solve")
def linear_solve(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The solution as it is computed; the other functions are for derivatives."""
    lengths, functions = equation.params["const_lengths"], equation.params["jaxprs"]
    start, stop = lengths.matvec + lengths.vecmat, sum(lengths)
    factors = operands[start : start + lengths.solve]
    # Of a solve by LU factors, no rule has to know more than that it is a solve.
    by_lu = any(lowering.made[view.node].primitive == "lu" for view in factors if view.node in lowering.made)
    return lowering.inline(functions.solve, [*factors, *operands[stop:]], named=not by_lu)


@handles("platform_index")
def platform_index(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """The branch for the platform that the program is for, which is known when it is planned."""
    for index, names in enumerate(equation.params["platforms"]):
        if names is None or lowering.platforms & set(names):
            return [lowering.constant(index, equation.outvars[0].aval.dtype)]
    return None
