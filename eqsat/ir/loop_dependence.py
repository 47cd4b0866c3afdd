"""Loop-carried dependence: which values of a loop's body some of its values reach, in whichever iteration."""

from __future__ import annotations

from collections.abc import Iterable

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import Body, carried
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.term import Term


def dependent(call: Call, seeds: Iterable[Term]) -> set[int]:
    """The numbers of the terms of a loop's body that depend on some of them, through carries as well."""
    assert call.control is not None
    body, outputs = call.bodies[-1], call.bodies[-1].program.outputs
    places = {place: result for result, place in enumerate(carried(call.control))}
    carries = {
        leaf.number: outputs[places[source]].term.number
        for leaf, source in operands_of(body)
        if source in places
    }
    terms = list(body.program.reachable())
    found = {term.number for term in seeds}
    while True:
        before = len(found)
        for term in terms:
            if carries.get(term.number) in found or any(arg.number in found for arg in term.args):
                found.add(term.number)
        if len(found) == before:
            return found


def operands_of(body: Body) -> Iterable[tuple[Term, int]]:
    """The inputs of a body, each with the position of the operand that feeds it."""
    return zip(body.program.inputs, body.sources, strict=True)


def has_axis(term: Term, axis: Axis) -> bool:
    """Whether a term has the axis, or is a call whose operands are laid out along it."""
    layouts = term.op.call.arg_layouts if isinstance(term.op, Opaque) else ()
    return axis in term.axes or any(axis in layout_axes(layout) for layout in layouts)


def dependent_on_axis(call: Call, axis: Axis) -> set[int]:
    """The numbers of the terms of a loop's body whose computation has the axis."""
    terms = call.bodies[-1].program.reachable()
    return dependent(call, [term for term in terms if has_axis(term, axis)])


def results_among(call: Call, numbers: set[int]) -> set[int]:
    """The results of a loop that are among terms of its body."""
    outputs = enumerate(call.bodies[-1].program.outputs)
    return {result for result, output in outputs if output.term.number in numbers}
