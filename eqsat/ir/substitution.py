"""Substitution of terms in terms, and of inputs in programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body
from eqsat.ir.ops import Call, Chunk, Opaque
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.ir.term import Term, Terms


def substituted(
    terms: Terms,
    roots: Sequence[Term],
    known: Mapping[int, Term],
    rebuilt: Callable[[Term, Sequence[Term]], Term] | None = None,
) -> list[Term]:
    """Returns the roots with some terms replaced.

    If the operands of control flow become chunks of an axis that passes through it or that it sums over, the
    inputs of its bodies become chunks too.

    **Arguments:**

    - `terms`: the table in which new terms are built.
    - `known`: the replacements, by the number of the term that they replace.
    - `rebuilt`: builds a term on other operands, if these change its op.
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
        made = found[term.number] = terms.make(op, args) if rebuilt is None else rebuilt(term, args)
        if term.number in terms.origins:
            terms.origins.setdefault(made.number, terms.origins[term.number])
    return [found[root.number] for root in roots]


def with_inputs(program: Program, inputs: tuple[Term, ...], known: Mapping[int, Term]) -> Program:
    """Returns the program with other inputs, and with terms replaced as `known` says.

    **Arguments:**

    - `inputs`: the inputs of the new program.
    - `known`: the replacements, by the number of the term that they replace.
    """
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
    """Returns the call with bodies that take the current chunks of `axes` of their inputs.

    The axes must pass through the call, or the call must sum over them. A call without bodies is unchanged.
    """
    if not axes or not call.bodies:
        return call
    bodies = []
    for body in call.bodies:
        known = {leaf.number: chunk_of(leaf, axes, terms) for leaf in body.program.inputs}
        bodies.append(Body(with_inputs(body.program, body.program.inputs, known), body.sources))
    return replace(call, bodies=tuple(bodies))


def chunk_of(term: Term, axes: frozenset[Axis], terms: Terms) -> Term:
    """Returns the current chunk of a term along those of `axes` that it has."""
    for axis in sorted(axes & term.axes):
        term = terms.make(Chunk(axis), [term])
    return term
