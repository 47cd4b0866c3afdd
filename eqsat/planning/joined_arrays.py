"""Large concatenations as choices of look-ups, so that they can be computed by chunks.

    concatenate(a, b)_i  =  a_i if i < m, else b_(i - m)        for an a of length m

Rules for look-ups then compute of a and b only the entries of a chunk. It may have entries of several
operands, so no loop over one of them gives it; and rules don't speak of a concatenation's lengths. Both forms
are loaded into the e-graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from eqsat.ir.axis import Axis, Layout, parts
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Const, Iota, Map, Opaque, Operation
from eqsat.ir.program import Program
from eqsat.ir.term import Term, Terms, reachable
from eqsat.ir.tiled_values import tiled_values

MOST_OPERANDS = 4
"""Of more operands, most would be looked up in vain for most entries."""


def with_joined_arrays(program: Program, threshold: float) -> Program:
    """The program with equalities between concatenations and choices.

    Of what is computed by tiles, too, chunks are tiles.

    **Arguments:**

    - `threshold`: the size in bytes above which a concatenation is large.
    """
    tiled = list(tiled_values(program))
    kept = {term.number for term in reachable(tiles for _, tiles in tiled)}
    by_tiles = {term.number for term in reachable(whole for whole, _ in tiled)} - kept
    pairs = [
        (term, other)
        for term in program.known()
        if term.bytes > threshold and term.number not in by_tiles
        if (other := as_choice(program.terms, term)) is not None
    ]
    return replace(program, equalities=(*program.equalities, *pairs)) if pairs else program


def joined_axes(program: Program) -> Iterator[tuple[Axis, Axis]]:
    """The axes along which arrays are joined, each with that of an operand."""
    for term in program.reachable():
        if _is_joined(term):
            assert isinstance(term.op, Opaque)
            call = term.op.call
            place = call.params["dimension"]
            joined = call.out_layouts[0][place]
            for layout, operand in zip(call.arg_layouts, term.args, strict=True):
                along = layout[place]
                if isinstance(joined, Axis) and isinstance(along, Axis) and along in operand.axes:
                    yield joined, along


def _is_joined(term: Term) -> bool:
    match term.op:
        case Opaque(call=call):
            return call.primitive.name == "concatenate" and len(term.args) <= MOST_OPERANDS
        case _:
            return False


def as_choice(terms: Terms, term: Term) -> Term | None:
    """A concatenation as a choice of look-ups; None for other terms, and for a dimension of several axes."""
    if not _is_joined(term):
        return None
    assert isinstance(term.op, Opaque)
    call = term.op.call
    place = call.params["dimension"]
    joined = call.out_layouts[0][place]
    if not isinstance(joined, Axis) or joined.size > np.iinfo(np.int32).max or not _alike(call, place):
        return None
    index = terms.make(Iota(joined, "int32"))
    made: Term | None = None
    end = joined.size
    for operand, layout in reversed(list(zip(term.args, call.arg_layouts, strict=True))):
        axes = parts(layout[place])
        start = end - math.prod(axis.size for axis in axes)
        at = terms.make(Map("sub", "int32"), [index, _number(terms, start)]) if start else index
        value = _looked_up(terms, operand, axes, at)
        if made is not None:
            inside = terms.make(Map("lt", "bool"), [index, _number(terms, end)])
            value = terms.make(Map("select_n", term.dtype), [inside, made, value])
        made, end = value, start
    return made if made is not None and made.axes == term.axes else None


def _looked_up(terms: Terms, operand: Term, axes: Sequence[Axis], at: Term) -> Term:
    """The entries of an operand at an index along a dimension that is made of these axes."""
    stride = math.prod(axis.size for axis in axes)
    for axis in axes:
        stride //= axis.size
        if axis in operand.axes:
            place = terms.make(Map("div", "int32"), [at, _number(terms, stride)]) if stride > 1 else at
            if axis != axes[0]:
                place = terms.make(Map("rem", "int32"), [place, _number(terms, axis.size)])
            operand = terms.make(Operation(OPERATIONS["take"], (axis,), operand.dtype), [operand, place])
    return operand


def _number(terms: Terms, value: int) -> Term:
    return terms.make(Const(str(value), "int32"))


def _alike(call: Call, place: int) -> bool:
    """Whether the operands have the axes of the result in all other dimensions."""

    def others(layout: Layout) -> Layout:
        return (*layout[:place], *layout[place + 1 :])

    return all(others(layout) == others(call.out_layouts[0]) for layout in call.arg_layouts)
