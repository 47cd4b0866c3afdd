"""Scans over sequences that are reversed, as scans from their end.

    scan(f, c, xs[::-1])  =  scan(f, c, xs, reverse=True)

No loop over chunks reverses an array that it computes, but a scan can take its entries from the last one on.
"""

from __future__ import annotations

from dataclasses import replace

from jax import lax

from eqsat.ir.axis import Layout
from eqsat.ir.changed_calls import Operands, with_changed_bodies
from eqsat.ir.control import Body, Scan
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term


def with_reversed_loops(program: Program) -> Program:
    """Returns the program with scans from the end where all sequences are reversed, also inside of bodies.

    Stacked results are then reversed. So there must be none, or only such as are reversed again.
    """

    def changed(call: Call, _: Operands) -> list[Body]:
        inside = ((body, with_reversed_loops(body.program)) for body in call.bodies)
        return [body if new is body.program else Body(new, body.sources) for body, new in inside]

    program = with_changed_bodies(program, changed)
    while (found := _from_the_end(program)) is not None:
        call, known = found
        program = _without(call, with_inputs(program, program.inputs, known))
    return program


def _from_the_end(program: Program) -> tuple[Call, dict[int, Term]] | None:
    """A loop to replace, and its results from the end, by the numbers of the terms that they replace."""
    for call, args in dict.fromkeys(program.controls()):
        operands = _forwards(call, args)
        if operands is None:
            continue
        assert isinstance(call.control, Scan)
        made = replace(
            call, id=program.next_call(), control=replace(call.control, reverse=not call.control.reverse)
        )
        known = _replaced(program, call, args, made, operands)
        if known:
            return call, known
    return None


def _without(call: Call, program: Program) -> Program:
    """The program without equalities that are of a call: other forms of what it does no more."""
    gone: set[int] = set()
    for term in program.known():
        own = isinstance(term.op, Opaque) and term.op.call == call
        if own or any(arg.number in gone for arg in term.args):
            gone.add(term.number)
    kept = tuple(pair for pair in program.equalities if not any(term.number in gone for term in pair))
    return replace(program, equalities=kept)


def _forwards(call: Call, args: Operands) -> Operands | None:
    """The operands with sequences that are not reversed; None if some were not, or it is no scan."""
    if not isinstance(call.control, Scan) or not call.control.sliced:
        return None
    operands = list(args)
    for place in call.control.sliced:
        before = _reversed(args[place], call.arg_layouts[place])
        if before is None:
            return None
        operands[place] = before
    return tuple(operands)


def _reversed(term: Term, layout: Layout) -> Term | None:
    """What a term is along the first dimension of a layout, from the end; None if it is not reversed."""
    if not isinstance(term.op, Opaque) or term.op.call.primitive is not lax.rev_p:
        return None
    call = term.op.call
    same = call.arg_layouts[0] == call.out_layouts[0] == layout
    return term.args[0] if same and tuple(call.params["dimensions"]) == (0,) else None


def _replaced(
    program: Program, call: Call, args: Operands, made: Call, operands: Operands
) -> dict[int, Term] | None:
    """The results of the other call, by what they replace; None if a stacked one is read as it is."""
    assert isinstance(call.control, Scan)
    known: dict[int, Term] = {}
    stacked: dict[int, Term] = {}
    for term in program.known():
        if isinstance(term.op, Opaque) and term.op.call == call and term.args == args:
            new = program.terms.make(Opaque(made, term.op.result), operands)
            if term.op.result < len(call.control.carried):
                known[term.number] = new
            else:
                stacked[term.number] = new
    read = {output.term.number for output in program.outputs}
    read |= {fact.term.number for fact in program.facts} | {term.number for term in program.alike}
    if not stacked.keys().isdisjoint(read):
        return None
    for term in program.reachable():
        for arg in term.args:
            if arg.number not in stacked:
                continue
            assert isinstance(arg.op, Opaque)
            if _reversed(term, call.out_layouts[arg.op.result]) is None:
                return None
            known[term.number] = stacked[arg.number]
    return known
