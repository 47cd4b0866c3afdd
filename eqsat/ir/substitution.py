"""Terms with other terms in the places of some, and programs with other inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body
from eqsat.ir.ops import Call, Chunk, Opaque
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.ir.term import Term, Terms


def substituted(terms: Terms, roots: Sequence[Term], known: Mapping[int, Term]) -> list[Term]:
    """The roots with `known`, by number, in the places of the terms they stand for.

    What control flow is given a chunk of by that, its bodies are given a chunk of.
    """
    found = dict(known)
    bodies: dict[tuple[Call, frozenset[Axis]], Call] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, leaving = stack.pop()
        if term.number in found:
            continue
        if not leaving:
            stack.append((term, True))
            stack.extend((arg, False) for arg in term.args)
            continue
        args = [found[arg.number] for arg in term.args]
        op = term.op
        if isinstance(op, Opaque) and op.call.bodies:
            opened = frozenset[Axis]().union(*(arg.open for arg in args)) & op.call.cut
            key = (op.call, opened)
            if key not in bodies:
                bodies[key] = in_chunks(op.call, opened, terms)
            op = Opaque(bodies[key], op.result)
        made = found[term.number] = terms.make(op, args)
        if term.number in terms.origins:
            terms.origins.setdefault(made.number, terms.origins[term.number])
    return [found[root.number] for root in roots]


def with_inputs(program: Program, inputs: tuple[Term, ...], known: Mapping[int, Term]) -> Program:
    """A program with terms in the places of some of its inputs."""
    terms = program.terms
    roots = [output.term for output in program.outputs]
    roots += [term for pair in program.equalities for term in pair]
    roots += [fact.term for fact in program.facts]
    roots += program.alike
    new = iter(substituted(terms, roots, known))
    outputs = tuple(Output(next(new), output.layout) for output in program.outputs)
    equalities = tuple((next(new), next(new)) for _ in program.equalities)
    facts = tuple(KnownFact(fact.property, next(new), fact.axes) for fact in program.facts)
    alike = tuple(next(new) for _ in program.alike)
    return replace(program, inputs=inputs, outputs=outputs, equalities=equalities, facts=facts, alike=alike)


def in_chunks(call: Call, axes: frozenset[Axis], terms: Terms) -> Call:
    """Control flow whose bodies are given chunks of `axes`, which pass through it or are summed over."""
    if not axes or not call.bodies:
        return call
    bodies = []
    for body in call.bodies:
        known = {leaf.number: chunk_of(leaf, axes, terms) for leaf in body.program.inputs}
        bodies.append(Body(with_inputs(body.program, body.program.inputs, known), body.sources))
    return replace(call, bodies=tuple(bodies))


def chunk_of(term: Term, axes: frozenset[Axis], terms: Terms) -> Term:
    """The term's current chunk of those of `axes` that it has."""
    for axis in sorted(axes & term.axes):
        term = terms.make(Chunk(axis), [term])
    return term
