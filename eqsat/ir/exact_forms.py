"""Programs without those of their equalities that only hold but for rounding, for results of the same bits.

Sums of a tile may be in another order than those of the image, products of a batch than those of one
iteration of a loop, and the sum of what all iterations add than theirs, one after the other.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.ir.changed_calls import with_changed_bodies
from eqsat.ir.control import Body, Scan
from eqsat.ir.loop_dependence import dependent, operands_of, results_among
from eqsat.ir.ops import Call, Const, Map, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.ir.tiled_values import tiled_values

ADDING = ({"add", "add_any", "sub"}, {"max"}, {"min"}, {"and"}, {"or"})
"""The functions that add entries to a carry: each of these by itself."""


def with_exact_forms(program: Program) -> Program:
    """The program without them, also inside of bodies."""
    tiles = set(tiled_values(program))
    kept = tuple(pair for pair in program.equalities if pair not in tiles and not is_batched(pair[0]))
    if len(kept) < len(program.equalities):
        program = replace(program, equalities=kept)

    def changed(call: Call, _: tuple[Term, ...]) -> list[Body]:
        programs = [with_exact_forms(body.program) for body in call.bodies]
        return [
            body if new is body.program else Body(new, body.sources)
            for body, new in zip(call.bodies, programs, strict=True)
        ]

    return with_changed_bodies(program, changed)


def is_batched(term: Term) -> bool:
    """Whether a term is a result of a scan whose iterations could be a batch: what it equals is one.

    Such iterations need nothing of each other, except for how many there were, and add to what they carry.
    """
    if not isinstance(term.op, Opaque) or not isinstance(term.op.call.control, Scan):
        return False
    call, control = term.op.call, term.op.call.control
    (body,) = call.bodies
    results = {source: result for result, source in enumerate(control.carried)}
    for leaf, source in operands_of(body):
        if source not in results or _is_known(leaf, after := body.program.outputs[results[source]].term):
            continue
        depending = dependent(call, [leaf])
        if results_among(call, depending) != {results[source]} or not _adds(leaf, after, depending):
            return False
    return True


def _is_known(before: Term, after: Term) -> bool:
    """Whether a carry stays as it is, or is a constant more in each iteration."""
    if after is before:
        return True
    if before.axes or after.op != Map("add", before.dtype) or before not in after.args:
        return False
    return all(arg is before or isinstance(arg.op, Const) for arg in after.args)


def _adds(before: Term, after: Term, depending: set[int]) -> bool:
    """Whether a carry is what it was, with entries added that do not depend on it."""
    used: set[str] = set()
    while after is not before:
        carries = [arg for arg in after.args if arg.number in depending]
        if not isinstance(after.op, Map) or len(carries) != 1:
            return False
        if after.op.name == "sub" and carries[0] is not after.args[0]:
            return False
        used.add(after.op.name)
        (after,) = carries
    return any(used <= names for names in ADDING)
