"""Scans that carry nothing, and the same values as a batch, which programs know to be equal.

scan(f, (), xs)[1]  =  f of all slices at once
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.ir.changed_calls import with_changed_bodies
from eqsat.ir.control import Body, Scan
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term


def without_batches(program: Program) -> Program:
    """The program without these equalities, also inside of bodies: a batch may be rounded otherwise."""
    kept = tuple(pair for pair in program.equalities if not _stacks(pair[0]))
    if len(kept) < len(program.equalities):
        program = replace(program, equalities=kept)

    def changed(call: Call, _: tuple[Term, ...]) -> list[Body]:
        programs = [without_batches(body.program) for body in call.bodies]
        return [
            body if new is body.program else Body(new, body.sources)
            for body, new in zip(call.bodies, programs, strict=True)
        ]

    return with_changed_bodies(program, changed)


def _stacks(term: Term) -> bool:
    """Whether a term is a result of a scan that carries nothing."""
    if not isinstance(term.op, Opaque) or not isinstance(term.op.call.control, Scan):
        return False
    return not term.op.call.control.carried
