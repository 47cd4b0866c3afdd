"""Operands of scans that are broadcast, as the smaller arrays that they are: iterations broadcast them.

    scan(f, broadcast(x))   =>   scan(f after broadcast, x)

A decoder is given one vector in every step, and the cotangent of a mean is the same for all entries. An array
along a layout that has more axes than it would be made whole before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.device_terms import Numbers
from eqsat.ir.ops import Call, Leaf, Map, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, reachable


def with_broadcast_inside(program: Program) -> Program:
    """Returns the program with scans that are given no array which is larger than what it is made of."""
    known: dict[int, Term] = {}
    numbers = Numbers.after(program)
    changed: dict[tuple[Call, tuple[Term, ...]], Call | None] = {}
    for term in program.known():
        if isinstance(term.op, Opaque) and isinstance(term.op.call.control, Scan):
            key = term.op.call, term.args
            if key not in changed:
                changed[key] = _narrowed(program, *key, numbers)
            call = changed[key]
            if call is not None:
                args = substituted(program.terms, term.args, known)
                made = known[term.number] = program.terms.make(Opaque(call, term.op.result), args)
                if term.number in program.terms.origins:
                    program.terms.origins.setdefault(made.number, program.terms.origins[term.number])
    return with_inputs(program, program.inputs, known) if known else program


def _narrowed(program: Program, call: Call, args: Sequence[Term], numbers: Numbers) -> Call | None:
    """A scan that broadcasts in its iterations; None if nothing that it is given is broadcast."""
    control, (body,) = call.control, call.bodies
    assert isinstance(control, Scan)
    layouts, sliced = list(call.arg_layouts), set(control.sliced)
    for place in control.sliced:
        layout, arg = layouts[place], args[place]
        lacks = set(layout_axes(layout)) - arg.axes
        if not lacks or any(isinstance(part, tuple) for part in layout):
            continue
        own: Layout = tuple(part for part in layout if isinstance(part, Axis) and part not in lacks)
        inside = own if layout[0] in lacks else own[1:]
        narrow = _broadcast_in(program, body, place, inside, numbers)
        if narrow is not None:
            body, layouts[place] = narrow, own
            if layout[0] in lacks:
                # It is the same in all iterations.
                sliced.discard(place)
    if body is call.bodies[0]:
        return None
    control = replace(control, sliced=tuple(place for place in control.sliced if place in sliced))
    made = replace(call, id=numbers.call(), arg_layouts=tuple(layouts), control=control)
    return with_bodies(made, [body], args)


def _broadcast_in(program: Program, body: Body, place: int, layout: Layout, numbers: Numbers) -> Body | None:
    """The body with another layout of one of its operands; None if more than elementwise functions read it.

    These broadcast what they read. A sum along an axis that a value lacks would be another one.
    """
    terms, inputs = program.terms, list(body.program.inputs)
    known: dict[int, Term] = {}
    for number, (leaf, source) in enumerate(zip(body.program.inputs, body.sources, strict=True)):
        if source == place:
            if not set(layout_axes(layout)) <= leaf.axes:
                return None
            inputs[number] = known[leaf.number] = terms.make(Leaf(numbers.input(), layout, leaf.dtype))
    whole = [output.term for output in body.program.outputs]
    whole += [term for pair in body.program.equalities for term in pair]
    whole += [*(fact.term for fact in body.program.facts), *body.program.alike]
    written = list(reachable(whole))
    narrow = dict(zip((term.number for term in written), substituted(terms, written, known), strict=True))
    if any(narrow[term.number].axes != term.axes for term in whole):
        return None
    for term in written:
        if any(narrow[arg.number].axes != arg.axes for arg in term.args) and not isinstance(term.op, Map):
            return None
    return Body(with_inputs(body.program, tuple(inputs), known), body.sources)
