"""Carries that stay what they start as, as constants: a flag that no iteration sets is False.

carry = False; every iteration: carry = choice ? carry : False
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.ir.assumptions import constant_carries, under
from eqsat.ir.changed_calls import with_changed_bodies
from eqsat.ir.control import Body
from eqsat.ir.ops import Call
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term


def with_constant_carries(program: Program) -> Program:
    """Returns the program with constants in place of carries that stay constant, also inside of bodies."""

    def changed(call: Call, args: tuple[Term, ...]) -> list[Body]:
        constants = constant_carries(call, args)
        return [_with_constants(body, constants) for body in call.bodies]

    return with_changed_bodies(program, changed)


def _with_constants(body: Body, constants: dict[int, Term]) -> Body:
    """Returns a body for carries that are constant, and with the same done inside of it."""
    assumed = {
        leaf.number: constants[source]
        for leaf, source in zip(body.program.inputs, body.sources, strict=True)
        if source in constants
    }
    program = with_constant_carries(_under(body.program, assumed) if assumed else body.program)
    return body if program is body.program else Body(program, body.sources)


def _under(program: Program, assumed: dict[int, Term]) -> Program:
    """Returns the program for inputs of which some are known."""
    terms = program.terms
    outputs = tuple(
        Output(term, output.layout)
        for term, output in zip(
            under(terms, [output.term for output in program.outputs], assumed), program.outputs, strict=True
        )
    )
    if all(new.term is old.term for new, old in zip(outputs, program.outputs, strict=True)):
        return program
    equalities = []
    for pair in program.equalities:
        one, other = under(terms, pair, assumed)
        if one is not other and one.axes == other.axes:
            equalities.append((one, other))
    facts = []
    for fact in program.facts:
        (term,) = under(terms, [fact.term], assumed)
        if term.axes.issuperset(fact.axes):
            facts.append(replace(fact, term=term))
    alike = tuple(under(terms, program.alike, assumed))
    return replace(program, outputs=outputs, equalities=tuple(equalities), facts=tuple(facts), alike=alike)
