"""Finds the terms that rules have simplified away, since no e-node records the rule as its maker."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.ir.ops import Chunk, Rename
from eqsat.ir.term import Term
from eqsat.planning.search_space import SearchSpace

DEEPEST = 6
"""The most ops between a term and its subterm: no simplifying rule has more of them on its left side."""


def simplified(space: SearchSpace, terms: Mapping[int, Term]) -> dict[int, str]:
    """By number, the program's terms that were replaced by a subterm equal to them, with the rule's name.

    **Arguments:**

    - `terms`: the selected terms, by e-class.
    """
    graph = space.saturation.graph
    if not graph.simplified:
        return {}
    kept = {term.number for term in terms.values()}
    used = set(terms)
    ahead = list(terms)
    while ahead:  # a chunk or a rename of a value counts as a use of it
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
        # If its class was merged with that of a consumer, its operands show whether it was used.
        inner = {graph.class_of.get(below.number, -1) for below in part.args if below.args}
        if number in used or (term.op not in ops and inner & used):
            gone[term.number] = space.rules[min(graph.simplified[number])].name
    return gone


def _part(term: Term, number: int, class_of: Mapping[int, int]) -> Term | None:
    """A subterm of the term in the same e-class, at most `DEEPEST` ops down; None if there is none."""
    level = [term]
    for _ in range(DEEPEST):
        level = list(dict.fromkeys(arg for above in level for arg in above.args))
        found = next((below for below in level if class_of.get(below.number) == number), None)
        if found is not None:
            return found
    return None
