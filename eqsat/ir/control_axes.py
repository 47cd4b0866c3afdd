"""Finds the axes that pass through control flow: a slice of its operands gives the same slice of its results.

An axis passes if every body works slice by slice along it, and if it has the same place in each carry before
and after an iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from eqsat.ir.axis import Axis, Layout, layout_axes, parts
from eqsat.ir.batched_loops import ends_for_each, predicate_of
from eqsat.ir.control import Scan, While, carried, sliced
from eqsat.ir.device_terms import COLLECTIVES
from eqsat.ir.ops import Call, Leaf, Opaque, Operation
from eqsat.ir.program import Program
from eqsat.ir.term import Term, reachable
from eqsat.support.weak_cache import weakly_cached


def passes(call: Call, axis: Axis, args: Sequence[Term] | None = None) -> bool:
    """Returns whether a slice of the operands along the axis gives the same slice of every result.

    **Arguments:**

    - `args`: the operands of the call, if they are known.
    """
    control = call.control
    assert control is not None
    if not takes_slices(call, axis):
        return False
    for number, body in enumerate(call.bodies):
        if isinstance(control, While) and number == 0:
            continue
        for output, wanted in zip(body.program.outputs, given_layouts(call), strict=True):
            if place_of(output.layout, axis) != place_of(wanted, axis):
                return False
    for result, place in enumerate(carried(control)):
        if place_of(call.out_layouts[result], axis) != place_of(call.arg_layouts[place], axis):
            return False
    if isinstance(control, While):
        condition, body = call.bodies
        if not works_slice_by_slice(condition.program, axis):
            predicate = predicate_of(condition, axis)
            if predicate is None or not all(keeps(term, axis) for term in reachable([predicate])):
                return False
            return works_slice_by_slice(body.program, axis) and ends_for_each(call, axis, predicate, args)
    return all(works_slice_by_slice(body.program, axis) for body in call.bodies)


def takes_slices(call: Call, axis: Axis) -> bool:
    """Returns whether slices of the operands along the axis give the bodies the same slices of their inputs.

    This is not so if a loop runs along the axis, over the slices of an operand or the entries of a result.
    Nor is it if several devices run the call, and in it tell each other what lacks the axis: they would
    repeat it for every slice.
    """
    assert call.control is not None
    for place, layout in enumerate(call.arg_layouts):
        if place in sliced(call.control) and axis in parts(layout[0]):
            return False
    if isinstance(call.control, Scan):
        stacked = call.out_layouts[len(call.control.carried) :]
        if any(axis in parts(layout[0]) for layout in stacked):
            return False
    for body in call.bodies:
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            assert isinstance(leaf.op, Leaf)
            if place_of(leaf.op.layout, axis) != place_of(_fed(call, source), axis):
                return False
    return all(axis in said for body in call.bodies for said in _told(body.program))


@weakly_cached
def _told(program: Program) -> tuple[frozenset[Axis], ...]:
    """Returns the axes of what devices tell each other in a program, one set for each time."""
    calls = (
        term.op.call for inner in program.inside() for term in _terms(inner) if isinstance(term.op, Opaque)
    )
    return tuple(
        frozenset(layout_axes(call.arg_layouts[0])) for call in calls if call.primitive.name in COLLECTIVES
    )


@weakly_cached
def _terms(program: Program) -> tuple[Term, ...]:
    """Returns the terms of a program, operands first."""
    return tuple(program.reachable())


def place_of(layout: Layout, axis: Axis) -> tuple[int, int] | None:
    """Returns the number of the dimension that has the axis, and the axis's stride within that dimension.

    Returns None if the layout does not have the axis.
    """
    for place, dimension in enumerate(layout):
        if axis in parts(dimension):
            faster = parts(dimension)[parts(dimension).index(axis) + 1 :]
            return place, math.prod(other.size for other in faster)
    return None


def _fed(call: Call, source: int) -> Layout:
    """Returns the layout of what an operand feeds to a body in one iteration."""
    assert call.control is not None
    layout = call.arg_layouts[source]
    return layout[1:] if source in sliced(call.control) else layout


def given_layouts(call: Call) -> list[Layout]:
    """Returns, for each result of the call, the layout of what one iteration or branch returns for it."""
    first = len(carried(call.control)) if isinstance(call.control, Scan) else len(call.out_layouts)
    return [*call.out_layouts[:first], *(layout[1:] for layout in call.out_layouts[first:])]


def works_slice_by_slice(program: Program, axis: Axis) -> bool:
    """Returns whether a slice of the inputs along `axis` gives the same slice of every term."""
    return all(keeps(term, axis) for term in _terms(program))


def keeps(term: Term, axis: Axis) -> bool:
    """Returns whether a slice along `axis` of the operands that have it gives the same slice of the term."""
    if isinstance(term.op, Leaf):
        return True
    if isinstance(term.op, Opaque) and term.op.call.bodies and axis in term.op.call.passing:
        # Results without the axis, as the number of an iteration, are the same for every slice.
        return axis not in term.op.call.ordered
    if (axis in term.axes) != any(axis in arg.axes for arg in term.args):
        # The term sums over the axis, for example, or counts along it, or renames it.
        return False
    match term.op:
        case Operation(axes=core):
            return axis not in core
        case Opaque(call=call):
            mentioned: Iterable[Layout] = (*call.arg_layouts, *call.out_layouts)
            if axis in call.passing:
                return axis not in call.ordered
            return not any(axis in layout_axes(layout) for layout in mentioned)
        case _:
            return True
