"""Terms that rules have simplified away: such a rule makes no node that could be credited to it."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.ir.ops import Chunk, Rename
from eqsat.ir.term import Term
from eqsat.planning.search_space import SearchSpace

DEEPEST = 6
"""The left side of a rule that finds a term equal to a part of itself has no more ops over that part."""


def simplified(space: SearchSpace, terms: Mapping[int, Term]) -> dict[int, str]:
    """For terms of the program that have gone, being equal to a part of themselves, by which rule.

    **Arguments:**

    - `terms`: by class, what has been selected.
    """
    graph = space.saturation.graph
    if not graph.simplified:
        return {}
    kept = {term.number for term in terms.values()}
    used = set(terms)
    ahead = list(terms)
    while ahead:  # a chunk of a value, or the value under another name, stands for it
        for node in graph.classes[ahead.pop()].nodes:
            if isinstance(node.op, Chunk | Rename) and node.children[0] not in used:
                used.add(node.children[0])
                ahead.append(node.children[0])
    ops = {term.op for term in terms.values()}
    gone: dict[int, str] = {}
    for term in space.program.reachable():
        number = graph.class_of.get(term.number, -1)
        if number not in graph.simplified or term.number in kept:
            continue
        part = _part(term, number, graph.class_of)
        if part is None:
            continue
        # Where it has been merged with what reads it, what it was computed from tells that it was there.
        inner = {graph.class_of.get(below.number, -1) for below in part.args if below.args}
        if number in used or (term.op not in ops and inner & used):
            gone[term.number] = space.rules[min(graph.simplified[number])].name
    return gone


def _part(term: Term, number: int, class_of: Mapping[int, int]) -> Term | None:
    """What a term of that class is computed from that is of the class too; as far down as rules reach."""
    level = [term]
    for _ in range(DEEPEST):
        level = list(dict.fromkeys(arg for above in level for arg in above.args))
        found = next((below for below in level if class_of.get(below.number) == number), None)
        if found is not None:
            return found
    return None
