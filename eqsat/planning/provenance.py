"""Provenance: the lines of the user's source, and the rules, that terms of a rewritten program come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsat.engine.snapshot import Snapshot
from eqsat.ir.ops import Chunk, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.support.records import Place


def class_places(graph: Snapshot, origins: Mapping[int, Place]) -> dict[int, Place]:
    """For the e-classes of a program's e-graph, the places that they come from.

    A class that equals a term of the program, or chunks of one, comes from the place of that term.
    """
    chunks: dict[int, list[int]] = {}
    for number, eclass in enumerate(graph.classes):
        for node in eclass.nodes:
            if isinstance(node.op, Chunk):
                chunks.setdefault(node.children[0], []).append(number)
    found: dict[int, Place] = {}
    for number in sorted(origins.keys() & graph.class_of.keys()):
        found.setdefault(graph.class_of[number], origins[number])
    waiting = list(found)
    while waiting:
        number = waiting.pop()
        for chunk in chunks.get(number, ()):
            if chunk not in found:
                found[chunk] = found[number]
                waiting.append(chunk)
    return found


def places(program: Program) -> dict[int, Place]:
    """For the terms of a program and of the bodies inside, by number, the places that they come from.

    A term that equals nothing in the user's source gets the place of a term that uses it.
    """
    found = dict(program.terms.origins)
    for inner in program.inside():
        for term in reversed(list(inner.reachable())):
            place = found.get(term.number)
            if place is not None:
                for needed in (*term.args, *_inside(term)):
                    found.setdefault(needed.number, place)
    return found


def _inside(term: Term) -> Iterator[Term]:
    """The outputs of a call's bodies."""
    if isinstance(term.op, Opaque):
        for body in term.op.call.bodies:
            yield from (output.term for output in body.program.outputs)


def makers_after(before: Sequence[Term], after: Sequence[Term], makers: Mapping[int, str]) -> dict[int, str]:
    """The makers of terms after a substitution: those of the terms that they correspond to before it."""
    found = dict(makers)
    seen: set[tuple[int, int]] = set()
    stack = list(zip(before, after, strict=True))
    while stack:
        old, new = stack.pop()
        if old is new or (old.number, new.number) in seen:
            continue
        seen.add((old.number, new.number))
        if old.op == new.op and len(old.args) == len(new.args):
            if old.number in makers:
                found.setdefault(new.number, makers[old.number])
            stack.extend(zip(old.args, new.args, strict=True))
    return found
