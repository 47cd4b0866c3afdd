"""Loops whose iterations need nothing of each other, beside themselves as one batch: for any chunks.

    lax.map(f, xs)  =  jax.vmap(f)(xs)

As a loop, it runs one iteration after the other, whatever that takes. As a batch, other loops may be outside
of it, or many iterations may be done at once. Loops with branches, or with loops of unknown length, stay
loops: a batch would take all branches, and as many steps as the longest one. So do loops over what is another
function of a batch: of keys of the generator "rbg", for example, it draws other numbers than of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxprs_in_params

from eqsat.frontend.draft import View
from eqsat.frontend.generators import is_threefry
from eqsat.frontend.independent_iterations import Loop
from eqsat.frontend.registry import Views, names
from eqsat.frontend.scan_groups import scan_groups

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

MOST_EQUATIONS = 300
"""A longer body is not batched, since the program has it twice then: a choice, not measured."""

BRANCHING = frozenset({"while", "cond"})

OTHERWISE = frozenset({"rng_bit_generator", "rng_uniform", "custom_vmap_call", "pure_callback", "ffi_call"})
"""Primitives of which a batch may be another function, by their own rule or by one that a user wrote."""


@names("scan")
def _scan(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    constants, carries = scan_groups(equation)
    params = equation.params
    if params["length"] == 1 or equation.effects or constants == len(operands):
        return
    if not _is_its_batch(params["jaxpr"].jaxpr):
        return
    starts = operands[constants : constants + carries]
    known = [lowering.constant_value(start) for start in starts]
    loop = Loop(params["jaxpr"], constants, carries, params["length"], params["reverse"], known)
    if not loop.may_be_batch():
        return

    @cache
    def batched() -> list[View] | None:
        avals = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
        try:
            made = jax.make_jaxpr(loop.batch)(*avals)
        except Exception:  # whatever a rule for batches raises: some primitives have none
            return None
        wanted = [(var.aval.shape, var.aval.dtype) for var in equation.outvars]
        same = wanted == [(aval.shape, aval.dtype) for aval in made.out_avals]
        return lowering.inline(made, operands) if same else None

    def one(number: int) -> View | None:
        views = batched()
        return None if views is None else views[number]

    for number, result in enumerate(results):
        lowering.name(equation, result, partial(one, number))


def _is_its_batch(jaxpr: Jaxpr) -> bool:
    """Whether a short function of a batch is that of all its entries, and takes no other steps."""
    equations = list(_equations(jaxpr))
    if len(equations) > MOST_EQUATIONS or any(
        equation.primitive.name in BRANCHING | OTHERWISE for equation in equations
    ):
        return False
    dtypes = {
        getattr(var.aval, "dtype", None)
        for var in (*jaxpr.invars, *jaxpr.constvars, *(var for one in equations for var in one.outvars))
    }
    keys = [dtype for dtype in dtypes if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)]
    return all(map(is_threefry, keys))


def _equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """The equations of a jaxpr, and those inside of them; without choices by the platform."""
    platforms: set[Any] = set()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "platform_index":
            platforms.update(equation.outvars)
        elif equation.primitive.name != "cond" or equation.invars[0] not in platforms:
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner)
