"""Loop fission: results of a `scan` that lack an axis of the others are computed in a loop of their own.

    scan(x, w) -> x's rows, w's order   =>   scan(x, w) -> x's rows;  scan(w) -> w's order

A loop over chunks of the rows gives no result without rows. So these results would need the loop as a whole,
with all that it stores, though they need little of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eqsat.ir.axis import layout_axes
from eqsat.ir.changed_calls import Operands, with_changed_bodies
from eqsat.ir.control import Body, Scan
from eqsat.ir.loop_dependence import dependent_on_axis, results_among
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term
from eqsat.ir.unused_results import trimmed


def with_loop_fission(program: Program) -> Program:
    """Returns the program with its loops taken apart, also inside of bodies."""

    def changed(call: Call, _: Operands) -> list[Body]:
        inside = ((body, with_loop_fission(body.program)) for body in call.bodies)
        return [body if new is body.program else Body(new, body.sources) for body, new in inside]

    program = with_changed_bodies(program, changed)
    while known := _taken_apart(program):
        program = with_inputs(program, program.inputs, known)
    return program


def _taken_apart(program: Program) -> dict[int, Term]:
    """Returns the results of one loop as those of two, by the numbers of the terms that they replace."""
    number = program.next_call()
    for call, args in dict.fromkeys(program.controls()):
        results = {
            term.op.result: term
            for term in program.known()
            if isinstance(term.op, Opaque) and term.op.call == call and term.args == args
        }
        parts = _parts(call, results)
        known: dict[int, Term] = {}
        for place, part in enumerate(parts):
            found = trimmed(call, args, part)
            if found is None:
                continue
            made, renumbered, operands = found
            made = replace(made, id=number + place)
            given = tuple(args[operand] for operand in operands)
            known |= {
                results[result].number: program.terms.make(Opaque(made, renumbered[result]), given)
                for result in part
            }
        if known:
            return known
    return {}


def _parts(call: Call, results: Iterable[int]) -> list[set[int]]:
    """Returns the results that need an axis, and those that do not, if there are both; else nothing."""
    if not isinstance(call.control, Scan):
        return []
    axes = sorted(call.passing | call.sums, key=lambda axis: axis.size, reverse=True)
    for axis in axes:
        free = {
            result
            for result in set(results) - results_among(call, dependent_on_axis(call, axis))
            if axis not in layout_axes(call.out_layouts[result])
        }
        if free and free != set(results):
            return [set(results) - free, free]
    return []
