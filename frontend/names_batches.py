"""Loops that carry nothing, beside themselves as one batch: iterations can then be taken in any chunks.

    lax.map(f, xs)  =  jax.vmap(f)(xs)

As a loop, it runs one iteration after the other, whatever that takes. As a batch, other loops may be outside
of it, or many iterations may be done at once. Loops with branches, or with loops of unknown length, stay
loops: a batch would take all branches, and as many steps as the longest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
from jax.extend.core import Jaxpr, jaxpr_as_fun, jaxprs_in_params

from eqsat.frontend.draft import View
from eqsat.frontend.registry import Views, names
from eqsat.frontend.scan_groups import scan_groups

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

MOST_EQUATIONS = 300
"""A longer body is not batched: the program has it twice then."""

BRANCHING = frozenset({"while", "cond"})


@names("scan")
def _scan(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    constants, carries = scan_groups(equation)
    if carries or equation.params["length"] == 1 or equation.effects or constants == len(operands):
        return
    body = equation.params["jaxpr"]
    inside = list(_primitives(body.jaxpr))
    if len(inside) > MOST_EQUATIONS or not BRANCHING.isdisjoint(inside):
        return

    @cache
    def batched() -> list[View] | None:
        batch = jax.vmap(jaxpr_as_fun(body), (None,) * constants + (0,) * (len(operands) - constants))
        avals = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
        try:
            made = jax.make_jaxpr(batch)(*avals)
        except Exception:
            return None  # Some primitive has no batches.
        return lowering.inline(made, operands)

    for number, result in enumerate(results):
        lowering.name(equation, result, partial(_one, batched, number))


def _one(made: Callable[[], list[View] | None], number: int) -> View | None:
    views = made()
    return None if views is None else views[number]


def _primitives(jaxpr: Jaxpr) -> Iterator[str]:
    """The names of the primitives of a jaxpr, those inside of its calls and loops included.

    A choice by the platform is none.
    """
    platforms: set[Any] = set()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "platform_index":
            platforms.update(equation.outvars)
        elif equation.primitive.name != "cond" or equation.invars[0] not in platforms:
            yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from _primitives(inner)
