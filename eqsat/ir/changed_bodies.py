"""Programs with the bodies of their control flow changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from eqsat.ir.control import Body
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term

Change = Callable[[Call, tuple[Term, ...]], Sequence[Body]]
"""From a call of control flow and its operands to its bodies."""


def with_changed_bodies(program: Program, change: Change) -> Program:
    """The program with the bodies of each call changed, but not those inside of bodies."""
    done: set[tuple[Call, tuple[Term, ...]]] = set()
    next_call = program.next_call()
    while True:
        found = next((found for found in program.controls() if found not in done), None)
        if found is None:
            return program
        call, args = found
        done.add(found)
        bodies = change(call, args)
        if all(new is old for new, old in zip(bodies, call.bodies, strict=True)):
            continue
        made = replace(with_bodies(call, bodies, args), id=next_call)
        next_call += 1
        done.add((made, args))
        known = {}
        for term in program.known():
            if isinstance(term.op, Opaque) and term.op.call == call and term.args == args:
                known[term.number] = program.terms.make(Opaque(made, term.op.result), args)
        program = with_inputs(program, program.inputs, known)
