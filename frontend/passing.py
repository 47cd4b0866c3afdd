"""Which dimensions pass through a JAX primitive untouched.

A dimension passes when a slice of the operands that have it gives, through the same primitive, that
slice of every result: the primitive may then be called chunk by chunk. Each primitive says so in one
function of `passing_arrays` or `passing_linalg`; a primitive that nobody speaks for passes nothing,
which is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Imported for the rules that they register.
from eqsat.frontend import passing_arrays as passing_arrays
from eqsat.frontend import passing_collectives as passing_collectives
from eqsat.frontend import passing_linalg as passing_linalg
from eqsat.frontend import passing_random as passing_random
from eqsat.frontend.passing_registry import RULES, Passing, Site

__all__ = ["RULES", "SHAPE_PRESERVING", "Passing", "passing_dimensions"]

SHAPE_PRESERVING: Mapping[str, int] = {
    "cholesky": 0,
    "sort": 0,
    "rev": 0,
    "cumsum": 0,
    "cumprod": 0,
    "cummax": 0,
    "cummin": 0,
    "cumlogsumexp": 0,
    "dynamic_update_slice": 0,
    "scatter": 0,
    "scatter-add": 0,
    "scatter-sub": 0,
    "scatter-mul": 0,
    "scatter-min": 0,
    "scatter-max": 0,
}
"""Primitives whose results lie on the axes of one operand, and which operand that is."""


def passing_dimensions(eqn: Any) -> tuple[Passing, ...]:
    """The axes of length above 1 that pass through a jaxpr's equation untouched."""
    rule = RULES.get(eqn.primitive.name)
    if rule is None or eqn.effects:
        return ()
    site = Site(
        tuple(tuple(atom.aval.shape) for atom in eqn.invars),
        tuple(tuple(atom.aval.shape) for atom in eqn.outvars),
        eqn.params,
        tuple(atom.aval.dtype for atom in eqn.invars),
    )
    if any(0 in shape for shape in (*site.args, *site.outs)):
        return ()  # nothing to save, and too many ways for lengths to look alike
    return tuple(passing for passing in rule(site) if _has_length(site, passing))


def _has_length(site: Site, passing: Passing) -> bool:
    """Whether what passes has one length above 1. Rules may offer others, for brevity."""
    if all(dim is None for dim in passing.args):
        return False
    if passing.groups:
        return passing.groups > 1
    lengths = {shape[dim] for shape, dim in zip(site.outs, passing.outs, strict=True)}
    lengths |= {shape[dim] for shape, dim in zip(site.args, passing.args, strict=True) if dim is not None}
    return len(lengths) == 1 and min(lengths) > 1
