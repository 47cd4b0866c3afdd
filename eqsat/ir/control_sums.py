"""Finds the axes that control flow sums over: the results for chunks of the operands add up to the whole.

For example, the derivative of a recurrent network carries the gradient of the weights from iteration to
iteration, and each iteration adds the contribution of its batch. That gradient is a sum over the batch. A
carry that has the batch axis is sliced along it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, While, carried
from eqsat.ir.control_axes import given_layouts, keeps, passes, place_of, takes_slices
from eqsat.ir.linear_calls import linear_operands
from eqsat.ir.ops import Call, Const, Dot, Leaf, Map, Opaque, Reduce, Rename
from eqsat.ir.term import Term, reachable


class Part(Enum):
    """What a term becomes if the inputs are restricted to a chunk of an axis.

    It stays the same, becomes that slice of the term, or becomes a summand: the values for all chunks add
    up to the term.
    """

    SAME = auto()
    SLICE = auto()
    SUMMAND = auto()


def sums_over(call: Call, args: Sequence[Term], axis: Axis) -> bool:
    """Returns whether chunks of the operands along the axis give summands or slices of the results.

    Results that lack the axis must become summands, and results that have it slices. The initial value of a
    carried sum must be zero, because every chunk starts with it.
    """
    control = call.control
    assert control is not None
    # A while loop may take fewer iterations for a chunk than for the whole.
    if isinstance(control, While) or not takes_slices(call, axis):
        return False
    sums = _carried_sums(call, axis)
    if not all(is_zero(args[place]) for place in sums):
        return False
    for body in call.bodies:
        fed = zip(body.program.inputs, body.sources, strict=True)
        parts = {leaf.number: Part.SUMMAND for leaf, source in fed if source in sums}
        for term in body.program.reachable():
            part = parts.get(term.number) or _part(term, axis, [parts[arg.number] for arg in term.args])
            if part is None:
                return False
            parts[term.number] = part
        for result, wanted in enumerate(given_layouts(call)):
            output = body.program.outputs[result]
            if not _gives(output.term, parts, place_of(wanted, axis) is not None):
                return False
            if place_of(output.layout, axis) != place_of(wanted, axis):
                return False
    return all(
        place_of(call.out_layouts[result], axis) == place_of(call.arg_layouts[place], axis)
        for result, place in enumerate(carried(control))
    )


def is_zero(term: Term) -> bool:
    """Returns whether the term is the constant zero."""
    return isinstance(term.op, Const) and term.op.text in ("0", "0.0", "-0.0", "0j")


def _gives(term: Term, parts: Mapping[int, Part], sliced: bool) -> bool:
    """Returns whether a body's result is a slice, if `sliced`, or else a summand."""
    part = parts[term.number]
    return part is Part.SLICE if sliced else part is Part.SUMMAND or is_zero(term)


def _carried_sums(call: Call, axis: Axis) -> set[int]:
    """Returns the positions of the carried operands that depend on slices but lack the axis.

    If the call sums over the axis, these carries are sums.
    """
    control = call.control
    assert control is not None
    sums: set[int] = set()
    while True:
        found = set(sums)
        for body in call.bodies:
            fed = dict(zip((leaf.number for leaf in body.program.inputs), body.sources, strict=True))
            for place, output in zip(carried(control), body.program.outputs, strict=False):
                if place_of(call.arg_layouts[place], axis) is None and any(
                    axis in term.axes or fed.get(term.number) in sums for term in reachable([output.term])
                ):
                    found.add(place)
        if found == sums:
            return sums
        sums = found


def _part(term: Term, axis: Axis, args: Sequence[Part]) -> Part | None:
    """Returns what a term becomes, given what its operands become, or None if it is none of the three."""
    if Part.SUMMAND in args:
        return Part.SUMMAND if _is_linear(term, axis, args) else None
    if isinstance(term.op, Leaf):
        return Part.SLICE if axis in term.axes else Part.SAME
    if Part.SLICE not in args:
        return None if axis in term.axes else Part.SAME
    match term.op:
        case Reduce(kind="sum", axes=axes) | Dot(axes=axes) if axis in axes:
            return Part.SUMMAND
        case Opaque(call=call) if axis in call.sums:
            return Part.SLICE if axis in term.axes else Part.SUMMAND
    return Part.SLICE if axis in term.axes and keeps(term, axis) else None


def _is_linear(term: Term, axis: Axis, args: Sequence[Part]) -> bool:
    """Returns whether a term is linear in its operands that are summands, so that its values add up too.

    All other operands must be the same for every chunk, or zero where a sum is formed.
    """
    if Part.SLICE in args:
        return False
    summands = [part is Part.SUMMAND or is_zero(arg) for part, arg in zip(args, term.args, strict=True)]
    match term.op:
        case Map(name="add" | "sub" | "neg" | "real" | "imag" | "conj"):
            return all(summands)
        case Map(name="mul") | Dot():
            return args.count(Part.SUMMAND) == 1
        case Map(name="div"):
            return args[1] is Part.SAME
        case Map(name="select_n"):
            return args[0] is Part.SAME and all(summands[1:])
        case Reduce(kind="sum"):
            return True
        case Rename(new=new):
            return new != axis
        case Opaque(call=call):
            return any(
                all(
                    summand if place in group else part is Part.SAME
                    for place, (summand, part) in enumerate(zip(summands, args, strict=True))
                )
                for group in linear_operands(call)
            )
    return False


def with_bodies(call: Call, bodies: Sequence[Body], args: Sequence[Term]) -> Call:
    """Returns the call with other bodies, and with the axes that pass through them or are summed over.

    **Arguments:**

    - `args`: the operands of the call.
    """
    call = replace(call, bodies=tuple(bodies))
    # If no operand has an axis, chunks of it would all give the same call.
    varying = frozenset[Axis]().union(*(arg.axes for arg in args))
    passing = frozenset(axis for axis in varying if passes(call, axis, args))
    sums = frozenset(axis for axis in varying - passing if sums_over(call, args, axis))
    return replace(call, passing=passing, sums=sums)
