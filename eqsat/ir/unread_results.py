"""Which results of loops nothing reads, so that a batch may pass through whatever they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.ir.control import Body, While
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term

Application = tuple[Call, tuple[Term, ...]]
"""A call of control flow, and its operands."""


def with_unread_results(program: Program) -> Program:
    """Returns the program with what is unread noted in its `while` loops, also inside of bodies."""
    while True:
        known = _noted(program)
        if not known:
            return program
        program = with_inputs(program, program.inputs, known)


def _noted(program: Program) -> Mapping[int, Term]:
    """Returns the results of one call for which there is something to note, by those that they replace."""
    results: dict[Application, dict[int, int]] = {}
    for term in program.known():
        if isinstance(term.op, Opaque) and term.op.call.bodies:
            results.setdefault((term.op.call, term.args), {})[term.op.result] = term.number
    for (call, args), read in results.items():
        bodies = []
        for body in call.bodies:
            inside = with_unread_results(body.program)
            bodies.append(body if inside is body.program else Body(inside, body.sources))
        unread = call.unread
        if isinstance(call.control, While):
            unread = frozenset(range(len(call.out_layouts))).difference(read)
        alike = all(new is old for new, old in zip(bodies, call.bodies, strict=True))
        if alike and unread == call.unread:
            continue
        made = with_bodies(replace(call, unread=unread), bodies, args)
        if alike and made.passing == call.passing:
            continue
        made = replace(made, id=program.next_call())
        return {number: program.terms.make(Opaque(made, result), args) for result, number in read.items()}
    return {}
