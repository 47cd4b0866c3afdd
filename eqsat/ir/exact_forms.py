"""Programs without those of their equalities that only hold but for rounding, for results of the same bits.

Sums of a tile may be in another order than those of the image, and products of a batch than those of one
iteration of a loop.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.ir.changed_calls import with_changed_bodies
from eqsat.ir.control import Body, Scan
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.ir.tiled_values import tiled_values


def with_exact_forms(program: Program) -> Program:
    """The program without them, also inside of bodies."""
    tiles = set(tiled_values(program))
    kept = tuple(pair for pair in program.equalities if pair not in tiles and not is_uncarried(pair[0]))
    if len(kept) < len(program.equalities):
        program = replace(program, equalities=kept)

    def changed(call: Call, _: tuple[Term, ...]) -> list[Body]:
        programs = [with_exact_forms(body.program) for body in call.bodies]
        return [
            body if new is body.program else Body(new, body.sources)
            for body, new in zip(call.bodies, programs, strict=True)
        ]

    return with_changed_bodies(program, changed)


def is_uncarried(term: Term) -> bool:
    """Whether a term is a result of a scan that carries nothing: what it equals is a batch."""
    if not isinstance(term.op, Opaque) or not isinstance(term.op.call.control, Scan):
        return False
    return not term.op.call.control.carried
